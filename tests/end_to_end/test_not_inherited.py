"""Faults of the published classes (transformers 4.40.2) that users met, each with a test that ours works there."""

import math
from dataclasses import replace

import pytest
import torch
from cases import BLOCKS, QUESTIONS, SHAPES, vocabulary
from small_corpus import READ, SmallCorpus

from realm.answering.answerer import Answerer
from realm.errors import DataError
from realm.evaluation.questions.loading import load_questions
from realm.models import losses
from realm.models.model import RealmModel
from realm.models.published.names import read_published_config

WORDS = vocabulary()
UNKNOWN = WORDS.index("[UNK]")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = {**SHAPES["small"].config(len(WORDS)), "pad_token_id": 1, "max_span_width": 10}
    return RealmModel(read_published_config(config, "openqa")).eval()


@pytest.fixture(scope="module")
def corpus(model, tmp_path_factory):
    corpus = SmallCorpus(tmp_path_factory.mktemp("corpus"), BLOCKS, torch.zeros(len(BLOCKS), SHAPES["small"].projection))
    corpus.vectors = corpus.embed(model).numpy()
    return corpus


@pytest.fixture
def ask(corpus, model):
    answerer = Answerer(corpus.inputs, corpus.source(model), model.reading(bf16=False), versions={})
    return lambda questions, k: answerer.answer(questions, k=k)


@pytest.fixture
def step(corpus, model):
    def run(questions):
        model.zero_grad()
        result = corpus.task(model, questions).step(0)
        result.mean.backward()
        return result

    yield run
    model.zero_grad()


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_one_block_is_searched_and_read(ask):
    (answer,) = ask([QUESTIONS[0][0]], 1)
    assert len(answer.evidence) == 1 and answer.answer and answer.answer in answer.evidence[0].text
    assert answer.evidence[0].p_z == pytest.approx(1)


def test_a_beam_of_one_trains(corpus, model):
    task = corpus.task(model, QUESTIONS)
    task.section = replace(task.section, beam=1, read=1)
    loss = task.step(0).mean
    loss.backward()
    assert math.isfinite(float(loss.detach())) and all(torch.isfinite(g).all() for g in gradients(model).values())
    model.zero_grad()


def test_unknown_words_of_a_question_reach_the_reader(corpus):
    (ids,) = corpus.inputs.store.tokenizer.encode(["What do ☃ people zzz pay?"])
    assert ids.count(UNKNOWN) == 2
    joint, query = corpus.inputs.joint(ids, 0), corpus.inputs.featurizer.query(ids)
    assert joint.ids[1 : 1 + len(ids)] == ids and query.ids[1:-1] == ids
    assert joint.ids[corpus.inputs.featurizer.body_start(ids) :][:-1] == corpus.inputs.store.token_ids(0).tolist()


def test_padding_is_0_and_wordpiece_1_learns(corpus, model):
    assert model.embedder.spec.body.config["pad_token_id"] == 0
    embeddings = model.embedder.body.model.get_input_embeddings()
    assert embeddings.padding_idx == 0
    (ids,) = corpus.inputs.store.tokenizer.encode(["What do ☃ pay?"])
    model.embedder([corpus.inputs.featurizer.query(ids)])[0, 0].backward()
    assert embeddings.weight.grad[UNKNOWN].abs().max() > 0
    model.zero_grad()


def test_a_batch_of_questions_is_answered_as_one_by_one(ask):
    texts = [text for text, _ in QUESTIONS]
    for text, answer in zip(texts, ask(texts, READ), strict=True):
        (alone,) = ask([text], READ)
        assert (alone.answer, [e.block_id for e in alone.evidence]) == (answer.answer, [e.block_id for e in answer.evidence])
        assert alone.p == pytest.approx(answer.p, rel=1e-4)


def test_a_batch_of_questions_has_the_mean_of_their_losses_and_gradients(step, model):
    together, expected = step(QUESTIONS), gradients(model)
    alone, summed = 0.0, {name: torch.zeros_like(gradient) for name, gradient in expected.items()}
    for question in QUESTIONS:
        alone += float(step((question,)).mean.detach())
        for name, gradient in gradients(model).items():
            summed[name] += gradient / len(QUESTIONS)
    assert float(together.mean.detach()) == pytest.approx(alone / len(QUESTIONS), rel=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(gradient, summed[name], rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("answers", [(), ("nobody",), ("☃",)], ids=["none", "in no block", "unknown word"])
def test_a_question_without_an_answer_in_the_corpus_teaches_nothing(step, model, answers):
    result = step(((QUESTIONS[0][0], answers),))
    assert float(result.loss.detach()) == 0 and result.valid == 0
    assert all((gradient == 0).all() for gradient in gradients(model).values())


def test_an_empty_answer_list_in_a_file_is_named(tmp_path):
    path = tmp_path / "qa.jsonl"
    path.write_text('{"question": "Who?", "answers": ["x"]}\n{"question": "What?", "answers": []}\n', "utf-8")
    with pytest.raises(DataError, match=r"qa.jsonl:2: no answers"):
        load_questions(path)


def test_blocks_shorter_than_the_widest_span_are_read(corpus, model, tmp_path):
    row = next(row for row, (title, _) in enumerate(BLOCKS) if title == "Estrag")
    body = len(corpus.inputs.store.token_ids(row))
    assert 0 < body < model.reader.max_span
    with torch.no_grad():
        scores = model.reader([corpus.inputs.joint([10, 11], row)], [4])
    assert int(scores.valid.sum()) == body * (body + 1) // 2 and torch.isfinite(scores.logits[scores.valid]).all()
    short = SmallCorpus(tmp_path, BLOCKS[4:5], torch.zeros(1, SHAPES["small"].projection))
    (answer,) = Answerer(short.inputs, short.source(model), model.reading(bf16=False), versions={}).answer(["What is Estrag?"], k=5)
    assert answer.answer and answer.answer in BLOCKS[4][1]


def test_an_example_without_masks_counts_as_nothing_and_is_said_to():
    log_probs = torch.full((2, 3, 2), -1.0, requires_grad=True)
    log_p_z, slots = torch.zeros(2, 3).log_softmax(-1), torch.tensor([[True, True], [False, False]])
    for nll in (losses.marginal_nll_per_token, losses.marginal_nll_joint):
        loss, valid = nll(log_probs, log_p_z, slots)
        assert valid.tolist() == [True, False] and float(loss[1].detach()) == 0 < float(loss[0].detach())
        (gradient,) = torch.autograd.grad(loss.sum(), log_probs)
        assert torch.isfinite(gradient).all() and (gradient[1] == 0).all() and (gradient[0] != 0).any()


def test_a_nan_is_not_hidden():
    log_probs = torch.full((2, 3, 2), -1.0)
    log_probs[0, 1, 0] = float("nan")
    slots = torch.ones(2, 2, dtype=torch.bool)
    for nll in (losses.marginal_nll_per_token, losses.marginal_nll_joint):
        loss, valid = nll(log_probs, torch.zeros(2, 3).log_softmax(-1), slots)
        assert loss.isnan().tolist() == [True, False] and valid.all(), "the loop's check of finite losses must see it"
