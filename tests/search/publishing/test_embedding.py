"""Length-sorted embedding gives every row its own vector, within the token budget."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from realm.answering.opening import open_run
from realm.errors import SnapshotError
from realm.search.publishing.embedding import EmbedOptions, embed_corpus, embed_parts, length_batches
from realm.search.publishing.parameters import parameters_path


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 200))
def test_batches_keep_their_bound_and_the_longest_come_first(lengths, budget):
    sizes = np.array(lengths, np.int64)
    batches = list(length_batches(sizes, budget))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * max(1, *sizes[batch]) <= budget for batch in batches)
    longest = [int(sizes[row]) for batch in batches for row in batch]
    assert longest == sorted(longest, reverse=True)


def test_an_embedding_that_is_not_finite_is_refused():
    vectors = SimpleNamespace(lengths=lambda rows: rows + 3, blocks=list, embed_blocks=lambda rows, bf16: np.array([[0.0], [np.nan]]))
    with pytest.raises(SnapshotError, match="row 0 is not finite"):
        embed_corpus(vectors, vectors, np.array([2, 0]))


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
