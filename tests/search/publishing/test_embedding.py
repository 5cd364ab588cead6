"""Length-sorted embedding gives every row its own vector, within the token budget."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from realm.errors import SnapshotError
from realm.search.publishing.embedding import embed_blocks


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_rows_keep_their_order_and_batches_their_bound(lengths, budget, seed):
    sizes = np.array(lengths, np.int64)
    rows, batches, seen = np.random.default_rng(seed).permutation(len(sizes))[: len(sizes) // 2 + 1], [], []

    def embed(batch):
        batches.append(batch)
        return torch.tensor([[row, sizes[row]] for row in batch], dtype=torch.float64, requires_grad=True)

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
        embed_blocks(lambda batch: torch.tensor([[0.0 if row else torch.nan] for row in batch]), lengths, rows)
    with pytest.raises(ValueError, match="for 2 blocks"):
        embed_blocks(lambda batch: torch.ones(1, 2), lengths, rows)
    with pytest.raises(ValueError, match="tokens_per_batch"):
        embed_blocks(lambda batch: torch.ones(1, 2), lengths, rows, tokens_per_batch=0)
