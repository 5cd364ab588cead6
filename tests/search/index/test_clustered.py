"""The serving index: its recall is what it says, and it gives way to exact search. What all kinds promise is in test_choice.py."""

import logging

import numpy as np
import pytest

from realm.search.index import clustered
from realm.search.index.clustered import RECALL_DEPTH, ClusteredIndex
from realm.search.index.exact import ExactIndex

pytest.importorskip("faiss")
N, D = 3000, 24


@pytest.fixture(autouse=True)
def small_is_enough(monkeypatch):
    monkeypatch.setattr(clustered, "MIN_ROWS", 500)


def clustered_rows(n=N, d=D, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((40, d))[rng.integers(0, 40, n)] + 0.2 * rng.standard_normal((n, d))).astype(np.float32)


def queries_of(rows, count=20):
    rng = np.random.default_rng(1)
    return (rows[rng.integers(0, len(rows), count)] + 0.1 * rng.standard_normal((count, rows.shape[1]))).astype(np.float32)


def recall(found, truth):
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.ids, truth.ids, strict=True)]))


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_finds_what_exact_search_finds(metric):
    rows, ids = clustered_rows(), np.arange(N) * 3
    index, exact = ClusteredIndex(rows, ids, metric=metric, values=ids % 7), ExactIndex(rows, ids, metric=metric, values=ids % 7)
    queries, info = queries_of(rows), index.info()
    assert index.approximate and info["recall"] >= info["floor"] == clustered.RECALL_FLOOR and info["seen"] < N / 2
    for k in (1, RECALL_DEPTH, 50):
        found, truth = index.search(queries, k), exact.search(queries, k)
        assert recall(found, truth) > 0.95
        assert found.valid.all() and (np.diff(found.scores, axis=1) <= 0).all()
        assert (found.values == found.ids % 7).all()
        every = exact.search(queries, N)
        for i in range(len(queries)):  # scores do not depend on the kind of index
            score = dict(zip(every.ids[i], every.scores[i], strict=True))
            assert [score[one] for one in found.ids[i]] == found.scores[i].tolist()


def test_a_missed_floor_means_exact_search(caplog):
    rows = np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float32)  # nothing to cluster
    with caplog.at_level(logging.WARNING, "realm.search.index.clustered"):
        index = ClusteredIndex(rows, np.arange(2000), floor=1.0)
    assert not index.approximate and index.info()["seen"] == 2000
    assert "searches are exact" in caplog.text
    queries = rows[:5] + 1
    found, truth = index.search(queries, 10), ExactIndex(rows, np.arange(2000)).search(queries, 10)
    assert (found.ids == truth.ids).all() and (found.scores == truth.scores).all()


def test_measures_with_the_queries_it_is_given():
    rows = clustered_rows()
    unlike = np.random.default_rng(3).standard_normal((40, D)).astype(np.float32) * 100
    near, far = (ClusteredIndex(rows, np.arange(N), sample=sample).info()["seen"] for sample in (queries_of(rows, 60), unlike))
    assert near < far


def test_refuses():
    rows, ids = clustered_rows(), np.arange(N)
    with pytest.raises(ValueError, match="floor of the recall"):
        ClusteredIndex(rows, ids, floor=1.5)
    with pytest.raises(ValueError, match="queries must be"):
        ClusteredIndex(rows, ids, sample=np.zeros((4, D + 1)))
    with pytest.raises(ValueError, match="at least two sample queries"):
        ClusteredIndex(rows, ids, sample=np.zeros((1, D)))
