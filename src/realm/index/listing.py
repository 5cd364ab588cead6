"""From the bounds of a scan to the rows that must be scored exactly, for up to some dozens of queries at once.

1. A reach is guessed from the bounds of a sample of the groups: one that k rows should have.
2. All groups are scanned. Rows whose bound reaches it are listed, each with an upper and a lower bound of its score: the k-th largest
   lower bound is the floor.
3. A row below the floor is none of the best k. If the floor is not below the reach, every other row is listed; else rows are listed again.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
import torch

from realm.index.base import Hidden
from realm.index.native.kernel import GROUP

# Hardly a query has more rows than USUAL + 5 k; one with more than USUAL + 6 k + one in 64 of all is given up: a scan of everything costs
# less by then.
USUAL = 8192
SPARE = 4  # standard deviations by which the number of groups that hold the best rows may exceed its mean in a sample


class ListedRows(Protocol):
    """The rows of b queries that reach what was asked for, with bounds of their scores."""

    @property
    def overfull(self) -> np.ndarray:
        """Queries of which there are too many, bool [b]; theirs are not here."""

    def kth_lower(self, k: int) -> np.ndarray:
        """The k-th largest lower bound of each query, -inf where fewer rows are listed: floating point [b]."""

    def instead(self, at: np.ndarray, others: Self) -> Self:
        """The others' rows for the queries ``at``, int64 [m], ascending, and these for the rest."""

    def without(self, which: np.ndarray) -> Self:
        """No rows of the queries of ``which``, bool [b]."""


@dataclass(frozen=True)
class Listed:
    """Rows as plain arrays, ordered by query. See ListedRows.

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

    def reaching(self, floor: np.ndarray) -> "Listed":
        """Those whose upper bound is at least the floor of their query: floating point [b]."""
        return self.only(np.flatnonzero(self.upper >= floor[self.query]))

    def kth_lower(self, k: int) -> np.ndarray:
        return kth_largest(self.query, self.lower, len(self.overfull), k)

    def instead(self, at: np.ndarray, others: "Listed") -> "Listed":
        replaced, overfull = np.zeros(len(self.overfull), np.bool_), self.overfull.copy()
        replaced[at], overfull[at] = True, others.overfull
        ours = self.without(replaced)
        query = np.concatenate([ours.query, at[others.query]])
        order = np.argsort(query, kind="stable")
        parts = ((ours.row, others.row), (ours.upper, others.upper), (ours.lower, others.lower))
        row, upper, lower = (np.concatenate(part)[order] for part in parts)
        return Listed(query[order], row, upper, lower, overfull)

    def without(self, which: np.ndarray) -> "Listed":
        return self.only(~which[self.query])


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
    """What may be read off one scan for queries float32 [b,d] over n rows. ``scan`` is a GroupScan."""

    def __init__(self, scan: Any, queries: torch.Tensor, hidden: Hidden, n: int):
        self._scan = scan
        self._queries, self._hidden, self._n = queries, hidden, n
        self._groups = -(-n // GROUP)
        self._prepared = scan.prepare(queries)
        self._sample: torch.Tensor = scan.sample(self._prepared)
        self._excluded = Excluded.of(hidden, len(queries))

    def possible_rows(self, k: int, margin: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
        """All rows that may be among the best k of each query, hidden ones aside.

        Args:
            margin: float64 [b], what scores may be off beyond the bounds' own room.

        Returns:
            ListedRows, the upper bound below which a row cannot be among the best, float32 [b], and which queries were given up, bool [b]:
            their rows are of no use.
        """
        reach = self._reach(self._sample, self._scan.stride(), k, sure=False)
        listed = self._scan.sweep(self._prepared, self._sample, reach, self._excluded, USUAL + 5 * k)
        floor = round_down(listed.kth_lower(k) - margin)
        again = listed.overfull | (~(floor >= reach) & (reach > _LEAST))
        if not again.any():
            return listed, floor, again
        at = np.flatnonzero(again)
        rest = Listing(self._scan, self._queries[torch.from_numpy(at).to(self._queries.device)], self._hidden.only(at), self._n)
        least = np.where(listed.overfull, reach, np.where(np.isfinite(floor), floor, -np.inf))[at]
        others, lower, given_up = rest.sure_rows(k, margin[at], least)
        listed, floor[at] = listed.instead(at, others), lower
        again[at] = given_up
        return listed, floor, again

    def sure_rows(self, k: int, margin: np.ndarray, reach: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
        """The same by another scan of everything, for queries of which the first was no use.

        Args:
            reach: float32 [b], a bound that k rows reach; -inf: not known.
        """
        upper = self._scan.groups(self._prepared, self._sample)
        reach = np.maximum(np.where(np.isfinite(reach), reach, self._reach(upper, 1, k, sure=True)), _LEAST)
        listed = self._scan.rows_above(self._prepared, upper, reach, self._excluded, USUAL + 6 * k + self._n // 64)
        floor = round_down(listed.kth_lower(k) - margin)
        return listed, floor, listed.overfull | (~(floor >= reach) & (reach > _LEAST))

    def _reach(self, bounds: torch.Tensor, stride: int, k: int, sure: bool) -> np.ndarray:
        """A bound that at least k rows of each query reach in all likelihood, float32 [b]; the least number where there are too few groups.

        Args:
            bounds: float32 [b,s], of every stride-th group.
            sure: see GroupScan.thresholds.
        """
        b, sampled = bounds.shape
        if sampled == 0:
            return np.full(b, _LEAST)
        # Of rows in no order, the best k are in so many of these groups; with some to spare, because a row that is listed is cheap.
        mean = sampled * -np.expm1(-k / self._groups)
        rank = min(k, sampled, int(np.ceil(mean + SPARE * np.sqrt(mean) + SPARE)))
        touched = self._excluded.query() * sampled + self._excluded.row // GROUP // stride
        touched = touched[self._excluded.row // GROUP % stride == 0]
        flat = bounds.view(-1)
        passed_over = flat[touched]  # bounds of groups with excluded rows may come from those
        flat[touched] = -torch.inf
        reach: np.ndarray = self._scan.thresholds(self._prepared, bounds, stride, rank, sure)
        flat[touched] = passed_over
        return np.maximum(reach, _LEAST)


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
