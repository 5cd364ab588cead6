"""Length-sorted embedding gives every row its own vector, within the token budget."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from realm.answering.opening import open_run
from realm.errors import SnapshotError
from realm.search.publishing.embedding import EmbedOptions, embed_blocks, embed_corpus, embed_parts
from realm.search.publishing.parameters import parameters_path


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_rows_keep_their_order_and_batches_their_bound(lengths, budget, seed):
    sizes = np.array(lengths, np.int64)
    rows, batches, seen = np.random.default_rng(seed).permutation(len(sizes))[: len(sizes) // 2 + 1], [], []

    def embed(batch):
        batches.append(batch)
        return np.array([[row, sizes[row]] for row in batch], np.float64)

    def progress(done, total):
        seen.append((done, total))

    result = embed_blocks(embed, sizes, rows, tokens_per_batch=budget, progress=progress)
    assert result.dtype == np.float32 and len(result) == len(rows)
    if len(rows):
        np.testing.assert_array_equal(result, np.stack([rows, sizes[rows]], 1))
        assert seen[-1] == (len(rows), len(rows))
    assert all(len(batch) == 1 or len(batch) * max(1, *(sizes[row] for row in batch)) <= budget for batch in batches)
    longest = [int(sizes[row]) for batch in batches for row in batch]
    assert longest == sorted(longest, reverse=True)


def test_bad_embeddings_are_refused():
    lengths, rows = np.array([3, 4, 5]), np.array([2, 0])
    with pytest.raises(SnapshotError, match="row 0 is not finite"):
        embed_blocks(lambda batch: np.array([[0.0 if row else np.nan] for row in batch]), lengths, rows)
    with pytest.raises(ValueError, match="for 2 blocks"):
        embed_blocks(lambda batch: np.ones((1, 2)), lengths, rows)
    with pytest.raises(ValueError, match="tokens_per_batch"):
        embed_blocks(lambda batch: np.ones((1, 2)), lengths, rows, tokens_per_batch=0)


@pytest.mark.parametrize("workers", [1, 2])
def test_eight_bits_give_nearly_the_same_vectors(tiny_run, workers, monkeypatch):
    """A build that is taken up again goes on where it was, and several processes give what one gives, but for the batches' rounding."""
    monkeypatch.setattr("realm.search.publishing.embedding.PART_ROWS", 2)
    run = open_run(tiny_run)
    rows = np.arange(len(run.inputs.store))
    params = parameters_path(run.paths, run.generation.snapshot.manifest.params_generation)
    embedder = run.generation.embedder
    exact = embed_corpus(embedder, run.inputs, rows)
    parts = embed_parts(embedder, params, run.inputs, rows, EmbedOptions(workers=workers, threads=1, int8=True), None)
    whole = np.concatenate(list(parts(0)))
    nearness = (whole * exact).sum(1) / np.linalg.norm(whole, axis=1) / np.linalg.norm(exact, axis=1)
    assert nearness.min() > 0.95 and not np.array_equal(whole, exact)
    np.testing.assert_array_equal(np.concatenate(list(parts(4))), whole[4:])
