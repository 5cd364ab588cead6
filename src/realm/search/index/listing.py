"""From the bounds of a scan to the rows that must be scored exactly, for up to some dozens of queries at once.

A reach that k rows should have is guessed from a sample of the groups. The scan lists rows whose upper bound reaches it; the k-th largest
of their lower bounds is the floor, which no best row is below. If the floor is below the reach, rows are listed again."""

from dataclasses import dataclass, replace

import numpy as np

from realm.search.index.base import Hidden
from realm.search.index.native.kernel import GROUP, Kernel
from realm.search.index.quantised import CodedQueries, QuantisedRows, code_queries

USUAL_LISTED = 8192  # rows of a query above 5 k; with more than this + 6 k + one in 64 of all, a scan of everything costs less
SAMPLE_DEVIATIONS = 4  # standard deviations by which the number of groups that hold the best rows may exceed its mean in a sample
# Shares of the allowed error between a group's bound and the lower bound of its best row, which coarse codes flatter.
COARSE_ERROR_SHARE, FINE_ERROR_SHARE, CERTAIN_ERROR_SHARE = 1.2, 1.02, 3.0
SAMPLE_STRIDE, MIN_SAMPLE_GROUPS = 32, 256  # every 32nd group is looked at first, but no fewer groups than these
MEMORY_BOUND_QUERIES = 4  # up to here a scan is bound by memory, not by arithmetic: the finer codes of two planes cost nothing
_MIN_FLOAT32 = np.float32(np.finfo(np.float32).min)  # finite: bounds of hidden rows do not reach it


@dataclass(frozen=True)
class Excluded:
    """Rows forbidden to queries: row int64 [e], ascending for each query; those of query i are start[i] to start[i+1], int64 [b+1]."""

    row: np.ndarray
    start: np.ndarray

    @classmethod
    def of(cls, hidden: Hidden, b: int) -> "Excluded":
        """Excluded pairs of b queries."""
        return cls(hidden.row, np.searchsorted(hidden.query, np.arange(b + 1)))

    def query(self) -> np.ndarray:
        """Query of each row: int64 [e]."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


@dataclass(frozen=True)
class PreparedQueries:
    """Queries as codes: for the scan of all groups, and, finer if those are many, for single rows."""

    scanned: CodedQueries
    fine: CodedQueries


@dataclass(frozen=True)
class ListedRows:
    """Rows of b queries that reach a bound, with bounds of their scores, as listed by the kernel."""

    kernel: Kernel
    address: np.ndarray  # uint64 [b], of each query's LISTED rows
    found: np.ndarray  # int64 [b], number of them
    overfull: np.ndarray  # bool [b], queries with too many, of which none are found
    owners: tuple[np.ndarray, ...]  # arrays that hold them

    @classmethod
    def of(cls, kernel: Kernel, listed: np.ndarray, found: np.ndarray) -> "ListedRows":
        """From LISTED [b,limit], of which found int64 [b]."""
        address = np.uint64(listed.ctypes.data) + np.arange(len(listed), dtype=np.uint64) * np.uint64(listed.strides[0])
        overfull = found > listed.shape[1]
        return cls(kernel, address, np.where(overfull, 0, found), overfull, (listed,))

    def start(self) -> np.ndarray:
        """Starts of each query's rows in one sequence of all: int64 [b+1]."""
        return np.concatenate([[0], np.cumsum(self.found)])

    def kth_lower(self, k: int) -> np.ndarray:
        """The k-th largest lower bound of each query, -inf if fewer rows are listed: float64 [b]."""
        return self.kernel.kth_lower(self.address, self.start(), k)

    def instead(self, at: np.ndarray, others: "ListedRows") -> "ListedRows":
        """Replace the rows of the queries ``at``, int64 [m], ascending, by the others'."""
        address, found, overfull = self.address.copy(), self.found.copy(), self.overfull.copy()
        address[at], found[at], overfull[at] = others.address, others.found, others.overfull
        return ListedRows(self.kernel, address, found, overfull, self.owners + others.owners)

    def without(self, which: np.ndarray) -> "ListedRows":
        """Drop the rows of the queries ``which``, bool [b]."""
        return replace(self, found=np.where(which, 0, self.found))


