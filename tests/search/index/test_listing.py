"""What a listing is made of: floors that are rounded down."""

import numpy as np

from realm.search.index.listing import round_down


def test_rounding_down_never_rounds_up():
    values = np.array([0.1, -0.1, 1e30, -1e30, -np.inf, 0.0])
    rounded = round_down(values)
    assert rounded.dtype == np.float32 and (rounded <= values).all() and np.isneginf(rounded[4])
