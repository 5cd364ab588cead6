"""The retriever's promises: k candidates, null first, nothing excluded, nothing twice, nothing put back."""

import numpy as np
import pytest

from realm.documents.store.blocks import NULL_BLOCK
from realm.search.index.exact import ExactIndex
from realm.search.retriever import NULL_INDEX, Retriever


@pytest.fixture
def vectors():
    return np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)


@pytest.fixture
def retriever(vectors):
    """Queries are block ids 100..129; a query's embedding points to its own block."""
    return Retriever(lambda queries: 9 * vectors[[q - 100 for q in queries]], ExactIndex(vectors, np.arange(100, 130, dtype=np.int64)))


@pytest.mark.parametrize("null", [True, False])
@pytest.mark.parametrize("k", [1, 2, 8, 30, 31, 40])
def test_origin_is_never_returned_and_k_is_stable(retriever, k, null):
    queries = [100, 107, 129]
    found = retriever.retrieve(queries, k, null=null, exclude=[np.array([q], np.int64) for q in queries])
    assert found.block_ids.shape == found.valid.shape == found.scores.shape == (3, k)
    assert found.block_ids.dtype == np.int64 and found.scores.dtype == np.float32
    for i, query in enumerate(queries):
        blocks = found.block_ids[i][int(null) :][found.valid[i][int(null) :]].tolist()
        assert len(blocks) == len(set(blocks)) == min(k - int(null), 29)
        assert query not in blocks and NULL_BLOCK not in blocks
    assert (found.block_ids[~found.valid] == NULL_BLOCK).all() and np.isneginf(found.scores[~found.valid]).all()
    if null:
        assert (found.block_ids[:, NULL_INDEX] == NULL_BLOCK).all() and found.valid[:, NULL_INDEX].all()
        assert np.isnan(found.scores[:, NULL_INDEX]).all()


def test_without_exclusion_the_best_block_comes_first_with_it_the_null_document(retriever, vectors):
    found = retriever.retrieve([105], 30, null=False)
    assert found.block_ids[0].tolist() == (100 + np.argsort(-(vectors @ vectors[5]), kind="stable")).tolist()
    np.testing.assert_allclose(found.scores[0], 9 * np.sort(vectors @ vectors[5])[::-1], rtol=1e-5, atol=1e-5)
    found = retriever.retrieve([100], 5, null=True, exclude=[np.arange(100, 130)])
    assert found.valid.tolist() == [[True, False, False, False, False]] and (found.block_ids == NULL_BLOCK).all()


def test_bad_calls(retriever):
    with pytest.raises(ValueError, match="k must be"):
        retriever.retrieve([100], 0, null=True)
    with pytest.raises(ValueError, match="exclusion lists"):
        retriever.retrieve([100], 2, null=True, exclude=[])
