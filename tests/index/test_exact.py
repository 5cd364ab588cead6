"""Exact means exact: the same ids as float64 brute force, on friendly and hostile inputs."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.errors import SnapshotError
from realm.index import base, exact
from realm.index.exact import ExactIndex
from realm.index.mips import Hits, Metric


def brute_force(
    vectors: np.ndarray,
    ids: np.ndarray,
    queries: np.ndarray,
    k: int,
    live: np.ndarray | None,
    exclude: Sequence[np.ndarray] | None,
    metric: Metric = "ip",
) -> list[list[int]]:
    """The definition: float64 scores, sorted by (-score, id)."""
    result = []
    for i, query in enumerate(queries.astype(np.float64)):
        rows = vectors.astype(np.float64)
        scores = (rows * query).sum(axis=1) if metric == "ip" else -((rows - query) ** 2).sum(axis=1)
        allowed = np.ones(len(ids), bool) if live is None else live.copy()
        if exclude is not None:
            allowed &= ~np.isin(ids, exclude[i])
        order = [row for row in np.lexsort((ids, -scores)) if allowed[row]]
        result.append([int(ids[row]) for row in order[:k]])
    return result


def returned(hits: Hits) -> list[list[int]]:
    assert (hits.ids[~hits.valid] == -1).all() and np.isneginf(hits.scores[~hits.valid]).all()
    assert (np.diff(hits.valid.astype(int), axis=1) <= 0).all(), "valid entries come first"
    return [[int(i) for i in ids[valid]] for ids, valid in zip(hits.ids, hits.valid, strict=True)]


def hostile(name: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    gaussian = rng.standard_normal((n, d)).astype(np.float32)
    if name == "gaussian":
        return gaussian
    if name == "all equal":
        return np.repeat(gaussian[:1], n, 0)
    if name == "near ties":
        return np.float32(1) + gaussian * np.float32(2e-7)
    if name == "duplicates":
        return gaussian[rng.integers(0, 7, n)]
    if name == "one huge row":
        gaussian[n // 2] *= 1e30
        return gaussian
    if name == "float32 overflow":
        return (gaussian * np.float32(5e37)).clip(-3e38, 3e38)
    if name == "denormals":
        return gaussian * np.float32(1e-41)
    assert name == "zeros"
    return np.zeros((n, d), np.float32)


NAMES = ["gaussian", "all equal", "near ties", "duplicates", "one huge row", "float32 overflow", "denormals", "zeros"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("entries", [1 << 22, 350], ids=["one block", "many blocks"])
def test_equals_brute_force(name: str, metric: Metric, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "SCORE_ENTRIES", entries)
    rng = np.random.default_rng(NAMES.index(name))
    n, d, b = 701, 24, 6
    vectors, ids = hostile(name, n, d, rng), np.sort(rng.choice(10**12, n, replace=False)).astype(np.int64)
    queries = np.concatenate([rng.standard_normal((b - 2, d)), np.zeros((1, d)), rng.standard_normal((1, d)) * 1e3]).astype(np.float32)
    live = rng.random(n) < 0.8
    exclude = [rng.choice(ids, size, replace=False) for size in (0, 1, 50, 300, 5, 690)]
    exclude[1] = np.concatenate([exclude[1], exclude[1], [-1, 5, 2**62]])  # repeated and unknown ids
    queries[0] = vectors[3]  # at distance 0
    index = ExactIndex(vectors, ids, live, metric=metric)
    for k in (1, 5, 8, 600, 2000):
        hits = index.search(torch.from_numpy(queries), k, exclude)
        assert hits.ids.shape == hits.scores.shape == hits.valid.shape == (b, k)
        assert returned(hits) == brute_force(vectors, ids, queries, k, live, exclude, metric)
        assert np.isfinite(hits.scores[hits.valid]).all()


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 40), st.integers(1, 40), st.integers(0, 45), st.integers(0, 5), st.integers(0, 2**32 - 1), st.sampled_from(["ip", "l2"])
)
def test_exactly_the_promised_number_of_distinct_live_ids(n: int, d: int, k: int, b: int, seed: int, metric: Metric) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-1, 2, (n, d)).astype(np.float32)  # small integers: plenty of exact ties
    ids = np.cumsum(rng.integers(1, 5, n)).astype(np.int64)
    live = rng.random(n) < rng.random()
    exclude = [rng.integers(0, 120, rng.integers(0, 60)).astype(np.int64) for _ in range(b)]
    queries = rng.integers(-1, 2, (b, d)).astype(np.float32)
    hits = ExactIndex(vectors, ids, live, metric=metric).search(torch.from_numpy(queries), k, exclude)
    for i, found in enumerate(returned(hits)):
        assert len(found) == len(set(found)) == min(k, int((live & ~np.isin(ids, exclude[i])).sum()))
    assert returned(hits) == brute_force(vectors, ids, queries, k, live, exclude, metric)


@pytest.mark.parametrize("name", ["gaussian", "near ties", "duplicates"])
def test_ids_and_scores_do_not_depend_on_the_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    vectors, ids = hostile(name, 3000, 128, rng), np.arange(3000, dtype=np.int64)
    queries = torch.from_numpy(rng.standard_normal((33, 128)).astype(np.float32))
    index = ExactIndex(vectors, ids)
    together = index.search(queries, 10)
    monkeypatch.setattr(base, "QUERY_CHUNK", 5)
    monkeypatch.setattr(exact, "SCORE_ENTRIES", 1000)
    for i in range(len(queries)):
        alone = index.search(queries[i : i + 1], 10)
        np.testing.assert_array_equal(alone.ids[0], together.ids[i])
        np.testing.assert_array_equal(alone.scores[0], together.scores[i])
    split = index.search(queries, 10)
    np.testing.assert_array_equal(split.ids, together.ids)
    np.testing.assert_array_equal(split.scores, together.scores)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_mixed_precision_around_the_search_changes_nothing(precision: str) -> None:
    rng = np.random.default_rng(4)
    vectors, ids = rng.standard_normal((2000, 64)).astype(np.float32), np.arange(2000, dtype=np.int64)
    queries = torch.from_numpy(rng.standard_normal((16, 64)).astype(np.float32))
    index = ExactIndex(vectors, ids)
    expected = index.search(queries, 8)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        with torch.autocast("cpu", torch.bfloat16):
            hits = index.search(queries, 8)
    finally:
        torch.set_float32_matmul_precision(before)
    np.testing.assert_array_equal(hits.ids, expected.ids)


def test_tombstones_and_exclusion_of_everything() -> None:
    rng = np.random.default_rng(5)
    vectors, ids = rng.standard_normal((50, 8)).astype(np.float32), np.arange(100, 150, dtype=np.int64)
    queries = torch.from_numpy(rng.standard_normal((2, 8)).astype(np.float32))
    index = ExactIndex(vectors, ids)
    live = ids % 2 == 0
    index.set_live(live)
    hits = index.search(queries, 50)
    assert hits.valid.sum(1).tolist() == [25, 25] and (hits.ids[hits.valid] % 2 == 0).all()
    assert returned(index.search(queries, 3, [ids, np.zeros(0, np.int64)]))[0] == []
    index.set_live(np.zeros(50, bool))
    assert not index.search(queries, 3).valid.any()
    index.set_live(None)
    assert index.search(queries, 50).valid.all()


def test_empty_index_empty_batch_and_k_zero() -> None:
    empty = ExactIndex(np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    assert len(empty) == 0 and empty.dim == 4
    hits = empty.search(torch.ones(2, 4), 3, [np.array([1]), np.array([2])])
    assert hits.ids.tolist() == [[-1] * 3] * 2 and not hits.valid.any()
    one = ExactIndex(np.ones((1, 4), np.float32), np.zeros(1, np.int64))
    assert one.search(torch.ones(0, 4), 3).ids.shape == (0, 3)
    assert one.search(torch.ones(2, 4), 0).ids.shape == (2, 0)


@pytest.mark.parametrize(
    ("vectors", "ids", "live", "match"),
    [
        (np.array([[1.0, np.nan]], np.float32), [3], None, "vector 0 .*not finite"),
        (np.array([[1.0, 1.0], [np.inf, 0]], np.float32), [3, 4], None, "vector 1 .*not finite"),
        (np.array([[1.0, 1.0], [1e300, 0]]), [3, 4], None, "vector 1 .*not finite"),
        (np.ones((2, 2), np.int32), [3, 4], None, "floating point"),
        (np.ones(2, np.float32), [3, 4], None, r"\[n,d\]"),
        (np.ones((2, 0), np.float32), [3, 4], None, r"\[n,d\]"),
        (np.ones((2, 2), np.float32), [3], None, r"int64 \[2\]"),
        (np.ones((2, 2), np.float32), [4, 4], None, "ascending"),
        (np.ones((2, 2), np.float32), [-1, 4], None, "non-negative"),
        (np.ones((2, 2), np.float32), [3, 4], [True], r"bool \[2\]"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_bad_input_is_refused_at_build(vectors: np.ndarray, ids: list[int], live: list[bool] | None, match: str) -> None:
    with pytest.raises(SnapshotError, match=match):
        ExactIndex(vectors, np.array(ids, np.int64), None if live is None else np.array(live))


def test_bad_queries_are_refused() -> None:
    index = ExactIndex(torch.ones(3, 4, dtype=torch.bfloat16), np.arange(3, dtype=np.int64))
    with pytest.raises(ValueError, match=r"\[b,4\]"):
        index.search(torch.ones(2, 5), 1)
    with pytest.raises(ValueError, match="floating point"):
        index.search(torch.ones(2, 4, dtype=torch.int64), 1)
    with pytest.raises(ValueError, match=r"query 1 .*not finite"):
        index.search(torch.tensor([[0.0] * 4, [0, torch.nan, 0, 0]]), 1)
    with pytest.raises(ValueError, match="k must be"):
        index.search(torch.ones(2, 4), -1)
    with pytest.raises(ValueError, match="1 exclusion lists for 2 queries"):
        index.search(torch.ones(2, 4), 1, [np.zeros(0, np.int64)])


def test_read_only_vectors_are_kept_without_a_copy() -> None:
    vectors = np.ones((3, 4), np.float32)
    vectors.flags.writeable = False
    index = ExactIndex(vectors, np.arange(3, dtype=np.int64))
    assert index._vectors.data_ptr() == vectors.ctypes.data
