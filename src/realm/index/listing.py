"""From the bounds of a scan to the rows that must be scored exactly, for up to some dozens of queries at once.

1. A reach is guessed from the bounds of the groups: one that about k rows should have.
2. Rows whose bound reaches it are listed, each with an upper and a lower bound of its score: the k-th largest lower bound is the floor.
3. A row below the floor is none of the best k. If the floor is not below the reach, every other row is listed; else rows are listed again.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from realm.index.base import Hidden
from realm.index.native.kernel import GROUP

# A query is given up when more rows than LISTED + 4 k + one in 64 of all reach the floor: a scan of everything costs less by then.
LISTED = 4096
MOST_FOLDED = 64  # groups whose best bound stands for all of them while the reach is sought


@dataclass(frozen=True)
class Listed:
    """Rows with bounds of their scores, ordered by query.

    query, row: int64 [c]. upper, lower: float32 [c]. overfull: bool [b], queries of which there are too many; theirs are not here.
    """

    query: np.ndarray
    row: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    overfull: np.ndarray

    def only(self, kept: np.ndarray) -> "Listed":
        """Those of ``kept``: bool [c], or places, ascending."""
        return Listed(self.query[kept], self.row[kept], self.upper[kept], self.lower[kept], self.overfull)

    def best(self, k: int) -> np.ndarray:
        """Which are the best k of each query by their upper bounds: bool [c]."""
        chosen = np.ones(len(self.query), np.bool_)
        ends = np.searchsorted(self.query, np.arange(len(self.overfull) + 1))
        for start, stop in pairwise(ends):
            if stop - start > k:
                chosen[start + np.argpartition(self.upper[start:stop], stop - start - k)[: stop - start - k]] = False
        return chosen

    def and_also(self, others: "Listed") -> "Listed":
        """These and others, of other queries."""
        query = np.concatenate([self.query, others.query])
        order = np.argsort(query, kind="stable")
        parts = ((self.row, others.row), (self.upper, others.upper), (self.lower, others.lower))
        row, upper, lower = (np.concatenate(part)[order] for part in parts)
        return Listed(query[order], row, upper, lower, self.overfull | others.overfull)


@dataclass(frozen=True)
class Excluded:
    """Rows that queries must not get: row int64 [e], ascending for each query; those of query i are start[i] to start[i+1], int64 [b+1]."""

    row: np.ndarray
    start: np.ndarray

    @classmethod
    def of(cls, hidden: Hidden, b: int) -> "Excluded":
        """The excluded pairs of b queries."""
        return cls(hidden.row, np.searchsorted(hidden.query, np.arange(b + 1)))

    def query(self) -> np.ndarray:
        """The query of each row: int64 [e]."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


class Listing:
    """One scan for queries float32 [b,d] over n rows, and what may be read off it. ``scan`` is a GroupScan."""

    def __init__(self, scan: Any, queries: torch.Tensor, hidden: Hidden, n: int):
        self._scan = scan
        self._n = n
        self._prepared = scan.prepare(queries)
        self._upper: torch.Tensor = scan.groups(self._prepared)  # [b,g]
        self._excluded = Excluded.of(hidden, len(queries))
        touched = self._excluded.query() * self._upper.shape[1] + self._excluded.row // GROUP
        self._touched = torch.from_numpy(touched).to(self._upper.device)  # groups with excluded rows: their bounds may come from those

    def possible_rows(self, k: int, margin: np.ndarray) -> tuple[Listed, np.ndarray]:
        """All rows that may be among the best k of each query, hidden ones aside.

        Args:
            margin: float64 [b], what scores may be off beyond the bounds' own room.

        Returns:
            The rows, and which queries were given up: bool [b]; their rows are of no use.
        """
        limits = LISTED + 3 * k, LISTED + 4 * k + self._n // 64
        reach = self._reach(k, sure=False)
        listed = self._scan.rows_above(self._prepared, self._upper, reach, self._excluded, *limits)
        floor = self._floor(listed, k, margin)
        again = ~(floor >= reach) & ~listed.overfull & (reach > _LEAST)
        if again.any():
            sure = np.where(np.isfinite(floor), floor, self._reach(k, sure=True))
            reach = np.where(again, np.maximum(sure, _LEAST), np.float32(np.inf))
            others = self._scan.rows_above(self._prepared, self._upper, reach, self._excluded, *limits)
            floor = np.where(again, self._floor(others, k, margin), floor)
            listed = listed.only(~again[listed.query]).and_also(others)
            again = again & ~(floor >= reach) & (reach > _LEAST)
        return listed.only(np.flatnonzero(listed.upper >= floor[listed.query])), listed.overfull | again

    def _reach(self, k: int, sure: bool) -> np.ndarray:
        """A bound that about k rows of each query reach, float32 [b]; the least number where there are too few groups.

        Args:
            sure: see GroupScan.thresholds.
        """
        b, groups = self._upper.shape
        folds = max(1, -(-groups // max(1, min(MOST_FOLDED, groups // (4 * k)))))
        # Of rows in no order, k are in so many folds; with some to spare, because a row that is listed is cheap.
        rank = min(k, max(1, int(np.ceil(folds * -np.expm1(-1.25 * k / folds)))))
        if groups == 0:
            return np.full(b, _LEAST)
        flat = self._upper.view(-1)
        passed_over = flat[self._touched]
        flat[self._touched] = -torch.inf
        reach: np.ndarray = self._scan.thresholds(self._prepared, self._upper, folds, min(rank, folds), sure)
        flat[self._touched] = passed_over
        return np.maximum(reach, _LEAST)

    def _floor(self, listed: Listed, k: int, margin: np.ndarray) -> np.ndarray:
        """The k-th largest lower bound of each query less the margin, -inf where fewer are listed: float32 [b]."""
        return round_down(kth_largest(listed.query, listed.lower, len(margin), k) - margin)


_LEAST = np.float32(np.finfo(np.float32).min)  # finite: bounds of hidden rows do not reach it


def kth_largest(query: np.ndarray, values: np.ndarray, b: int, k: int) -> np.ndarray:
    """The k-th largest of the values [c] of each query, -inf where there are fewer: float64 [b]; query [c] is ascending."""
    ends = np.searchsorted(query, np.arange(b + 1))
    result = np.full(b, -np.inf)
    for i, (start, stop) in enumerate(pairwise(ends)):
        if stop - start >= k:
            result[i] = np.partition(values[start:stop], stop - start - k)[stop - start - k]
    return result


def round_down(values: np.ndarray) -> np.ndarray:
    """Float64 values as float32, always a little smaller."""
    rounded = np.clip(values, -3e38, 3e38).astype(np.float32)  # beyond, queries are scanned exactly
    rounded = np.nextafter(rounded, np.float32(-np.inf))
    rounded[np.isneginf(values)] = -np.inf
    return rounded
