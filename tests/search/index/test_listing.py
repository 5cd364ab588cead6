"""What a listing is made of: excluded rows by query, and floors that are rounded down."""

import numpy as np

from realm.search.index.base import Hidden
from realm.search.index.listing import Excluded, round_down


def test_rounding_down_never_rounds_up():
    values = np.array([0.1, -0.1, 1e30, -1e30, -np.inf, 0.0])
    rounded = round_down(values)
    assert rounded.dtype == np.float32 and (rounded <= values).all() and np.isneginf(rounded[4])


def test_excluded_pairs_are_found_by_query():
    excluded = Excluded.of(Hidden(np.array([0, 1, 1, 1]), np.array([3, 3, 5, 5]), None), 3)
    assert excluded.row.tolist() == [3, 3, 5, 5] and excluded.start.tolist() == [0, 1, 4, 4] and excluded.query().tolist() == [0, 1, 1, 1]
