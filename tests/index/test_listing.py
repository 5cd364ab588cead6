"""What is listed holds all of the best rows, whatever the reach was guessed to be."""

import numpy as np
import pytest
import torch

from realm.index.base import Hidden
from realm.index.library_scan import LibraryScan
from realm.index.listing import Excluded, Listed, Listing, kth_largest, round_down


def listed(query: list[int], upper: list[float]) -> Listed:
    bounds = np.array(upper, np.float32)
    return Listed(np.array(query), np.arange(len(query)), bounds, bounds - 1, np.zeros(3, np.bool_))


def test_the_best_of_each_query_by_their_bounds() -> None:
    some = listed([0, 0, 0, 2, 2, 2, 2], [1, 3, 2, 5, 8, 7, 6])
    assert some.best(2).tolist() == [False, True, True, False, True, True, False]
    assert some.best(9).all()


def test_queries_of_two_lists_come_in_order() -> None:
    both = listed([0, 1, 2], [1, 9, 2]).instead(
        np.array([1]),
        Listed(np.zeros(2, np.int64), np.arange(2), np.array([3, 4], np.float32), np.array([2, 3], np.float32), np.zeros(1, np.bool_)),
    )
    assert both.query.tolist() == [0, 1, 1, 2] and both.upper.tolist() == [1, 3, 4, 2]


def test_rows_are_dropped_by_query_and_by_floor() -> None:
    some = listed([0, 0, 1, 2], [1, 5, 3, 4])
    assert some.without(np.array([False, True, False])).upper.tolist() == [1, 5, 4]
    assert some.reaching(np.array([2, 3, np.inf])).upper.tolist() == [5, 3]
    assert some.kth_lower(2).tolist() == [0.0, -np.inf, -np.inf]


def test_the_kth_largest_of_each_query() -> None:
    found = kth_largest(np.array([0, 0, 0, 2]), np.array([4.0, 9.0, 5.0, 1.0]), 3, 2)
    assert found.tolist() == [5.0, -np.inf, -np.inf]


def test_rounding_down_never_rounds_up() -> None:
    values = np.array([0.1, -0.1, 1e30, -1e30, -np.inf, 0.0])
    rounded = round_down(values)
    assert rounded.dtype == np.float32 and (rounded <= values).all() and np.isneginf(rounded[4])


def test_excluded_pairs_are_found_by_query() -> None:
    hidden = Hidden(np.array([0, 1, 1, 1]), np.array([3, 3, 5, 5]), None)
    excluded = Excluded.of(hidden, 3)
    assert excluded.row.tolist() == [3, 3, 5, 5] and excluded.start.tolist() == [0, 1, 4, 4] and excluded.query().tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("guess", [-1e9, 0.0, 30.0, 1e9])
def test_a_wrong_guess_costs_time_but_no_rows(guess: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors, queries = (
        torch.from_numpy(rng.standard_normal((3000, 16)).astype(np.float32)),
        torch.from_numpy(rng.standard_normal((4, 16))).float(),
    )
    none = np.zeros(0, np.int64)
    scan = LibraryScan(vectors, None, torch.float32)
    right = scan.thresholds
    monkeypatch.setattr(scan, "thresholds", lambda *args: right(*args) if args[-1] else np.full(len(args[1]), guess, np.float32))
    found, _, given_up = Listing(scan, queries, Hidden(none, none, None), 3000).possible_rows(9, np.zeros(4))
    assert not given_up.any()
    best = (queries @ vectors.T).topk(9).indices.numpy()
    for query in range(4):
        assert set(best[query]) <= set(found.row[found.query == query])
