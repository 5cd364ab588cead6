"""What one search must not return: pairs, removed rows, and parts of both."""

import numpy as np
from hypothesis import given, settings, strategies as st

from realm.search.index.base import Hidden


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(1, 30), st.integers(0, 80), st.booleans(), st.integers(0, 2**32 - 1))
def test_hidden_against_a_table(b, n, e, some_removed, seed):
    rng = np.random.default_rng(seed)
    row, query = np.sort(rng.integers(0, n, e)), rng.integers(0, b, e)  # pairs may occur twice
    removed = rng.random(n) < 0.3 if some_removed else np.zeros(n, bool)
    hidden = Hidden(query, row, removed if some_removed else None)
    table = np.zeros((b, n), bool)
    table[query, row] = True
    most = np.bincount(query, minlength=b).max()
    table |= removed
    np.testing.assert_array_equal(hidden.available(b, n), (~table).sum(axis=1))
    assert hidden.most_excluded() == most
    some = np.flatnonzero(rng.random(b) < 0.5)
    pairs = rng.integers(0, b, 50), rng.integers(0, n, 50)
    np.testing.assert_array_equal(hidden.allows(*pairs), ~table[pairs])
    start, stop = sorted(rng.integers(0, n + 1, 2).tolist())
    scores = np.zeros((b, stop - start))
    hidden.by_row().mask(scores, start, stop)
    np.testing.assert_array_equal(np.isinf(scores), table[:, start:stop])
    if len(some):
        np.testing.assert_array_equal(hidden.only(some).available(len(some), n), (~table[some]).sum(axis=1))
        scores = np.zeros((len(some), n))
        hidden.only(some).by_row().mask(scores, 0, n)
        np.testing.assert_array_equal(np.isinf(scores), table[some])
