"""Candidates and answers: rows and scores belong together, answers are in the documents' own spelling, nothing found is no crash."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small import corpus_of

from realm.answering.answerer import KIND_MISMATCH_WEIGHT, SPANS_PER_BLOCK, Answerer, Confidence, ReadBlocks, TextSpan, likeliest, pooled
from realm.answering.levels import leveled
from realm.answering.pointing import read_candidates, score_spans
from realm.answering.questions.answer_kinds import asked_for
from realm.answering.reading import asked_alike, bodies_of, within_lines
from realm.models.bodies.body import has_bf16
from realm.models.reader import Reader, ReadingNetwork
from realm.search.blocks import open_inputs
from realm.search.candidates import DenseCandidates
from realm.storage.layout import RunPaths
from realm.text.matching.answers import OPEN_QA, is_whole, normalize_answer
from realm.training.baselines.retrievers import Bm25Candidates
from realm.training.beams import LiveSource

TEXTS = {
    "Hugo": "Victor Hugo was born in Besançon in 1802. He wrote Les Misérables, a long novel.",
    "Curie": "Marie Skłodowska-Curie discovered radium. She was born in Warsaw in 1867.",
    "Thames": "The Thames flows through London. It is 346 km long.",
    "Pound": "The pound sterling (£) is the currency of the U.K. It has 100 pence.",
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    root = tmp_path_factory.mktemp("answerer")
    corpus_of(root, [(name, name, text) for name, text in TEXTS.items()], vocab_size=300)
    return RunPaths(root)


@pytest.fixture
def dense(inputs, model, generation):
    return DenseCandidates(model.embedder, generation.snapshot, generation.index, inputs)


QUESTIONS = ["Where was Victor Hugo born?", "Who discovered radium?", "zzz"]


def ask(source, k):
    return source.find(QUESTIONS, source.inputs.store.tokenizer.encode(QUESTIONS), k)


def test_dense_scores_are_those_of_their_rows(dense, generation, inputs):
    found = ask(dense, 6)
    assert found.rows.shape == found.scores.shape == (3, 4), "four documents, and no padding up to the six asked for"
    assert found.valid.all()
    tokens = inputs.store.tokenizer.encode(QUESTIONS)
    queries = dense.embedder.embed_questions([inputs.featurizer.query(ids) for ids in tokens])
    for i in range(3):
        expected = [float(queries[i] @ generation.snapshot.vectors[r]) for r in found.rows[i, :4]]
        assert found.scores[i, :4].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4) and expected == sorted(expected, reverse=True)
        assert sorted(found.rows[i, :4]) == [0, 1, 2, 3]
    live = LiveSource(dense, dense.embedder.eval())(QUESTIONS, tokens, 6)
    assert (live.rows == found.rows).all() and np.allclose(live.scores.detach(), found.scores, atol=1e-5)
    live.scores.sum().backward()
    assert all(p.grad is not None for p in dense.embedder.parameters())


def test_spans_are_in_the_documents_own_spelling(inputs):
    """Any wordpieces of any block lead to characters that the tokenizer turns into these wordpieces again."""
    store, read = inputs.store, ReadBlocks(inputs)
    for row in range(len(store)):
        body, text = store.token_ids(row).tolist(), store.block(row).text
        _, words = store.tokenizer.encode_offsets(text)
        starts = {a for a, _ in words}
        for start in range(len(body)):
            for end in range(start + 1, min(start + 11, len(body) + 1)):
                found = read.span(row, start, end)
                assert 0 <= found.start < found.end <= len(text) and found.start in starts
        assert read.span(row, 0, len(body)) == TextSpan(text, 0, len(text))
    ids = store.tokenizer.encode(["Besançon"])[0]
    at = next(i for i in range(len(store.token_ids(0))) if store.token_ids(0)[i : i + len(ids)].tolist() == ids)
    assert read.span(0, at, at + len(ids)).words == "Besançon"


def test_answers_with_their_evidence(inputs, dense, model):
    answers = Answerer(inputs, dense, model.reading(bf16=False), versions={"params": 1, "index": 1, "corpus": 1}).answer(QUESTIONS, k=3)
    assert [a.question for a in answers] == QUESTIONS
    tokens = inputs.store.tokenizer.encode(QUESTIONS)
    with torch.no_grad():
        found = ask(dense, 3)
        scores = read_candidates(model.reader.eval(), inputs, tokens, found.rows, torch.from_numpy(found.scores))
    for i, answer in enumerate(answers):
        assert 0 < answer.p <= 1 and answer.versions == {"params": 1, "index": 1, "corpus": 1}
        assert any(answer.answer in TEXTS[e.doc_id] for e in answer.evidence)
        assert sum(e.p_z for e in answer.evidence) == pytest.approx(1, abs=1e-5)
        rows = [int(inputs.store.rows_of(np.array([e.block_id]))[0]) for e in answer.evidence]
        candidates = [found.rows[i].tolist().index(row) for row in rows]
        assert sorted(rows) == sorted(found.rows[i].tolist()) and answer.evidence[0].answer == answer.answer
        assert [e.p_span for e in answer.evidence[1:]] == sorted((e.p_span for e in answer.evidence[1:]), reverse=True)
        p = scores.logits[i].masked_fill(~scores.valid[i], float("-inf")).flatten().softmax(-1).view(scores.logits[i].shape)
        for j, e in zip(candidates, answer.evidence, strict=True):
            assert e.text[e.start : e.end] == e.answer and TEXTS[e.doc_id][e.doc_start :].startswith(e.text)
            assert is_whole(e.answer) and e.p_span <= float(p[j].max()) * 1.0001
            places = [divmod(place, p.shape[2]) for place in p[j].flatten().topk(SPANS_PER_BLOCK).indices.tolist()]
            spans = [ReadBlocks(inputs).span(int(found.rows[i, j]), start, start + width + 1) for start, width in places]
            whole = [(place, span) for place, span in zip(places, spans, strict=True) if is_whole(e.text[span.start : span.end])]
            best = max(whole, key=lambda one: float(p[j][one[0]]) * one[1].weight(asked_for(answer.question)))[0]
            if e is answer.evidence[0]:  # its own string may be another block's best, too
                assert e.answer == answer.answer and e.p_span <= answer.p * 1.0001
            else:
                assert e.p_span == pytest.approx(float(p[j][best]), rel=1e-4)
        json.dumps(answer.to_dict(), allow_nan=False)


def scored(text, spans, place):
    """An answerer over one document and the log-probabilities [1, t, w] of some of its spans, which a test gives itself."""
    found = open_inputs(corpus_of(place, [("d", "Sky", text)], vocab_size=300), 32)
    offsets = found.store.tokenizer.encode_offsets(text)[1]
    begins, ends = [begin for begin, _ in offsets], [end for _, end in offsets]
    scores = np.full((1, len(offsets), len(offsets)), -np.inf)
    for words, p in spans.items():
        first = begins.index(text.index(words))
        scores[0, first, ends.index(text.index(words) + len(words)) - first] = math.log(p)
    return Answerer(found, None, None, versions={}), scores


def chosen(answerer, scores, asked=None):
    read = ReadBlocks(answerer.inputs)
    best = answerer._best_string(np.array([0]), scores, read, OPEN_QA, asked)
    return best.span.words, round(best.p, 2), answerer._evidence(0, 1.0, scores[0], read, asked).answer


def test_an_answer_closes_what_it_opens(tmp_path):
    """Of spans that open a bracket and do not close it the next best is taken; where there is no other, such a span is."""
    text = "The router is the Sky Hub (a small box) of 2016."
    answerer, scores = scored(text, {"Sky Hub (a small": 0.5, "box) of": 0.3, "Sky Hub": 0.15}, tmp_path)
    assert chosen(answerer, scores) == ("Sky Hub", 0.15, "Sky Hub")
    alone = np.where(scores == scores[scores > -np.inf].min(), -np.inf, scores)
    assert chosen(answerer, alone) == ("Sky Hub (a small", 0.5, "Sky Hub (a small")


def test_the_shown_passage_has_the_p_of_the_answer_however_it_is_spelt(tmp_path):
    answerer, scores = scored("Type stop [NAME] to end it.", {"stop [NAME": 0.8, "stop [NAME]": 0.004}, tmp_path)
    best = answerer._best_string(np.array([0]), scores, ReadBlocks(answerer.inputs), OPEN_QA, None)
    assert (best.span.words, best.p, best.p_span) == ("stop [NAME]", pytest.approx(0.804), pytest.approx(0.8))


def test_readings_of_one_place_do_not_make_each_other_doubtful(tmp_path):
    text = "They meet on the first Tuesday of each month in Hall B."
    answerer, scores = scored(text, {"the first Tuesday": 0.3, "first Tuesday of each month": 0.25, "Hall B": 0.05}, tmp_path)
    best = answerer._best_string(np.array([0]), scores, ReadBlocks(answerer.inputs), OPEN_QA, None)
    assert (best.span.words, best.p, best.pooled) == ("the first Tuesday", pytest.approx(0.3), pytest.approx(pooled(0.3, 0.55, 0.6)))
    for fitted, p in ((Confidence(1.0, 0.0), 0.3), (Confidence(1.0, 0.0, pooled=True), best.pooled)):
        answerer.confidence = fitted
        assert answerer._assemble("Say it", np.array([0]), np.ones(1), scores).confidence == pytest.approx(p)
    scores[scores == scores[scores > -np.inf].min()] = math.log(0.3)
    less = answerer._best_string(np.array([0]), scores, ReadBlocks(answerer.inputs), OPEN_QA, None)
    assert less.pooled == pytest.approx(pooled(0.3, 0.55, 0.85)) and pooled(0.0, 1.0, 0.5) == pytest.approx(0.5)


@pytest.mark.parametrize(("text", "words", "expected"), [
    ("Stop it with --force now.", "force", "--force"),
    ("Ask in #mutt today.", "mutt", "#mutt"),
    ("It is in ~/.paint here.", ".paint", "~/.paint"),
    ("It has -5 degrees.", "5", "-5"),
    ("Of 3-5 days.", "5", "5"),
    ("Well...and then.", "and", "and"),
    ("Buy: milk - bread", "bread", "bread"),
])  # fmt: skip
def test_the_signs_that_open_a_name_are_of_the_answer(text, words, expected, tmp_path):
    answerer, scores = scored(text, {words: 0.9}, tmp_path)
    assert chosen(answerer, scores) == (expected, 0.9, expected)


def test_no_span_goes_on_beyond_a_line_that_ends_something(tmp_path):
    text = "Mayor: Ida Holm\n\nDeputy: Per Lund, who was\nborn in Velm. He sails."
    answerer, scores = scored(text, {}, tmp_path)
    within = within_lines(bodies_of(answerer.inputs, np.array([0])), *scores.shape[1:])[0]
    offsets = answerer.inputs.store.tokenizer.encode_offsets(text)[1]
    for start, width in np.ndindex(*within.shape):
        if start + width < len(offsets):
            assert within[start, width] == ("\n\n" not in text[offsets[start][0] : offsets[start + width][1]])


def test_a_question_of_the_text_does_not_answer_one_that_opens_alike(tmp_path):
    text = "2. What is a lease?\n\nA contract. Shall we meet on Monday? What a day!"
    answerer, scores = scored(text, {}, tmp_path)
    inputs, shape = answerer.inputs, scores.shape[1:]
    bodies, encode = bodies_of(inputs, np.array([0])), inputs.store.tokenizer.encode
    alike = {words: asked_alike(bodies, encode([words]), *shape)[0] for words in ("What is it", "Who is it")}
    begins = [begin for begin, _ in inputs.store.tokenizer.encode_offsets(text)[1]]
    assert [begins[start] for start in np.flatnonzero(alike["What is it"][:, 0])] == [at for at in begins if at < text.index("A contract")]
    assert alike["What is it"][0].all() and not alike["Who is it"].any()


def test_the_likeliest_string_is_that_of_weighing_them_all():
    text, asked, rng = "In 1968 the Apollo crew flew in 3 days from Gary to the Moon.", asked_for("When was it?"), np.random.default_rng(0)
    places = {
        words: TextSpan(text, text.index(words), text.index(words) + len(words)) for words in ("1968", "Apollo", "3 days", "Gary", "Moon")
    }
    for _ in range(50):
        mass = dict(zip(places, (rng.dirichlet(np.ones(5)) ** 3).tolist(), strict=True))
        assert likeliest(places, mass, asked) == max(places, key=lambda key: mass[key] * places[key].weight(asked))
        assert likeliest(places, mass, None) == max(places, key=lambda key: mass[key])


def test_an_answer_is_of_the_kind_that_is_asked_for(tmp_path):
    """A name is no answer to "When", unless it is very much likelier than every date; p stays what the reader says."""
    text = "In 1968 the Apollo crew flew around the Moon with Borman, who came from Gary."
    answerer, scores = scored(text, {"Apollo": 0.6, "1968": 0.1, "Moon": 0.1, "Gary": 0.02}, tmp_path)
    when = asked_for("When did they fly?")
    assert chosen(answerer, scores) == chosen(answerer, scores, asked_for("What flew?")) == ("Apollo", 0.6, "Apollo")
    assert chosen(answerer, scores, when) == ("1968", 0.1, "1968")
    unlikely = np.where(scores == np.sort(scores[0, :, 0])[-2], math.log(0.6 * KIND_MISMATCH_WEIGHT / 2), scores)
    assert (unlikely != scores).sum() == 2, "the year and the Moon"
    assert chosen(answerer, unlikely, when) == ("Apollo", 0.6, "Apollo")


@pytest.mark.parametrize(("text", "whole"), [
    ("", True), ("a (b) [c]", True), ("(b", False), ("b)", False), (")b(", False), ("(a]", False), ("6'2\"", True),
    ("N. Of the three common states", False), ("J. R. R. Tolkien", True), ("Super Bowl Week. San Francisco", False),
    ("in 1871. The", False), ("Dr. John H. Watson", True), ("U.S. Steel", True), ("30.5 m", True),
])  # fmt: skip
def test_an_answer_stays_within_a_sentence_and_closes_its_brackets_in_order(text, whole):
    assert is_whole(text) is whole


def test_a_batch_answers_like_single_questions(inputs, dense, model):
    answerer = Answerer(inputs, dense, model.reading(bf16=False), versions={})
    for question, answer in zip(QUESTIONS * 7, answerer.answer(QUESTIONS * 7, k=2), strict=True):
        alone = answerer.answer([question], k=2)[0]
        assert (alone.answer, [e.block_id for e in alone.evidence]) == (answer.answer, [e.block_id for e in answer.evidence])
        assert alone.p == pytest.approx(answer.p, rel=1e-3)
    assert answerer.answer([]) == []


def test_reading_in_bfloat16_is_reading(inputs, dense, model, monkeypatch):
    """Networks multiply in bfloat16, if the hardware does; scores of spans are float32 and within its rounding."""
    tokens = inputs.store.tokenizer.encode(["What do people pay with?"])
    found = dense.find(["What do people pay with?"], tokens, 3)

    def log_p(bf16):
        return Answerer(inputs, dense, model.reading(bf16=bf16), versions={})._log_p(tokens, found)

    exact, half = log_p(False), log_p(True)
    assert exact.dtype == half.dtype == np.float32
    np.testing.assert_allclose(exact, half, atol=0.1)
    assert np.array_equal(exact, half) is not has_bf16("cpu")
    monkeypatch.setattr("realm.models.bodies.body.has_bf16", lambda device: False)
    assert np.array_equal(exact, log_p(True))


def test_a_reader_that_points_leaves_a_part_of_p_to_not_here(inputs, dense, model):
    """p(y|x) = sum over z of p(z|x) p(y|z,x), against loops; a block that holds nothing takes its share away from the answer."""
    reader = copy.deepcopy(model.reader).eval()
    reader.spec = replace(reader.spec, pointer=True)
    question = QUESTIONS[0]
    tokens = inputs.store.tokenizer.encode([question])
    found = dense.find([question], tokens, 3)
    with torch.inference_mode():
        scores = score_spans(reader, inputs, tokens, found.rows)
    (answer,) = Answerer(inputs, dense, ReadingNetwork(reader), versions={}).answer([question], k=3)
    p_z, mass, left = [math.exp(score) for score in found.scores[0].tolist()], {}, 0.0
    for j, row in enumerate(found.rows[0].tolist()):
        length = len(inputs.store.token_ids(row))
        places = [(t, w) for t in range(length) for w in range(min(reader.max_span, length - t))]
        exps = {place: math.exp(float(scores.logits[0, j, place[0], place[1]])) for place in places}
        everything = math.exp(float(scores.not_here[0, j])) + sum(exps.values())
        left += p_z[j] / sum(p_z) * math.exp(float(scores.not_here[0, j])) / everything
        read = ReadBlocks(inputs)
        for (t, w), e in exps.items():
            span = read.span(row, t, t + w + 1)
            key = normalize_answer(span.text[span.start : span.end])
            mass[key] = mass.get(key, 0.0) + p_z[j] / sum(p_z) * e / everything
    assert sum(mass.values()) + left == pytest.approx(1, rel=1e-4) and left > 0
    assert 0.3 * mass[normalize_answer(answer.answer)] < answer.p <= mass[normalize_answer(answer.answer)] * 1.0001  # of its best spans

    def certain(states):
        logits = Reader.span_logits(reader, states)
        return logits + 20.0 if states.shape[1] == 1 else logits

    reader.span_logits = certain
    (nowhere,) = Answerer(inputs, dense, ReadingNetwork(reader), versions={}).answer([question], k=3)
    assert nowhere.p < 1e-4 and leveled(nowhere, 0.01).abstained and nowhere.answer


@pytest.mark.parametrize("questions", [["zzz"], ["zzz", "Who discovered radium?"], [""]])
def test_nothing_found_is_an_empty_answer(inputs, model, questions):
    answers = Answerer(inputs, Bm25Candidates(inputs, np.arange(len(inputs.store))), model.reading(bf16=False), versions={}).answer(
        questions
    )
    assert (answers[0].answer, answers[0].p, answers[0].evidence) == ("", 0.0, ())
    json.dumps(answers[0].to_dict(), allow_nan=False)
    if len(questions) > 1:
        assert answers[1].answer and answers[1].evidence[0].doc_id == "Curie"
