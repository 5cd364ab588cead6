"""From the bounds of a scan to the rows that must be scored exactly, for up to some dozens of queries at once.

1. A reach is guessed from the bounds of a sample of the groups: one that k rows should have.
2. All groups are scanned. Rows whose bound reaches it are listed, each with an upper and a lower bound of its score: the k-th largest
   lower bound is the floor.
3. A row below the floor is none of the best k. If the floor is not below the reach, every other row is listed; else rows are listed again.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from realm.search.index.base import Hidden
from realm.search.index.native.kernel import GROUP, Kernel
from realm.search.index.quantised import CodedQueries, QuantisedRows, code_queries

# Hardly a query has more rows than USUAL + 5 k; one with more than USUAL + 6 k + one in 64 of all is given up: a scan of everything costs
# less by then.
USUAL = 8192
SPARE = 4  # standard deviations by which the number of groups that hold the best rows may exceed its mean in a sample
# The error of codes is nearly never what a bound allows for, and the best row of a group by coarse codes is one that they flatter: so much
# of what coarse and fine codes allow for lies between the bound of a group and the lower bound of its best row.
COARSE_SHARE, FINE_SHARE, SURE = 1.2, 1.02, 3.0
STRIDE, LEAST_SAMPLE = 32, 256  # every 32nd group is looked at first, but no fewer groups than these
FEW_QUERIES = 4  # up to here a scan is bound by memory, not by arithmetic: the finer codes of two planes cost nothing
_LEAST = np.float32(np.finfo(np.float32).min)  # finite: bounds of hidden rows do not reach it


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


@dataclass(frozen=True)
class PreparedQueries:
    """Queries as codes: for the scan of all groups, and, finer if those are many, for single rows."""

    scanned: CodedQueries
    fine: CodedQueries


@dataclass(frozen=True)
class ListedRows:
    """The rows of b queries that reach what was asked for, with bounds of their scores, as the kernel listed them.

    kernel: what works on them. address: uint64 [b], where each query's LISTED rows are. found: int64 [b], how many of them. overfull: bool
    [b], queries of which there are too many; none of theirs are found. owners: the arrays they are in.
    """

    kernel: Kernel
    address: np.ndarray
    found: np.ndarray
    overfull: np.ndarray
    owners: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, kernel: Kernel, listed: np.ndarray, found: np.ndarray) -> "ListedRows":
        """LISTED [b,limit], of which found int64 [b]."""
        address = np.uint64(listed.ctypes.data) + np.arange(len(listed), dtype=np.uint64) * np.uint64(listed.strides[0])
        overfull = found > listed.shape[1]
        return cls(kernel, address, np.where(overfull, 0, found), overfull, (listed,))

    def start(self) -> np.ndarray:
        """Where the rows of each query begin if they follow each other: int64 [b+1]."""
        return np.concatenate([[0], np.cumsum(self.found)])

    def kth_lower(self, k: int) -> np.ndarray:
        """The k-th largest lower bound of each query, -inf where fewer rows are listed: float64 [b]."""
        return self.kernel.kth_lower(self.address, self.start(), k)

    def instead(self, at: np.ndarray, others: "ListedRows") -> "ListedRows":
        """The others' rows for the queries ``at``, int64 [m], ascending, and these for the rest."""
        address, found, overfull = self.address.copy(), self.found.copy(), self.overfull.copy()
        address[at], found[at], overfull[at] = others.address, others.found, others.overfull
        return ListedRows(self.kernel, address, found, overfull, self.owners + others.owners)

    def without(self, which: np.ndarray) -> "ListedRows":
        """No rows of the queries of ``which``, bool [b]."""
        return replace(self, found=np.where(which, 0, self.found))


