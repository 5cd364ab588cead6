"""A reader scores exactly the spans of the body, and candidates like single inputs."""

import numpy as np
import pytest
import torch

from realm.answering.pointing import read_candidates
from realm.models.bodies.body import has_bf16, multiplying, rounded_once
from realm.models.reader import Reader
from realm.models.spec import ReaderSpec
from realm.models.types import Sequence


def naive_spans(reader, sequence, start):
    """(first, last) body wordpieces -> score, by one loop over all spans of one input."""
    from realm.models.bodies.body import pad_batch

    projected, width = reader.dense(reader.body(pad_batch([sequence], 0))[0]), max(1, reader.span_hidden)
    begin, finish = projected[:, :width], projected[:, width:]
    body, scores = range(start, len(sequence) - 1), {}
    for first in body:
        for last in range(first, min(first + reader.max_span, body.stop)):
            added = begin[first] + finish[last]
            scored = reader.score(reader.norm(torch.relu(added))) if reader.span_hidden else added
            scores[first - start, last - start] = scored.item()
    return scores


def as_dict(scores, row):
    """The valid spans of one row as (first, last) -> score."""
    return {(t, t + w): scores.logits[(*row, t, w)].item() for t, w in scores.valid[row].nonzero().tolist()}


@pytest.mark.parametrize("added", [False, True], ids=["ORQA's head", "start and end"])
def test_reader_scores_exactly_the_spans_of_the_body(any_spec, make_model, ragged, buckets, added):
    reader = make_model(any_spec, "reader").reader
    assert reader is not None and reader.norm.eps == 1e-3
    if added:
        reader = Reader(reader.body, ReaderSpec(reader.body.spec, span_hidden=0, max_span=4)).eval()
        assert sum(parameter.numel() for parameter in reader.parameters()) == sum(p.numel() for p in reader.body.parameters()) + 2 * (
            reader.body.spec.hidden + 1
        )
    sequences, starts = ragged(7, 6, 40), [2, 3, 4, 5, 3, 2, 4]
    scores = reader(sequences, starts)
    longest = max(len(s) - start - 1 for s, start in zip(sequences, starts, strict=True))
    assert scores.logits.shape == scores.valid.shape == (7, longest, reader.max_span)
    for i, (sequence, start) in enumerate(zip(sequences, starts, strict=True)):
        expected, found = naive_spans(reader, sequence, start), as_dict(scores, (i,))
        assert found.keys() == expected.keys()
        assert [found[k] for k in expected] == pytest.approx(list(expected.values()), rel=1e-3, abs=1e-4)


class Inputs:
    """Stands for BlockInputs: row r has the body 10, 11, ... of r + 2 wordpieces."""

    class featurizer:
        @staticmethod
        def body_start(question):
            return len(question) + 2

    def joint(self, question, row):
        body = list(range(10, 12 + row))
        return Sequence([2, *question, 3, *body, 3], [0] * (len(question) + 2) + [1] * (len(body) + 1))


def test_candidates_are_scored_like_single_inputs_plus_their_relevance(bert, make_model, buckets):
    reader, inputs = make_model(bert, "reader").reader, Inputs()
    questions, rows = [[5, 6], [7, 8, 9, 5], [6]], np.array([[3, 0, -1], [7, 7, 2], [-1, -1, -1]])
    relevance = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
    scores = read_candidates(reader, inputs, questions, rows, relevance)
    assert scores.logits.shape == (3, 3, 9, reader.max_span)
    for i, j in np.ndindex(3, 3):
        found = as_dict(scores, (i, j))
        if rows[i, j] < 0:
            assert not found
            continue
        expected = naive_spans(reader, inputs.joint(questions[i], rows[i, j]), len(questions[i]) + 2)
        assert found.keys() == expected.keys()
        values = [v + relevance[i, j].item() for v in expected.values()]
        assert [found[k] for k in expected] == pytest.approx(values, rel=1e-3, abs=1e-4)
    scores.logits[scores.valid].sum().backward()
    assert ((relevance.grad != 0).numpy() == (rows >= 0)).all()
    assert relevance.grad[0, 1].item() == pytest.approx(int(scores.valid[0, 1].sum()))


def test_a_renaming_holds_for_a_question_and_all_its_candidates(bert, make_model):
    reader, inputs = make_model(bert, "reader").reader, Inputs()
    assert reader is not None
    renamed = np.arange(100)
    renamed[[5, 6, 10, 11]] = [6, 10, 11, 5]

    class Renamed(Inputs):
        def joint(self, question, row):
            sequence = super().joint(question, row)
            return Sequence(renamed[sequence.ids].tolist(), sequence.segments)

    questions, rows, relevance = [[5, 6], [5, 8]], np.array([[3, 0], [3, 0]]), torch.zeros(2, 2)
    scores = read_candidates(reader, inputs, questions, rows, relevance, renamings=[renamed, None])
    for i, source in enumerate((Renamed(), inputs)):
        expected = read_candidates(reader, source, questions, rows, relevance)
        torch.testing.assert_close(scores.logits[i], expected.logits[i], rtol=1e-4, atol=1e-5)
        other = read_candidates(reader, (inputs, Renamed())[i], questions, rows, relevance)
        assert not torch.allclose(scores.logits[i], other.logits[i], rtol=1e-4, atol=1e-5)


def test_no_candidate_at_all_is_no_span(bert, make_model):
    reader = make_model(bert, "reader").reader
    assert reader is not None
    scores = read_candidates(reader, Inputs(), [[5]], np.array([[-1, -1]]), torch.zeros(1, 2))
    assert scores.logits.shape[:2] == (1, 2) and not scores.valid.any()


@pytest.mark.skipif(not has_bf16("cpu"), reason="no bfloat16 in hardware")
def test_weights_that_stay_rounded_read_the_same(bert, make_model, ragged):
    reader = make_model(bert, "reader").reader
    reader.eval()
    rounded, sequences, starts = rounded_once(reader, "cpu"), ragged(9), [2] * 9
    with torch.no_grad(), multiplying("cpu", bf16=True):
        plain, kept = reader(sequences, starts), rounded(sequences, starts)
    assert torch.equal(plain.logits, kept.logits) and torch.equal(plain.not_here, kept.not_here)
    assert rounded.dense.weight.dtype == torch.bfloat16 and reader.dense.weight.dtype == torch.float32
    assert rounded.norm.weight is reader.norm.weight, "what is not rounded is shared"


def test_spans_scored_in_parts_are_those_of_the_whole(bert, make_model, ragged, monkeypatch):
    reader, sequences, starts = make_model(bert, "reader").reader, ragged(9), [1] * 9
    learning = reader(sequences, starts)
    for entries in (1, 40 * 4 * 12 * 4, 1 << 30):
        monkeypatch.setattr("realm.models.reader.CPU_SPAN_COMPONENTS", entries)
        with torch.no_grad():
            found = reader(sequences, starts)
        torch.testing.assert_close(found.logits, learning.logits)
        torch.testing.assert_close(found.not_here, learning.not_here)
