"""The exact index: its results depend on nothing but vectors and queries. What all kinds promise is in test_choice.py."""

import numpy as np
import pytest
import torch
from hostile_vectors import hostile

from realm.search.index import base, exact, listing
from realm.search.index.choice import make_index
from realm.search.index.exact import CompressedIndex, ExactIndex
from realm.search.index.listing import CodeScan, round_down
from realm.search.index.mips import recall_against


@pytest.mark.parametrize("name", ["near ties", "duplicates"])
@pytest.mark.parametrize("kind", ["exact", "compressed"])
@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_nothing_depends_on_batch_and_block_sizes(name, kind, metric, monkeypatch):
    rng = np.random.default_rng(3)
    vectors, ids, live = hostile(name, 3000, 128, rng), np.arange(3000, dtype=np.int64), rng.random(3000) < 0.9
    queries = rng.standard_normal((33, 128)).astype(np.float32)
    exclude = [rng.integers(0, 3000, 40) for _ in range(33)]
    index = make_index(vectors, ids, live, kind=kind, metric=metric)
    together = index.search(queries, 10, exclude)
    monkeypatch.setattr(base, "QUERY_CHUNK", 5)
    monkeypatch.setattr(exact, "SCORE_ENTRIES", 1000)
    monkeypatch.setattr(base, "RESCORE_ENTRIES", 1000)
    for i in range(len(queries)):
        alone = index.search(queries[i : i + 1], 10, exclude[i : i + 1])
        np.testing.assert_array_equal(alone.ids[0], together.ids[i])
        np.testing.assert_array_equal(alone.scores[0], together.scores[i])
    split = index.search(queries, 10, exclude)
    np.testing.assert_array_equal(split.ids, together.ids)
    np.testing.assert_array_equal(split.scores, together.scores)


@pytest.mark.parametrize("precision", ["high", "medium"])
@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_mixed_precision_around_the_search_changes_nothing(precision, metric):
    rng = np.random.default_rng(4)
    vectors, ids = rng.standard_normal((2000, 64)).astype(np.float32), np.arange(2000, dtype=np.int64)
    queries = rng.standard_normal((16, 64)).astype(np.float32)
    index = ExactIndex(vectors, ids, metric=metric)
    expected, before = index.search(queries, 8), torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        with torch.autocast("cpu", torch.bfloat16):
            hits = index.search(queries, 8)
    finally:
        torch.set_float32_matmul_precision(before)
    np.testing.assert_array_equal(hits.ids, expected.ids)


def test_read_only_vectors_are_kept_without_a_copy():
    vectors = np.ones((3, 4), np.float32)
    vectors.flags.writeable = False
    assert ExactIndex(vectors, np.arange(3, dtype=np.int64))._vectors.ctypes.data == vectors.ctypes.data


SCANS = ["scalar", "avx2", "avx512-vnni"]
METRICS = ["ip", "l2"]
NAMES = ["gaussian", "sorted", "all equal", "near ties", "duplicates", "one huge row", "overflow", "denormals", "zeros", "huge component"]


def queries_of(b, d, rng):
    queries = rng.standard_normal((b, d)).astype(np.float32)
    if b > 2:
        queries[0] = 0
        queries[-1] *= 1e3
    return queries


def assert_equal(found, wanted):
    assert (found.ids == wanted.ids).all()
    assert (found.scores.view(np.int32) == wanted.scores.view(np.int32)).all()
    assert (found.valid == wanted.valid).all()


@pytest.fixture
def open_by(kernel):
    """Name of SCANS -> CompressedIndex that uses it."""

    def opener(scan):
        at_level = kernel(scan)
        return lambda *args, **kwargs: CompressedIndex(*args, kernel=at_level, **kwargs)

    return opener


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", NAMES)
def test_equals_exact_search(open_by, scan, metric, name):
    rng = np.random.default_rng(NAMES.index(name))
    n, d, b = 701, 13, 6
    vectors, ids = hostile(name, n, d, rng), np.sort(rng.choice(10**12, n, replace=False)).astype(np.int64)
    queries, live = queries_of(b, d, rng), rng.random(n) < 0.8
    exclude = [rng.choice(ids, size, replace=False) for size in (0, 1, 50, 300, 5, 701)]
    exclude[1] = np.concatenate([exclude[1], exclude[1], [-1, 5, 2**62]])  # repeated and unknown ids
    exact = ExactIndex(vectors, ids, live, metric=metric)
    index = open_by(scan)(vectors, ids, live, metric=metric)
    for k in (0, 1, 8, 600, 2000):
        assert_equal(index.search(queries, k), exact.search(queries, k))
        assert_equal(index.search(queries, k, exclude), exact.search(queries, k, exclude))


