"""The exact index: its results depend on nothing but vectors and queries. What all kinds promise is in test_choice.py."""

import numpy as np
import pytest
import torch

from realm.search.index import base, exact
from realm.search.index.exact import ExactIndex


def near_ties(n, d, rng):
    return (1 + rng.standard_normal((n, d)) * 2e-7).astype(np.float32)


def duplicates(n, d, rng):
    return rng.standard_normal((7, d)).astype(np.float32)[rng.integers(0, 7, n)]


@pytest.mark.parametrize("make", [near_ties, duplicates])
@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_nothing_depends_on_batch_and_block_sizes(make, metric, monkeypatch):
    rng = np.random.default_rng(3)
    vectors, ids, live = make(3000, 128, rng), np.arange(3000, dtype=np.int64), rng.random(3000) < 0.9
    queries = torch.from_numpy(rng.standard_normal((33, 128)).astype(np.float32))
    exclude = [rng.integers(0, 3000, 40) for _ in range(33)]
    index = ExactIndex(vectors, ids, live, metric=metric)
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
    queries = torch.from_numpy(rng.standard_normal((16, 64)).astype(np.float32))
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
    assert ExactIndex(vectors, np.arange(3, dtype=np.int64))._vectors.data_ptr() == vectors.ctypes.data