class CodeScan:
    """Bounds of the scores of coded rows (q.x plus the row's bias) by the kernel: of groups of 64 rows, then of single rows."""

    def __init__(self, kernel: Kernel, rows: QuantisedRows, all_rows: QuantisedRows | None = None):
        self.level = kernel.level
        self._kernel = kernel
        self._rows = rows
        self._all_rows = rows if all_rows is None else all_rows  # without hidden ones

    @property
    def nbytes(self) -> int:
        """Memory that a scan goes through."""
        return self._rows.nbytes

    @property
    def largest_norm(self) -> float:
        """Upper bound of the rows' Euclidean norms."""
        return self._rows.largest_norm

    def hidden(self, removed: np.ndarray | None) -> "CodeScan":
        """The same scan without the rows of ``removed`` bool [n] (None: none); memory is shared."""
        rows = self._all_rows if removed is None else self._all_rows.hidden(removed)
        return CodeScan(self._kernel, rows, self._all_rows)

    def prepare(self, queries: np.ndarray) -> PreparedQueries:
        """Codes of float32 queries [b,d]."""
        short = self._kernel.short_sums
        fine = code_queries(queries, 2, short)
        return PreparedQueries(fine if len(queries) <= MEMORY_BOUND_QUERIES else code_queries(queries, 1, short), fine)

    def stride(self) -> int:
        """Stride of the groups in ``sample``."""
        return max(1, min(SAMPLE_STRIDE, self._rows.groups // MIN_SAMPLE_GROUPS))

    def sample(self, prepared: PreparedQueries) -> np.ndarray:
        """Bounds of every stride-th group, float32 [b,s], at least the best score of its rows; -inf only if all of them are hidden."""
        return self._bounds(prepared, self.stride())

    def groups(self, prepared: PreparedQueries) -> np.ndarray:
        """Bounds of all groups, float32 [b,g]."""
        return self._bounds(prepared, 1)

    def _bounds(self, prepared: PreparedQueries, stride: int) -> np.ndarray:
        bounds = np.empty((len(prepared.fine), -(-self._rows.groups // stride)), np.float32)
        self._kernel.scan(self._rows.struct(), prepared.scanned.struct(), bounds, stride)
        return bounds

    def thresholds(self, prepared: PreparedQueries, bounds: np.ndarray, stride: int, rank: int, sure: bool) -> np.ndarray:
        """The rank-th largest lower bound of the best rows of groups, float32 [b].

        Args:
            bounds: float32 [b,s], of every stride-th group; unless ``sure`` they may be tightened in place, those far below to -inf.
            rank: 1 to s.
            sure: guarantee so many groups with such a row; otherwise it is an estimate, which is higher."""
        fine, scanned = prepared.fine, prepared.scanned
        if sure or scanned is fine:
            return self._ranked(scanned, fine, bounds, stride, rank, CERTAIN_ERROR_SHARE if sure else FINE_ERROR_SHARE)
        coarse = self._ranked(scanned, fine, bounds, stride, rank, COARSE_ERROR_SHARE)
        self._kernel.refine(self._rows.struct(), fine.struct(), bounds, stride, coarse)
        return np.maximum(coarse, self._ranked(fine, fine, bounds, stride, rank, FINE_ERROR_SHARE))

    def _ranked(self, codes: CodedQueries, fine: CodedQueries, bounds: np.ndarray, stride: int, rank: int, share: float) -> np.ndarray:
        """``thresholds`` of bounds by these codes, less a share of their error and the error of fine codes."""
        with np.errstate(over="ignore"):  # queries that could overflow are scanned exactly
            room = share * codes.by_residual + fine.by_residual, share * codes.by_norm + fine.by_norm
        return self._kernel.thresholds(self._rows.struct(), bounds, *room, share + 1, stride, rank)

    def sweep(self, prepared: PreparedQueries, sample: np.ndarray, reach: np.ndarray, excluded: Excluded, limit: int) -> ListedRows:
        """``rows_above`` by a scan of its own, which reuses the bounds of a sample."""
        fine = prepared.fine.struct()
        scanned = fine if prepared.scanned is prepared.fine else prepared.scanned.struct()
        hidden = excluded.row, excluded.start
        found = self._kernel.sweep(self._rows.struct(), fine, scanned, sample, self.stride(), reach, hidden, limit)
        return ListedRows.of(self._kernel, *found)

    def rows_above(self, prepared: PreparedQueries, upper: np.ndarray, reach: np.ndarray, excluded: Excluded, limit: int) -> ListedRows:
        """Rows with a bound of at least ``reach``, float32 [b], without excluded and hidden ones.

        ``upper`` float32 [b,g] bounds all groups; queries with more than ``limit`` rows are overfull."""
        hidden = excluded.row, excluded.start
        found = self._kernel.list(self._rows.struct(), prepared.fine.struct(), upper, reach, hidden, limit)
        return ListedRows.of(self._kernel, *found)


class Listing:
    """Candidate rows from one scan for queries float32 [b,d] over n rows."""

    def __init__(self, scan: CodeScan, queries: np.ndarray, hidden: Hidden, n: int):
        self._scan = scan
        self._queries, self._hidden, self._n = queries, hidden, n
        self._groups = -(-n // GROUP)
        self._prepared = scan.prepare(queries)
        self._sample = scan.sample(self._prepared)
        self._excluded = Excluded.of(hidden, len(queries))

    def possible_rows(self, k: int, margin: np.ndarray) -> tuple[ListedRows, np.ndarray, np.ndarray]:
        """All rows that may be among the best k of each query; ``margin`` float64 [b] is the scores' error beyond the bounds' room.

        Returns ListedRows, the upper bound below which a row cannot be among the best, float32 [b], and the queries given up, bool [b],
        whose rows are of no use."""
        reach = self._reach(self._sample, self._scan.stride(), k, sure=False)
        listed = self._scan.sweep(self._prepared, self._sample, reach, self._excluded, USUAL_LISTED + 5 * k)
        floor = round_down(listed.kth_lower(k) - margin)
        again = listed.overfull | (~(floor >= reach) & (reach > _MIN_FLOAT32))
        if not again.any():
            return listed, floor, again
        at = np.flatnonzero(again)
        rest = Listing(self._scan, self._queries[at], self._hidden.only(at), self._n)
        least = np.where(listed.overfull, reach, np.where(np.isfinite(floor), floor, -np.inf))[at]
        others, lower, given_up = rest.sure_rows(k, margin[at], least)
        listed, floor[at] = listed.instead(at, others), lower
        again[at] = given_up
        return listed, floor, again

    def sure_rows(self, k: int, margin: np.ndarray, reach: np.ndarray) -> tuple[ListedRows, np.ndarray, np.ndarray]:
        """The same by another scan of everything, if the first failed; k rows have a bound of ``reach`` float32 [b], -inf: unknown."""
        upper = self._scan.groups(self._prepared)
        reach = np.maximum(np.where(np.isfinite(reach), reach, self._reach(upper, 1, k, sure=True)), _MIN_FLOAT32)
        listed = self._scan.rows_above(self._prepared, upper, reach, self._excluded, USUAL_LISTED + 6 * k + self._n // 64)
        floor = round_down(listed.kth_lower(k) - margin)
        return listed, floor, listed.overfull | (~(floor >= reach) & (reach > _MIN_FLOAT32))

    def _reach(self, bounds: np.ndarray, stride: int, k: int, sure: bool) -> np.ndarray:
        """A bound that at least k rows of each query reach in all likelihood, float32 [b]; the least number if there are too few groups.

        ``bounds`` float32 [b,s] are of every stride-th group; ``sure`` as for CodeScan.thresholds."""
        b, sampled = bounds.shape
        if sampled == 0:
            return np.full(b, _MIN_FLOAT32)
        # Of rows in no order, the best k are in so many of these groups; with some to spare, because a row that is listed is cheap.
        mean = sampled * -np.expm1(-k / self._groups)
        rank = min(k, sampled, int(np.ceil(mean + SAMPLE_DEVIATIONS * np.sqrt(mean) + SAMPLE_DEVIATIONS)))
        touched = self._excluded.query() * sampled + self._excluded.row // GROUP // stride
        touched = touched[self._excluded.row // GROUP % stride == 0]
        flat = bounds.reshape(-1)
        passed_over = flat[touched]  # bounds of groups with excluded rows may come from those
        flat[touched] = -np.inf
        reach = self._scan.thresholds(self._prepared, bounds, stride, rank, sure)
        flat[touched] = passed_over
        return np.maximum(reach, _MIN_FLOAT32)


def round_down(values: np.ndarray) -> np.ndarray:
    """Float64 values as float32, always a little smaller."""
    rounded = np.clip(values, -3e38, 3e38).astype(np.float32)  # beyond, queries are scanned exactly
    rounded = np.nextafter(rounded, np.float32(-np.inf))
    rounded[np.isneginf(values)] = -np.inf
    return rounded