@pytest.mark.parametrize("scan", SCANS)
def test_few_rows_are_listed_where_rows_differ_and_all_are_scanned_where_they_tie(open_by, scan, monkeypatch):
    rng = np.random.default_rng(1)
    vectors, ids, queries = hostile("gaussian", 20_000, 32, rng), np.arange(20_000), queries_of(7, 32, rng)[1:]
    index = open_by(scan)(vectors, ids)
    index.search(queries, 8)
    assert len(index.listed) == 6 and index.listed.min() >= 0 and 8 <= index.listed.mean() < 400
    monkeypatch.setattr(listing, "USUAL_LISTED", 500)
    vectors[:] = vectors[0]
    index, exact = open_by(scan)(vectors, ids), ExactIndex(vectors, ids)
    assert_equal(index.search(queries, 8), exact.search(queries, 8))
    assert (index.listed == [-1] * 6).all()
    excluded = [ids[:-9]] * 6
    assert_equal(index.search(queries, 8, excluded), exact.search(queries, 8, excluded))


@pytest.mark.parametrize("scan", SCANS)
def test_more_rows_than_usual_are_listed_by_a_second_look(open_by, scan, monkeypatch):
    """600 equal rows: more than 5 k, fewer than 6 k and one in 64 of all."""
    monkeypatch.setattr(listing, "USUAL_LISTED", 0)
    rng = np.random.default_rng(6)
    vectors, ids = hostile("gaussian", 20_000, 16, rng), np.arange(20_000)
    queries = vectors[:3].copy()
    vectors[rng.choice(20_000, 600, replace=False)] = vectors[0] * 9
    index = open_by(scan)(vectors, ids)
    assert_equal(index.search(queries, 100), ExactIndex(vectors, ids).search(queries, 100))
    assert index.listed[index.listed >= 0].mean() >= 600 / 3


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("scan", SCANS)
def test_a_sample_of_the_groups_says_what_is_listed(open_by, scan, metric, monkeypatch):
    """As in an index of many groups; sorted rows are where a sample misleads."""
    monkeypatch.setattr(listing, "MIN_SAMPLE_GROUPS", 8)
    rng = np.random.default_rng(7)
    for name in ("gaussian", "sorted", "duplicates"):
        vectors, ids, queries = hostile(name, 10_000, 8, rng), np.arange(10_000) * 3, queries_of(70, 8, rng)
        exact, index = ExactIndex(vectors, ids, metric=metric), open_by(scan)(vectors, ids, metric=metric)
        for k in (1, 8, 900, 10_000):
            assert_equal(index.search(queries, k), exact.search(queries, k))
        excluded = list(exact.search(queries, 300).ids)
        assert_equal(index.search(queries, 8, excluded), exact.search(queries, 8, excluded))


@pytest.mark.parametrize("guess", [-1e9, 0.0, 20.0, 30.0, 1e9])
def test_a_wrong_guess_of_the_kernel_costs_time_but_no_rows(kernel, guess, monkeypatch):
    rng = np.random.default_rng(8)
    vectors, ids, queries = hostile("gaussian", 3000, 16, rng), np.arange(3000), queries_of(6, 16, rng)
    right = CodeScan.thresholds

    def wrong(scan, prepared, bounds, stride, rank, sure):
        found = right(scan, prepared, bounds, stride, rank, sure)
        return found if sure else np.where(np.arange(len(bounds)) % 2, found, np.float32(guess))

    monkeypatch.setattr(CodeScan, "thresholds", wrong)
    assert_equal(CompressedIndex(vectors, ids, kernel=kernel("scalar")).search(queries, 9), ExactIndex(vectors, ids).search(queries, 9))


def test_recall_counts_what_was_missed():
    vectors, ids = np.eye(8, dtype=np.float32), np.arange(8, dtype=np.int64)
    queries, exact = np.array([[8.0, 7, 6, 5, 4, 3, 2, 1]]), ExactIndex(vectors, ids)
    blind = ExactIndex(vectors, ids, ids != 1)  # misses the second best row
    assert recall_against(exact, exact, queries, (1, 2, 5)) == {1: 1.0, 2: 1.0, 5: 1.0}
    assert recall_against(exact, blind, queries, (1, 2, 5)) == {1: 1.0, 2: 0.5, 5: 0.8}
    assert recall_against(exact, blind, queries, (1, 2), [np.array([1])]) == {1: 1.0, 2: 1.0}
    assert recall_against(exact, blind, queries, (8, 100), [np.array([0, 2, 3, 4])]) == {8: 0.75, 100: 0.75}
    assert recall_against(exact, blind, queries, (3,), [ids]) == {3: 1.0}
    assert recall_against(exact, blind, queries[:0], (3,)) == {3: 1.0}


def test_rounding_down_never_rounds_up():
    values = np.array([0.1, -0.1, 1e30, -1e30, -np.inf, 0.0])
    rounded = round_down(values)
    assert rounded.dtype == np.float32 and (rounded <= values).all() and np.isneginf(rounded[4])