class CodeScan:
    """Bounds of the scores of coded rows by the kernel: of the best score in every group of 64 rows, then of single rows.

    What is bounded is q.x, plus the row's bias where there is one.
    """

    def __init__(self, kernel: Kernel, rows: QuantisedRows, all_rows: QuantisedRows | None = None):
        self.level = kernel.level
        self._kernel = kernel
        self._rows = rows
        self._all_rows = rows if all_rows is None else all_rows  # without hidden ones

    @property
    def nbytes(self) -> int:
        """The memory that a scan goes through."""
        return self._rows.nbytes

    @property
    def largest_norm(self) -> float:
        """At least the Euclidean norm of every row."""
        return self._rows.largest_norm

    def hidden(self, removed: torch.Tensor | None) -> "CodeScan":
        """The same scan, the rows of ``removed`` bool [n] hidden (None: none); rows and memory are shared."""
        rows = self._all_rows if removed is None else self._all_rows.hidden(removed.numpy())
        return CodeScan(self._kernel, rows, self._all_rows)

    def prepare(self, queries: torch.Tensor) -> PreparedQueries:
        """Codes of float32 queries [b,d]."""
        short = self._kernel.short_sums
        fine = code_queries(queries, 2, short)
        return PreparedQueries(fine if len(queries) <= FEW_QUERIES else code_queries(queries, 1, short), fine)

    def stride(self) -> int:
        """``sample`` is of every stride-th group."""
        return max(1, min(STRIDE, self._rows.groups // LEAST_SAMPLE))

    def sample(self, prepared: PreparedQueries) -> np.ndarray:
        """Bounds of every stride-th group, float32 [b,s]: none of its rows has a larger score; -inf only where all of them are hidden."""
        return self._bounds(prepared, self.stride())

    def groups(self, prepared: PreparedQueries) -> np.ndarray:
        """Bounds of all groups, float32 [b,g]."""
        return self._bounds(prepared, 1)

    def _bounds(self, prepared: PreparedQueries, stride: int) -> np.ndarray:
        bounds = np.empty((len(prepared.fine), -(-self._rows.groups // stride)), np.float32)
        self._kernel.scan(self._rows.struct(), prepared.scanned.struct(), bounds, stride)
        return bounds

    def thresholds(self, prepared: PreparedQueries, bounds: np.ndarray, stride: int, rank: int, sure: bool) -> np.ndarray:
        """The rank-th largest of what the best rows of groups have as their lower bound, float32 [b].

        Args:
            bounds: float32 [b,s], of every stride-th group; unless ``sure`` they may be made better ones, those far below -inf.
            rank: 1 to s.
            sure: no less than that many groups have such a row; otherwise it is an estimate, which is higher.
        """
        fine, scanned = prepared.fine, prepared.scanned
        if sure or scanned is fine:
            return self._ranked(scanned, fine, bounds, stride, rank, SURE if sure else FINE_SHARE)
        coarse = self._ranked(scanned, fine, bounds, stride, rank, COARSE_SHARE)
        self._kernel.refine(self._rows.struct(), fine.struct(), bounds, stride, coarse)
        return np.maximum(coarse, self._ranked(fine, fine, bounds, stride, rank, FINE_SHARE))

    def _ranked(self, codes: CodedQueries, fine: CodedQueries, bounds: np.ndarray, stride: int, rank: int, share: float) -> np.ndarray:
        """See ``thresholds``: of bounds by these codes less so much of what they allow for, and what fine codes do."""
        with np.errstate(over="ignore"):  # queries that could overflow are scanned exactly
            room = share * codes.by_residual + fine.by_residual, share * codes.by_norm + fine.by_norm
        return self._kernel.thresholds(self._rows.struct(), bounds, *room, share + 1, stride, rank)

    def sweep(self, prepared: PreparedQueries, sample: np.ndarray, reach: np.ndarray, excluded: Excluded, limit: int) -> ListedRows:
        """``rows_above`` by a scan of its own, which the bounds of a sample spare a part."""
        fine = prepared.fine.struct()
        scanned = fine if prepared.scanned is prepared.fine else prepared.scanned.struct()
        hidden = excluded.row, excluded.start
        found = self._kernel.sweep(self._rows.struct(), fine, scanned, sample, self.stride(), reach, hidden, limit)
        return ListedRows.of(self._kernel, *found)

    def rows_above(self, prepared: PreparedQueries, upper: np.ndarray, reach: np.ndarray, excluded: Excluded, limit: int) -> ListedRows:
        """The rows whose bound is at least ``reach``, float32 [b], excluded and hidden ones aside.

        Args:
            upper: float32 [b,g], bounds of all groups.
            limit: queries of more rows are overfull.
        """
        hidden = excluded.row, excluded.start
        found = self._kernel.list(self._rows.struct(), prepared.fine.struct(), upper, reach, hidden, limit)
        return ListedRows.of(self._kernel, *found)


class Listing:
    """What may be read off one scan for queries float32 [b,d] over n rows."""

    def __init__(self, scan: CodeScan, queries: torch.Tensor, hidden: Hidden, n: int):
        self._scan = scan
        self._queries, self._hidden, self._n = queries, hidden, n
        self._groups = -(-n // GROUP)
        self._prepared = scan.prepare(queries)
        self._sample = scan.sample(self._prepared)
        self._excluded = Excluded.of(hidden, len(queries))

    def possible_rows(self, k: int, margin: np.ndarray) -> tuple[ListedRows, np.ndarray, np.ndarray]:
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
        rest = Listing(self._scan, self._queries[torch.from_numpy(at)], self._hidden.only(at), self._n)
        least = np.where(listed.overfull, reach, np.where(np.isfinite(floor), floor, -np.inf))[at]
        others, lower, given_up = rest.sure_rows(k, margin[at], least)
        listed, floor[at] = listed.instead(at, others), lower
        again[at] = given_up
        return listed, floor, again

    def sure_rows(self, k: int, margin: np.ndarray, reach: np.ndarray) -> tuple[ListedRows, np.ndarray, np.ndarray]:
        """The same by another scan of everything, for queries of which the first was no use.

        Args:
            reach: float32 [b], a bound that k rows reach; -inf: not known.
        """
        upper = self._scan.groups(self._prepared)
        reach = np.maximum(np.where(np.isfinite(reach), reach, self._reach(upper, 1, k, sure=True)), _LEAST)
        listed = self._scan.rows_above(self._prepared, upper, reach, self._excluded, USUAL + 6 * k + self._n // 64)
        floor = round_down(listed.kth_lower(k) - margin)
        return listed, floor, listed.overfull | (~(floor >= reach) & (reach > _LEAST))

    def _reach(self, bounds: np.ndarray, stride: int, k: int, sure: bool) -> np.ndarray:
        """A bound that at least k rows of each query reach in all likelihood, float32 [b]; the least number where there are too few groups.

        Args:
            bounds: float32 [b,s], of every stride-th group.
            sure: see CodeScan.thresholds.
        """
        b, sampled = bounds.shape
        if sampled == 0:
            return np.full(b, _LEAST)
        # Of rows in no order, the best k are in so many of these groups; with some to spare, because a row that is listed is cheap.
        mean = sampled * -np.expm1(-k / self._groups)
        rank = min(k, sampled, int(np.ceil(mean + SPARE * np.sqrt(mean) + SPARE)))
        touched = self._excluded.query() * sampled + self._excluded.row // GROUP // stride
        touched = touched[self._excluded.row // GROUP % stride == 0]
        flat = bounds.reshape(-1)
        passed_over = flat[touched]  # bounds of groups with excluded rows may come from those
        flat[touched] = -np.inf
        reach = self._scan.thresholds(self._prepared, bounds, stride, rank, sure)
        flat[touched] = passed_over
        return np.maximum(reach, _LEAST)


def round_down(values: np.ndarray) -> np.ndarray:
    """Float64 values as float32, always a little smaller."""
    rounded = np.clip(values, -3e38, 3e38).astype(np.float32)  # beyond, queries are scanned exactly
    rounded = np.nextafter(rounded, np.float32(-np.inf))
    rounded[np.isneginf(values)] = -np.inf
    return rounded
