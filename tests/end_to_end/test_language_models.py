"""Language models: one that stays as it is teaches the retriever; one that writes answers reads all blocks at once and learns."""

import json
from typing import Any

import pytest
import torch
from language_models import write_language_model
from toy_runs import PRETRAINING, context_of, copy_without, rows_of, train

from realm.answering.cloze import begun
from realm.answering.generative import FusionAnswerer
from realm.answering.opening import open_run
from realm.errors import ConfigError
from realm.models import losses
from realm.models.continuing import LanguageModel
from realm.models.fusion import FusionReader
from realm.models.model import state_sha256
from realm.models.types import MaskedQuery
from realm.recipe import load_recipe
from realm.runs.evaluation import evaluate_stage
from realm.storage.layout import stage_facts
from realm.training.context import load_stage
from realm.training.finetune.stage import run_finetune
from realm.training.order import WHOLE
from realm.training.pretrain.retrieve import asked_inputs
from realm.training.pretrain.score import pretraining_loss, score_step
from realm.training.pretrain.stage import starting_model
from realm.training.pretrain.task import PretrainTask

BLOCKS, BEGINNING = ["Arvad\nPeople pay with the Tirel.", "", "It is long and dark there in the winters of Belmor."], "People in Arvad pay"


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def directory(request, tmp_path_factory):
    return write_language_model(tmp_path_factory.mktemp("lm") / request.param, request.param)


@pytest.fixture(scope="module")
def recipe(directory, tiny_run):
    pretrain = {"fill": "lm", "language_model": str(directory), "held_out": 2, "eval_every": 2, "publish": "better", "force": False}
    return load_recipe(tiny_run / "config.toml", {"pretrain": pretrain})


def test_likelihoods_are_those_of_one_text_alone(directory, monkeypatch, capfd):
    """In batches of any size, with padding; the greedy choice; and the longest block gives way."""
    capfd.readouterr()
    reader, rests = LanguageModel.load(directory), ["with the Tirel.", "by day", "x"]
    assert capfd.readouterr() == ("", ""), "no bars"
    log_probs, greedy, there = reader.log_probs(BLOCKS, [BEGINNING, BEGINNING, ""], rests)
    for i, (block, beginning, rest) in enumerate(zip(BLOCKS, [BEGINNING, BEGINNING, ""], rests, strict=True)):
        head = [0, *reader.tokenizer(f"{block}\n\n" * bool(block) + beginning)["input_ids"]]
        tail = reader.tokenizer(" " * bool(beginning) + rest)["input_ids"]
        with torch.no_grad():
            alone = reader.model(torch.tensor([head + tail])).logits[0, len(head) - 1 : -1].log_softmax(-1)
        torch.testing.assert_close(log_probs[i, : len(tail)], alone[range(len(tail)), tail], atol=1e-5, rtol=1e-4)
        assert greedy[i, : len(tail)].tolist() == [bool(row.argmax() == one) for row, one in zip(alone, tail, strict=True)]
        assert there[i].tolist() == [at < len(tail) for at in range(there.shape[1])] and not log_probs[i, len(tail) :].any()
    monkeypatch.setattr("realm.models.continuing.LOGITS_AT_ONCE", 1)
    torch.testing.assert_close(reader.log_probs(BLOCKS, [BEGINNING, BEGINNING, ""], rests)[0], log_probs, atol=1e-5, rtol=1e-4)
    cut = 128 - 1 - len(BEGINNING) - len(" day")
    assert reader._tokens("ab" * 400, BEGINNING, "day")[0][1 : cut + 1] == reader.tokenizer("ab" * 400)["input_ids"][:cut]


