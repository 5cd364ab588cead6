"""Faults of the published classes (transformers 4.40.2) that users met, each with a test that ours works there."""

import math
from dataclasses import replace

import pytest
import torch
from cases import BLOCKS, QUESTIONS, SHAPES, vocabulary
from small_corpus import SmallCorpus

from realm.answering.answerer import Answerer
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


def test_one_block_is_searched_read_and_learnt_from(corpus, model):
    answerer = Answerer(corpus.inputs, corpus.source(model), model.reading(bf16=False), versions={})
    (answer,) = answerer.answer([QUESTIONS[0][0]], k=1)
    assert len(answer.evidence) == 1 and answer.answer and answer.answer in answer.evidence[0].text
    assert answer.evidence[0].p_z == pytest.approx(1)
    task = corpus.task(model, QUESTIONS)
    task.section = replace(task.section, beam=1, read=1)
    loss = task.step(0).mean
    loss.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert math.isfinite(float(loss.detach())) and gradients and all(torch.isfinite(g).all() for g in gradients)
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
