"""Other ways to read: given paragraphs without search; language models, one that teaches the retriever, one that writes answers."""

import json
import math
from typing import Any

import pytest
import torch
from language_models import write_language_model
from small import jsonl
from toy_runs import PRETRAINING, context_of, copy_without, rows_of, train

from realm.answering.cloze import begun
from realm.answering.generative import FusionAnswerer
from realm.answering.opening import open_run
from realm.errors import ConfigError, DataError
from realm.models import losses
from realm.models.continuing import LanguageModel
from realm.models.fusion import FusionReader
from realm.models.model import state_sha256
from realm.models.reader import SpanScores
from realm.models.types import MaskedQuery, Question
from realm.recipe import build_recipe, load_recipe
from realm.runs.evaluation import evaluate_stage
from realm.storage.layout import stage_facts
from realm.training.context import load_stage
from realm.training.finetune.given import GivenParagraphs, GivenTask, given_questions, given_scores, gold_spans, posterior_nll, read_given
from realm.training.finetune.stage import run_finetune
from realm.training.order import WHOLE
from realm.training.pretrain.retrieve import asked_inputs
from realm.training.pretrain.score import pretraining_loss, score_step
from realm.training.pretrain.stage import starting_model
from realm.training.pretrain.task import PretrainTask
from realm.training.starting import with_new_reader

from .conftest import TOWNS


def rows(count):
    """Questions on who built which bridge; every fourth is asked of a paragraph about another town."""
    found = []
    for n in range(count):
        town, name, year = TOWNS[n % 12], f"Karel Brandt{n % 7}", 1700 + n
        context = f"Many people walk there. The bridge of {town} was built by {name} in {year}. It is long."
        other = TOWNS[(n + 5) % 12]
        asked, answers = (
            (f"When was the bridge of {other} built?", []) if n % 4 == 3 else (f"When was the bridge of {town} built?", [str(year)])
        )
        found.append({"id": str(n), "question": asked, "answers": answers, "context": context, "title": town if n % 2 else ""})
    return found


def recipe_of(root, towns, questions, **finetune):
    jsonl(root / "train.jsonl", questions)
    recipe = towns(root, steps=0, fill="mlm", masking="salient", shown=0.0, questions=0.0, reader_first=0)
    values = {"sources": list(recipe.corpus.sources), "vocab_size": 400}
    return build_recipe( {
        "corpus": values, "run": {"threads": 1, "device": "cpu", "checkpoint_every": 2},
        "model": {"hidden": 32, "layers": 2, "heads": 2, "intermediate": 64, "projection": 16, "span_hidden": 32, "dropout": 0.0},
        "warm": {"steps": 1, "batch": 4}, "ict": {"steps": 1, "batch": 8}, "pretrain": {"steps": 0, "refresh": "inline"},
        "finetune": {"passages": "given", "train": str(root / "train.jsonl"), "batch": 8, "lr": 3e-3, "warmup": 5, **finetune},
    })  # fmt: skip


@pytest.fixture(scope="module")
def start(tmp_path_factory, towns):
    root = tmp_path_factory.mktemp("given")
    train(recipe_of(root, towns, rows(64), steps=12), root / "run", PRETRAINING)
    return root


def reading(root, towns, **finetune):
    return context_of(root / "run", recipe_of(root, towns, rows(64), **finetune))


def test_the_loss_is_the_mass_on_answers_or_on_not_here():
    """Two windows of three wordpieces with spans of one or two: enumerated by hand, the second without an answer."""
    generator = torch.Generator().manual_seed(0)
    logits, none = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64), torch.randn(2, generator=generator, dtype=torch.float64)
    valid = torch.tensor([[[True, True], [True, True], [True, False]], [[True, True], [True, False], [False, False]]])
    scores = SpanScores(logits.requires_grad_(), valid, none.requires_grad_())
    gold = torch.zeros_like(valid)
    gold[0, 0, 1] = gold[0, 2, 0] = True
    loss, learnt = posterior_nll(scores, gold)
    for window, right in enumerate(([(0, 1), (2, 0)], [])):
        masses = {
            place: math.exp(logits[window][place].item()) for place in ((t, w) for t in range(3) for w in range(2)) if valid[window][place]
        }
        everything = sum(masses.values()) + math.exp(none[window].item())
        mass = sum(masses[place] for place in right) if right else math.exp(none[window].item())
        assert loss[window].item() == pytest.approx(-math.log(mass / everything), abs=1e-12)
    assert learnt.tolist() == [True, True]
    loss.sum().backward()
    assert logits.grad is not None and none.grad is not None
    assert (logits.grad.flatten(1).sum(1) + none.grad).abs().max() < 1e-12, "shares of one: what one gains the others lose"
    assert logits.grad[0, 0, 1] < 0 < none.grad[0] and none.grad[1] < 0 and not logits.grad[1, 2].any()