def test_the_marginal_sums_to_one_over_all_texts(directory):
    """Sum over y of the sum over z of p(z|x) p(y|z,x), all texts of one token tried; and the loss is its logarithm."""
    reader, log_p_z = LanguageModel.load(directory), torch.tensor([[0.2, 0.7, 0.1]]).log()
    words = [word for word in reader.tokenizer.get_vocab() if word.strip() and word != "<end>"]
    by_block = torch.stack([reader.log_probs([block] * len(words), [""] * len(words), words)[0][:, 0] for block in BLOCKS], 1)
    total = (log_p_z.exp() * by_block.exp()).sum(1)
    nll, _ = losses.marginal_nll_joint(by_block.unsqueeze(-1), log_p_z.expand(len(words), -1), torch.ones(len(words), 1).bool())
    torch.testing.assert_close(-nll, total.log(), atol=1e-5, rtol=1e-4)
    with torch.no_grad():  # what is left out: the end, the space and the line's end
        heads = [torch.tensor([reader._tokens(block, "", "x")[0]]) for block in BLOCKS]
        left = sum(s * reader.model(h).logits[0, -1].softmax(-1)[:3].sum() for s, h in zip(log_p_z[0].exp(), heads, strict=True))
    assert float(total.sum() + left) == pytest.approx(1.0, abs=1e-5)


def test_a_sentence_is_cut_before_what_it_hides(tiny_run):
    store = open_run(tiny_run).inputs.store
    whole = store.tokenizer.encode(["People in Arvad pay with the Tirel."])[0]
    for first, beginning in ((len(whole) - 3, None), (1, len(whole) // 2)):
        cut = first if beginning is None else beginning
        masked = [*whole]
        masked[first] = store.tokenizer.special.mask
        query = begun(store, MaskedQuery(masked, [first], [whole[first]], origin=int(store.block_ids[0])))
        assert (query.ids, query.positions, query.whole) == (whole[:cut], [], whole[:cut])
        assert "".join(query.begun).split() == ["People", "in", "Arvad", "pay", "with", "the", "Tirel."] and all(query.begun)


def test_the_gradient_is_the_papers_identity(recipe, run_copy):
    """The retriever's scores get r(z), summed over a batch; the language model and the encoder get nothing."""
    context = context_of(run_copy, recipe)
    task = PretrainTask(context, starting_model(context))
    task.between(0)
    read = score_step(task.view, task.queries, 0, WHOLE)
    log_p_z = read.scored.log_p_z.detach().requires_grad_()
    targets, slots = read.scored.target_log_probs, read.scored.slots
    assert (
        not targets.requires_grad
        and targets.shape[1] == 4
        and slots.any(1).all()
        and (targets[slots.unsqueeze(1).expand_as(targets)] < 0).all()
    )
    scores = log_p_z.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(-losses.marginal_nll_joint(targets, scores.log_softmax(-1), slots)[0].sum(), scores)
    torch.testing.assert_close(losses.retriever_gradient(targets, log_p_z.detach(), slots), gradient, atol=1e-5, rtol=1e-4)
    assert gradient.abs().max() > 1e-3
    pretraining_loss(read.scored, recipe.pretrain)[0].sum().backward()
    learnt = {name.partition(".")[0] for name, value in task.model.named_parameters() if value.grad is not None and value.grad.any()}
    assert learnt == {"embedder"}
    for query, asked in zip(read.queries, asked_inputs(context, read.queries), strict=True):
        assert asked.ids[1:-1] == query.ids and context.inputs.featurizer.mask not in asked.ids and len(query.whole) == len(query.ids)


def test_a_run_learns_by_it(recipe, tmp_path):
    """The language model is not part of what is published; the encoder stays the warm stage's."""
    train(recipe, tmp_path / "run", PRETRAINING)
    after, before = (load_stage(context_of(tmp_path / "run", recipe), stage).encoder for stage in ("pretrain", "warm"))
    assert state_sha256(after) == state_sha256(before)
    measured = [row for row in rows_of(tmp_path / "run") if "held_out_loss" in row]
    assert measured and all(row["held_out_loss"] > 0 and 0 <= row["held_out_accuracy"] <= 1 for row in measured)
    assert open_run(tmp_path / "run").search("the currency of Arvad", 3)


def test_a_directory_without_a_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for place, said in ((tmp_path / "none", "no such directory"), (tmp_path, "no causal language model can be loaded")):
        with pytest.raises(ConfigError, match=said):
            LanguageModel.load(place)


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
    run = copy_without(tiny_run, tmp_path / "run", "stages/finetune")
    context = context_of(run, finetune={"seq2seq": str(seq2seq), "publish": "best", "eval_every": 2})
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


def test_what_is_no_sequence_to_sequence_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such directory"):
        FusionReader.load(tmp_path / "none")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="no sequence-to-sequence model can be loaded"):
        FusionReader.load(tmp_path)
