"""Length-sorted embedding gives every row its own vector, within the token budget."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from realm.answering.opening import open_run
from realm.errors import SnapshotError
from realm.search.publishing.embedding import EmbedOptions, embed_corpus, embed_parts
from realm.search.publishing.parameters import parameters_path


class Counting:
    """Blocks of given lengths, and an embedder that gives of each its row and length, or is not finite at a row."""

    def __init__(self, sizes, not_finite=-1):
        self.sizes, self.not_finite, self.batches = np.array(sizes, np.int64), not_finite, []

        self.lengths, self.blocks = self.sizes.__getitem__, list

    def embed_blocks(self, rows, bf16):
        self.batches.append(rows)
        return np.array([[np.nan if row == self.not_finite else row, self.sizes[row]] for row in rows], np.float64)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_rows_keep_their_order_and_batches_their_bound(lengths, budget, seed):
    blocks, seen = Counting(lengths), []
    rows = np.random.default_rng(seed).permutation(len(lengths))[: len(lengths) // 2 + 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("realm.search.publishing.embedding.TOKENS_PER_BATCH", budget)
        result = embed_corpus(blocks, blocks, rows, lambda done, total: seen.append((done, total)))
    assert result.dtype == np.float32 and len(result) == len(rows)
    assert not len(rows) or seen[-1] == (len(rows), len(rows))
    np.testing.assert_array_equal(result.ravel(), np.stack([rows, blocks.sizes[rows]], 1).ravel())
    assert all(len(batch) == 1 or len(batch) * max(1, *blocks.sizes[batch]) <= budget for batch in blocks.batches)
    longest = [int(blocks.sizes[row]) for batch in blocks.batches for row in batch]
    assert longest == sorted(longest, reverse=True)


def test_an_embedding_that_is_not_finite_is_refused():
    with pytest.raises(SnapshotError, match="row 0 is not finite"):
        embed_corpus(blocks := Counting([3, 4, 5], not_finite=0), blocks, np.array([2, 0]))


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