def test_gold_spans_are_those_of_each_window(start, towns):
    task = task_of(reading(start, towns, steps=1))
    drawn = task.windows[:6]
    valid = torch.ones(6, max(map(len, drawn)), task.reader.max_span, dtype=torch.bool)
    for window, marks in zip(drawn, gold_spans(drawn, SpanScores(valid.float(), valid, valid[:, 0, 0].float())), strict=True):
        assert [[t, t + w + 1] for t, w in marks.nonzero().tolist()] == window.gold.tolist()


def task_of(context):
    model = with_new_reader(context, load_stage(context, "pretrain").fork_document_embedder(), pointer=True, titles=True)
    return GivenTask(context, model.reader, *given_questions(context))


def test_the_stage_learns_to_point_and_to_abstain(start, towns):
    """On paragraphs it has learnt from: hardly any is right before, most are after, and "not here" is told from the others."""
    task = task_of(reading(start, towns, steps=150))
    questions = task.given.questions
    before = given_scores(task.read(list(questions)), questions)["em"]
    answers = learn(task, 150).read(list(questions))
    after = given_scores(answers, questions)["em"]
    assert before < 0.4 and after > before + 0.4 and after > 0.75
    none = {
        bool(q.answers): [a.not_here for a, one in zip(answers, questions, strict=True) if bool(one.answers) == bool(q.answers)]
        for q in questions
    }
    assert sum(none[False]) / len(none[False]) > sum(none[True]) / len(none[True]) + 0.2
    assert all(0 <= answer.p + answer.not_here <= 1 + 1e-6 for answer in answers)


def test_a_killed_stage_resumes_to_the_same_weights(start, towns, tmp_path, interrupt_each):
    recipe, found = recipe_of(start, towns, rows(64), steps=25), []
    for name in ("whole", "cut"):
        context = context_of(copy_without(start / "run", tmp_path / name), recipe)
        if name == "cut":
            interrupt_each({"finetune"})
            with pytest.raises(KeyboardInterrupt):
                run_finetune(context)
        run_finetune(context)
        found.append(load_stage(context, "finetune"))
    assert state_sha256(found[0]) == state_sha256(found[1])
    assert found[0].reader.spec.titles and found[0].reader.spec.pointer and found[0].reader.spec.taught


def test_long_paragraphs_share_their_probability(start, towns):
    """A paragraph of many windows: equal strings of several windows are one answer, and p stays below what "not here" leaves."""
    context = reading(start, towns, steps=1)
    task, text = task_of(context), " ".join(row["context"] for row in rows(40))
    long = Question("1", "When was the bridge of Oslo built?", ("1700",), context=text)
    given = GivenParagraphs([long], context.store.tokenizer, context.inputs.featurizer, task.reader.max_span)
    assert len(given.windows_of(0)) > 2
    (answer,) = read_given(task.reader, given)
    assert answer.text in text and 0 < answer.p <= 1 - answer.not_here + 1e-6


def learn(task, steps):
    optimizer = torch.optim.Adam(task.model.parameters(), lr=3e-3)
    task.model.train()
    for step in range(steps):
        optimizer.zero_grad()
        task.step(step).mean.backward()
        optimizer.step()
    return task


def test_questions_without_paragraphs_are_refused(start, towns):
    bare = [{key: value for key, value in row.items() if key != "context"} for row in rows(8) if row["answers"]]
    context = context_of(start / "run", recipe_of(start, towns, bare, steps=1))
    with pytest.raises(DataError, match="no question has a paragraph that holds its answer") as caught:
        task_of(context)
    assert caught.value.path is not None and "context" in str(caught.value)


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
    assert not targets.requires_grad and targets.shape[1] == 4
    assert slots.any(1).all() and (targets[slots.unsqueeze(1).expand_as(targets)] < 0).all()
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
