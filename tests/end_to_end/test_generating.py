"""The generative reader with tiny random models of two families: fusion against one long input, learning, a run that answers by it."""

import json
import shutil
from typing import Any

import pytest
import torch

from realm.answering.generative import FusionAnswerer
from realm.answering.opening import open_run
from realm.errors import ConfigError
from realm.models.fusion import FusionReader
from realm.recipe import load_recipe
from realm.runs.evaluation import evaluate_stage
from realm.storage.paths import RunPaths
from realm.storage.stages import stage_facts
from realm.training.context import open_context
from realm.training.finetune.stage import run_finetune

QUESTION, PASSAGES = "what is it", [("Arvad", "People pay with the Tirel."), ("Belmor", "The winters are long in it, and dark.")]


def write_model(directory, family):
    """A random model of a few thousand parameters with a tokenizer of single characters."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    words = ["<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz0123456789:?.,", "▁"]
    backend = Tokenizer(models.Unigram([(word, -1.0) for word in words], unk_id=2, byte_fallback=False))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    torch.manual_seed(0)
    common = {"vocab_size": len(words), "d_model": 16, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    model: Any
    if family == "t5":
        model = T5ForConditionalGeneration(T5Config(d_kv=8, d_ff=32, num_layers=1, num_heads=2, dropout_rate=0.0, **common))
    else:
        sizes = {
            f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 32))
        }
        config = BartConfig(**common, **sizes, bos_token_id=0, forced_eos_token_id=None, max_position_embeddings=256, dropout=0.0)
        model = BartForConditionalGeneration(config)
    model.save_pretrained(directory, safe_serialization=True)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module", params=["t5", "bart"])
def seq2seq(request, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("seq2seq") / request.param, request.param)


def test_the_decoder_attends_to_all_blocks(seq2seq):
    """Against the encoder called block by block and the decoder over the states put together by hand."""
    from transformers.modeling_outputs import BaseModelOutput

    reader = FusionReader.load(seq2seq).eval()
    with torch.no_grad():
        loss = reader.loss([QUESTION, QUESTION], [PASSAGES, PASSAGES[:1]], ["tirel", "x"])
        for passages, answer, found in ((PASSAGES, "tirel", loss[0]), (PASSAGES[:1], "x", loss[1])):
            states = []
            for title, text in passages:
                ids = reader.tokenizer(f"question: {QUESTION} title: {title} context: {text}", return_tensors="pt").input_ids
                states.append(reader.model.get_encoder()(input_ids=ids).last_hidden_state)
            labels = reader.tokenizer(answer, return_tensors="pt").input_ids
            logits = reader.model(encoder_outputs=BaseModelOutput(last_hidden_state=torch.cat(states, 1)), labels=labels).logits
            expected = -logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).sum()
            assert float(found) == pytest.approx(float(expected), rel=1e-4)


def test_it_learns_to_write(seq2seq):
    reader = FusionReader.load(seq2seq).train()
    optimizer = torch.optim.Adam(reader.parameters(), lr=2e-2)
    for _ in range(60):
        optimizer.zero_grad()
        reader.loss([QUESTION], [PASSAGES], ["abc"]).sum().backward()
        optimizer.step()
    texts, log_p = reader.eval().generate([QUESTION], [PASSAGES])
    with torch.no_grad():
        expected = -float(reader.loss([QUESTION], [PASSAGES], ["abc"]))
    assert texts == ["abc"] and float(log_p[0]) == pytest.approx(expected, abs=1e-2)
    assert float(log_p[0]) > -0.7


def test_a_run_that_writes_its_answers(seq2seq, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shutil.rmtree(run / "stages" / "finetune")
    recipe = load_recipe(run / "config.toml", {"finetune": {"seq2seq": str(seq2seq), "publish": "best", "eval_every": 2}})
    context = open_context(RunPaths(run), recipe, lambda *_: None)
    run_finetune(context)
    assert stage_facts(context.paths, "finetune")["slope"] > 0
    before, after = FusionReader.load(seq2seq), FusionReader.load(run / "stages" / "finetune" / "seq2seq")
    assert any(not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    row = evaluate_stage(context, "finetune")
    assert 0 <= row["em"] <= 1 and row["recall"]
    opened = open_run(run)
    assert isinstance(opened.answerer, FusionAnswerer)
    answer = opened.answerer.answer(["What is the currency of Arvad?"], k=3)[0]
    assert 0 < answer.p <= 1 and answer.confidence is not None and len(answer.evidence) == 3
    assert sum(e.p_z for e in answer.evidence) == pytest.approx(1) and set(answer.timings_ms) == {"embed", "search", "read"}
    for evidence in answer.evidence:
        assert evidence.text[evidence.start : evidence.end] == evidence.answer
    json.dumps(answer.to_dict())


def test_what_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such directory"):
        FusionReader.load(tmp_path / "none")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="no sequence-to-sequence model can be loaded"):
        FusionReader.load(tmp_path)
