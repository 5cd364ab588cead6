"""Retrievers to compare with, each against the obvious slow way, and what they refuse."""

import itertools
import math
import zlib
from collections import Counter

import bm25s
import numpy as np
import pytest

from realm.answering.opening import open_run
from realm.errors import MissingExtra
from realm.training.baselines.retrievers import TfIdfCandidates

TEXTS = ["What is the currency of Arvad?", "In which country do people pay with the Osten?", "zzz"]


@pytest.fixture(scope="module")
def inputs(tiny_run):
    return open_run(tiny_run).inputs


@pytest.fixture(scope="module")
def rows(inputs):
    return np.flatnonzero(inputs.store.live)


def check(source, slow, rows, inputs):
    """Scores, order and padding against the score of every block by itself."""
    found = source(TEXTS, inputs.store.tokenizer.encode(TEXTS), 5)
    for i, text in enumerate(TEXTS):
        expected = {int(row): slow(text, int(row)) for row in rows}
        order = [row for row in sorted(expected, key=lambda row: (-expected[row], row)) if expected[row] > 0][:5]
        scores = [float(score) / float(source.scale) for score in found.scores[i, : len(order)]]
        assert scores == pytest.approx([expected[row] for row in order], rel=1e-4)
        assert [expected[int(row)] for row in found.rows[i, : len(order)]] == pytest.approx([expected[row] for row in order], rel=1e-4)
        assert (found.rows[i, len(order) :] == -1).all() and (found.scores[i, len(order) :] == 0).all()
    found.scores.sum().backward()
    assert source.scale.grad is not None and float(source.scale.grad) > 0


def test_tfidf(inputs, rows):
    def terms(text):
        words = bm25s.tokenize([text], stopwords="en", return_ids=False, show_progress=False)[0]
        pairs = [f"{a} {b}" for a, b in itertools.pairwise(words)]
        return Counter(zlib.crc32(term.encode()) % (1 << 24) for term in [*words, *pairs])

    blocks = {int(row): inputs.store.block(int(row)) for row in rows}
    counts = {row: terms(f"{block.title} {block.text}") for row, block in blocks.items()}

    def slow(text, row):
        total = 0.0
        for term, often in terms(text).items():
            df = sum(term in held for held in counts.values())
            idf = max(0.0, math.log((len(rows) - df + 0.5) / (df + 0.5))) if df else 0.0
            total += math.log1p(often) * idf * math.log1p(counts[row][term]) * idf
        return total

    source = TfIdfCandidates(inputs, rows)
    check(source, slow, rows, inputs)
    assert source.index_bytes() > 0


def test_what_is_refused(inputs, rows, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bm25s", None)
    with pytest.raises(MissingExtra, match="a baseline that searches by words needs the extra 'bm25'"):
        TfIdfCandidates(inputs, rows)
