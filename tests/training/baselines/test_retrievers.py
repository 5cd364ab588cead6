"""BM25 as a row of a comparison: scores, order and padding against each block by itself, and what it refuses."""

import bm25s
import numpy as np
import pytest

from realm.answering.opening import open_run
from realm.errors import MissingExtra
from realm.training.baselines.retrievers import Bm25Candidates

TEXTS = ["What is the currency of Arvad?", "In which country do people pay with the Osten?", "zzz"]


@pytest.fixture(scope="module")
def inputs(tiny_run):
    return open_run(tiny_run).inputs


@pytest.fixture(scope="module")
def rows(inputs):
    return np.flatnonzero(inputs.store.live)


def test_blocks_without_a_word_of_the_question_are_padding(inputs, rows):
    source = Bm25Candidates(inputs, rows)
    found = source(TEXTS, inputs.store.tokenizer.encode(TEXTS), 5)
    for i, text in enumerate(TEXTS):
        words = bm25s.tokenize([text], stopwords="en", return_ids=False, show_progress=False)[0]
        scores = source._index.get_scores(words) if words else np.zeros(len(rows))
        expected = sorted(scores[scores > 0].tolist(), reverse=True)[:5]
        assert found.scores[i, : len(expected)].tolist() == pytest.approx(expected, rel=1e-4)
        assert (found.rows[i, len(expected) :] == -1).all() and (found.scores[i, len(expected) :] == 0).all()
    found.scores.sum().backward()
    assert source.scale.grad is not None and float(source.scale.grad) > 0 and source.index_bytes() > 0


def test_what_is_refused(inputs, rows, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bm25s", None)
    with pytest.raises(MissingExtra, match="a baseline that searches by words needs the extra 'bm25'"):
        Bm25Candidates(inputs, rows)
