"""Recall against exact search."""

import numpy as np

from realm.search.index.exact import ExactIndex
from realm.search.index.mips import recall_against


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
