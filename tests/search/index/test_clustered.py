"""The serving index: what it returns is scored exactly and never hidden, its recall is what it says, and it gives way to exact search."""

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


def test_seeing_every_row_is_exact_search(monkeypatch):
    rows = clustered_rows()
    index, exact = ClusteredIndex(rows, np.arange(N)), ExactIndex(rows, np.arange(N))
    monkeypatch.setattr(clustered, "MIN_SCANNED_PER_RESULT", N)
    found, truth = index.search(queries_of(rows), 30), exact.search(queries_of(rows), 30)
    assert index.approximate
    assert (found.ids == truth.ids).all() and (found.scores == truth.scores).all()


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
    assert (
        ClusteredIndex(rows, np.arange(N), sample=queries_of(rows, 60)).info()["seen"]
        < ClusteredIndex(rows, np.arange(N), sample=unlike).info()["seen"]
    )


def test_nothing_hidden_is_found_and_nothing_is_missing():
    rows, rng = clustered_rows(), np.random.default_rng(2)
    live = rng.random(N) < 0.5
    index, queries = ClusteredIndex(rows, np.arange(N), live), queries_of(rows, 6)
    excluded = [np.concatenate([row[row >= 0], [N + 5, -7]]) for row in index.search(queries, 300).ids]
    found = index.search(queries, RECALL_DEPTH, excluded)
    assert found.valid.all() and live[found.ids].all()
    assert all(len(set(row)) == RECALL_DEPTH and not set(row) & set(hidden) for row, hidden in zip(found.ids, excluded, strict=True))
    index.set_live(None)
    assert not live[index.search(queries, 300).ids].all()


def test_as_many_as_there_are():
    rows = clustered_rows()
    index, queries = ClusteredIndex(rows, np.arange(N)), queries_of(rows, 3)
    left = np.array([5, 1700, 2999])
    hits = index.search(queries, 8, [np.setdiff1d(np.arange(N), left), np.arange(N), np.zeros(0, np.int64)])
    assert set(hits.ids[0][hits.valid[0]]) == set(left) and not hits.valid[1].any() and hits.valid[2].all()
    live = np.zeros(N, bool)
    live[left] = True
    index.set_live(live)
    hits = index.search(queries, 8)
    assert hits.valid.sum(axis=1).tolist() == [3, 3, 3] and set(hits.ids[0][:3]) == set(left)
    index.set_live(None)
    assert index.search(queries, N + 10).valid.sum(axis=1).tolist() == [N] * 3
    assert index.search(queries, 0).ids.shape == (3, 0) and index.search(queries[:0], 4).ids.shape == (0, 4)


@pytest.mark.parametrize("what", ["all equal", "zeros", "one huge row", "overflow"])
def test_hostile_rows(what):
    rows = clustered_rows(1000)
    if what in ("all equal", "zeros"):
        rows[:] = rows[0] * (what != "zeros")
    else:
        rows[500] *= 1e10 if what == "one huge row" else 1e37
    index = ClusteredIndex(rows, np.arange(1000))
    hits = index.search(queries_of(rows, 4), 5)
    truth = ExactIndex(rows, np.arange(1000)).search(queries_of(rows, 4), 5)
    assert hits.valid.all() and np.isfinite(hits.scores).all()
    if what != "one huge row" or not index.approximate:
        assert (hits.scores == truth.scores).all()
    assert all(len(set(row)) == 5 for row in hits.ids)


def test_refuses():
    rows, ids = clustered_rows(), np.arange(N)
    with pytest.raises(ValueError, match="floor of the recall"):
        ClusteredIndex(rows, ids, floor=1.5)
    with pytest.raises(ValueError, match="queries must be"):
        ClusteredIndex(rows, ids, sample=np.zeros((4, D + 1)))
    with pytest.raises(ValueError, match="at least two sample queries"):
        ClusteredIndex(rows, ids, sample=np.zeros((1, D)))
