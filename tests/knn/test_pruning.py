"""Smaller datastores keep the pairs that they say, merge only keys of one token, and work like any other."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from realm.errors import ConfigError, SnapshotError
from realm.knn.datastore import Datastore, find_neighbours, merged, prune


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_random(tmp_path, built, networks, dtype):
    source = built("causal", dtype)
    small = prune(source, tmp_path / "a", "random", 0.3, seed=4)
    assert len(small) == round(0.3 * len(source)) and (small.values[:, 1] == 1).all()
    rows = small.snapshot.block_ids
    np.testing.assert_allclose(small.snapshot.vectors, source.snapshot.vectors[rows], atol=0.02)
    np.testing.assert_array_equal(small.tokens, source.tokens[rows])
    assert small.facts.pruned == ({"method": "random", "keep": 0.3, "from": len(source), "seed": 4},)
    np.testing.assert_array_equal(prune(source, tmp_path / "b", "random", 0.3, seed=4).snapshot.block_ids, rows)
    assert (prune(source, tmp_path / "c", "random", 0.3, seed=5).snapshot.block_ids != rows).any()
    assert len(Datastore.open(tmp_path / "a", networks["causal"])) == len(small)


def test_merge(tmp_path, built):
    source = built("causal")
    small = prune(source, tmp_path / "a", "merge", 0.5)
    counts = small.values[:, 1]
    assert counts.sum() == len(source) and len(small) <= len(source) // 2 + 1
    assert set(small.tokens) == set(source.tokens), "no token is lost"
    for token in set(source.tokens.tolist()):
        mine, theirs = small.tokens == token, source.tokens == token
        assert counts[mine].sum() == theirs.sum()
        mean = (small.snapshot.vectors[mine] * counts[mine, None]).sum(0) / theirs.sum()
        np.testing.assert_allclose(mean, source.snapshot.vectors[theirs].mean(0), atol=1e-4)
    found = find_neighbours(small.index(), torch.from_numpy(small.snapshot.vectors[:4].copy()), 2)
    assert found.counts[:, 0].tolist() == counts[:4].tolist() and found.tokens[:, 0].tolist() == small.tokens[:4].tolist()
    twice = prune(small, tmp_path / "b", "merge", 0.5)
    assert twice.values[:, 1].sum() == len(source) and len(twice) < len(small)
    thinned = prune(small, tmp_path / "d", "random", 0.5)
    at = np.searchsorted(small.snapshot.block_ids, thinned.snapshot.block_ids)
    np.testing.assert_array_equal(thinned.values, small.values[at])


@given(st.integers(0, 10**6), st.integers(1, 300))
def test_merged_keys_are_means_of_one_token(seed, wanted):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 300))
    keys, tokens = rng.standard_normal((n, 3)), rng.zipf(1.5, n).clip(max=20)
    rows, means, counts = merged(keys, np.stack([tokens, np.ones_like(tokens)], 1), wanted, seed)
    assert (np.diff(rows) > 0).all() and counts.min() >= 1 and counts.sum() == n
    assert len(rows) <= max(wanted, len(set(tokens.tolist()))) and set(tokens[rows].tolist()) == set(tokens.tolist())
    single = counts == 1
    np.testing.assert_allclose(means[single], keys[rows[single]], atol=1e-6)
    for token in set(tokens.tolist()):
        mine = tokens[rows] == token
        np.testing.assert_allclose((means[mine] * counts[mine, None]).sum(0), keys[tokens == token].sum(0), atol=1e-3)


def test_near_keys_are_the_ones_merged():
    """Four tight bunches of one token, four keys wanted: a key for each bunch."""
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [50, 0], [0, 50], [50, 50]], np.float64)
    keys = np.concatenate([centre + 0.01 * rng.standard_normal((20, 2)) for centre in centres])
    for seed in range(5):
        _, means, counts = merged(keys, np.tile([7, 1], (80, 1)), 8, seed)
        assert np.abs(means[:, None] - centres).sum(2).min(1).max() < 30 and counts.sum() == 80


@pytest.mark.parametrize(
    ("method", "keep", "problem"), [("nonsense", 0.5, "random, merge"), ("random", 0.0, "keep = 0.0"), ("merge", 1.5, "keep = 1.5")]
)
def test_bad_requests(tmp_path, built, method, keep, problem):
    with pytest.raises(ConfigError, match=problem):
        prune(built("causal"), tmp_path / "a", method, keep)
    assert not (tmp_path / "a").exists()


def test_a_directory_is_never_overwritten(tmp_path, built):
    with pytest.raises(SnapshotError, match="exists already"):
        prune(built("causal"), tmp_path, "random", 0.5)
