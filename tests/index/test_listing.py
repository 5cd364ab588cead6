"""How the first look at a scan is kept short."""

import numpy as np

from realm.index.listing import _best_of_each, _by_group


def test_the_largest_bounds_of_each_query_are_kept() -> None:
    rng = np.random.default_rng(0)
    query, bounds = rng.choice([0, 2, 3], 500, p=[0.7, 0.28, 0.02]), rng.permutation(500).astype(np.float32)
    chosen = np.arange(500)[_best_of_each(query, bounds, 20)]
    for each in (0, 2, 3):
        wanted = np.sort(bounds[query == each])[-20:]
        assert (np.sort(bounds[chosen][query[chosen] == each]) == wanted).all()
    assert len(np.arange(500)[_best_of_each(query, bounds, 500)]) == 500
    assert len(np.arange(0)[_best_of_each(query[:0], bounds[:0], 5)]) == 0


def test_pairs_are_ordered_by_group_and_none_is_lost() -> None:
    rng = np.random.default_rng(1)
    query, group = rng.integers(0, 7, 200), rng.integers(0, 50, 200)
    by_query, by_group = _by_group(query, group, 7)
    assert (np.diff(by_group) >= 0).all()
    assert sorted(zip(query, group, strict=True)) == sorted(zip(by_query, by_group, strict=True))
