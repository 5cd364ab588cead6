"""What compressed search needs of a scan: upper bounds of the best score of every group of 64 rows, then of single rows."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from realm.index.listing import Excluded, ListedRows
from realm.index.native.kernel import Kernel
from realm.index.quantised import CodedQueries, QuantisedRows, code_queries

# The error of codes is nearly never what a bound allows for, and the best row of a group by coarse codes is one that they flatter: so much
# of what coarse and fine codes allow for lies between the bound of a group and the lower bound of its best row.
COARSE_SHARE, FINE_SHARE, SURE = 1.2, 1.02, 3.0
STRIDE, LEAST_SAMPLE = 32, 256  # every 32nd group is looked at first, but no fewer groups than these
FEW_QUERIES = 4  # up to here a scan is bound by memory, not by arithmetic: the finer codes of two planes cost nothing


class GroupScan(Protocol):
    """A scan of n rows in ceil(n / 64) groups. What is bounded is q.x, plus the row's bias where there is one."""

    name: str
    """What does the work, for people: "native avx2", "torch float32"."""

    @property
    def nbytes(self) -> int:
        """The memory that a scan goes through."""

    @property
    def largest_norm(self) -> float:
        """At least the Euclidean norm of every row."""

    def hidden(self, removed: torch.Tensor | None) -> "GroupScan":
        """The same scan, the rows of ``removed`` bool [n] hidden (None: none); rows and memory are shared."""

    def prepare(self, queries: torch.Tensor) -> Any:
        """What ``groups`` wants of float32 queries [b,d]."""

    def stride(self) -> int:
        """``sample`` is of every stride-th group."""

    def sample(self, prepared: Any) -> torch.Tensor:
        """Bounds of every stride-th group, float32 [b,s]: none of its rows has a larger score; -inf only where all of them are hidden."""

    def thresholds(self, prepared: Any, bounds: torch.Tensor, stride: int, rank: int, sure: bool) -> np.ndarray:
        """The rank-th largest of what the best rows of groups have as their lower bound, float32 [b].

        Args:
            bounds: float32 [b,s], of every stride-th group; unless ``sure`` they may be made better ones, those far below -inf.
            rank: 1 to s.
            sure: no less than that many groups have such a row; otherwise it is an estimate, which is higher.
        """

    def sweep(self, prepared: Any, sample: torch.Tensor, reach: np.ndarray, excluded: Excluded, limit: int) -> ListedRows:
        """``rows_above`` by a scan of its own."""

    def groups(self, prepared: Any, sample: torch.Tensor) -> torch.Tensor:
        """Bounds of all groups, float32 [b,g]."""

    def rows_above(self, prepared: Any, upper: torch.Tensor, reach: np.ndarray, excluded: Excluded, limit: int) -> ListedRows:
        """The rows whose bound is at least ``reach``, float32 [b], excluded and hidden ones aside.

        Args:
            upper: float32 [b,g], bounds of all groups.
            limit: queries of more rows are overfull.
        """


@dataclass(frozen=True)
class PreparedQueries:
    """Queries as codes: for the scan of all groups, and, finer if those are many, for single rows."""

    scanned: CodedQueries
    fine: CodedQueries


@dataclass(frozen=True)
class NativeRows:
    """Rows that the kernel listed. See ListedRows.

    kernel: what works on them. address: uint64 [b], where each query's LISTED rows are. found: int64 [b], how many of them; 0 where
    overfull. owners: the arrays they are in.
    """

    kernel: Kernel
    address: np.ndarray
    found: np.ndarray
    overfull: np.ndarray
    owners: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, kernel: Kernel, listed: np.ndarray, found: np.ndarray) -> "NativeRows":
        """LISTED [b,limit], of which found int64 [b]."""
        address = np.uint64(listed.ctypes.data) + np.arange(len(listed), dtype=np.uint64) * np.uint64(listed.strides[0])
        overfull = found > listed.shape[1]
        return cls(kernel, address, np.where(overfull, 0, found), overfull, (listed,))

    def start(self) -> np.ndarray:
        """Where the rows of each query begin if they follow each other: int64 [b+1]."""
        return np.concatenate([[0], np.cumsum(self.found)])

    def kth_lower(self, k: int) -> np.ndarray:
        return self.kernel.kth_lower(self.address, self.start(), k)

    def instead(self, at: np.ndarray, others: "NativeRows") -> "NativeRows":
        address, found, overfull = self.address.copy(), self.found.copy(), self.overfull.copy()
        address[at], found[at], overfull[at] = others.address, others.found, others.overfull
        return NativeRows(self.kernel, address, found, overfull, self.owners + others.owners)

    def without(self, which: np.ndarray) -> "NativeRows":
        return replace(self, found=np.where(which, 0, self.found))


class NativeScan:
    """Scan by the native kernel."""

    def __init__(self, kernel: Kernel, rows: QuantisedRows, all_rows: QuantisedRows | None = None):
        self.name = f"native {kernel.level}"
        self._kernel = kernel
        self._rows = rows
        self._all_rows = rows if all_rows is None else all_rows  # without hidden ones

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    @property
    def largest_norm(self) -> float:
        return self._rows.largest_norm

    def hidden(self, removed: torch.Tensor | None) -> "NativeScan":
        rows = self._all_rows if removed is None else self._all_rows.hidden(removed.numpy())
        return NativeScan(self._kernel, rows, self._all_rows)

    def prepare(self, queries: torch.Tensor) -> PreparedQueries:
        short = self._kernel.short_sums
        fine = code_queries(queries, 2, short)
        return PreparedQueries(fine if len(queries) <= FEW_QUERIES else code_queries(queries, 1, short), fine)

    def stride(self) -> int:
        return max(1, min(STRIDE, self._rows.groups // LEAST_SAMPLE))

    def sample(self, prepared: PreparedQueries) -> torch.Tensor:
        stride = self.stride()
        sample = np.empty((len(prepared.fine), -(-self._rows.groups // stride)), np.float32)
        self._kernel.scan(self._rows.struct(), prepared.scanned.struct(), sample, stride)
        return torch.from_numpy(sample)

    def thresholds(self, prepared: PreparedQueries, bounds: torch.Tensor, stride: int, rank: int, sure: bool) -> np.ndarray:
        fine, scanned = prepared.fine, prepared.scanned
        if sure or scanned is fine:
            return self._ranked(scanned, fine, bounds, stride, rank, SURE if sure else FINE_SHARE)
        coarse = self._ranked(scanned, fine, bounds, stride, rank, COARSE_SHARE)
        self._kernel.refine(self._rows.struct(), fine.struct(), bounds.numpy(), stride, coarse)
        return np.maximum(coarse, self._ranked(fine, fine, bounds, stride, rank, FINE_SHARE))

    def _ranked(self, codes: CodedQueries, fine: CodedQueries, bounds: torch.Tensor, stride: int, rank: int, share: float) -> np.ndarray:
        """See ``thresholds``: of bounds by these codes less so much of what they allow for, and what fine codes do."""
        with np.errstate(over="ignore"):  # queries that could overflow are scanned exactly
            room = share * codes.by_residual + fine.by_residual, share * codes.by_norm + fine.by_norm
        return self._kernel.thresholds(self._rows.struct(), bounds.numpy(), *room, share + 1, stride, rank)

    def sweep(self, prepared: PreparedQueries, sample: torch.Tensor, reach: np.ndarray, excluded: Excluded, limit: int) -> NativeRows:
        fine = prepared.fine.struct()
        scanned = fine if prepared.scanned is prepared.fine else prepared.scanned.struct()
        hidden = excluded.row, excluded.start
        found = self._kernel.sweep(self._rows.struct(), fine, scanned, sample.numpy(), self.stride(), reach, hidden, limit)
        return NativeRows.of(self._kernel, *found)

    def groups(self, prepared: PreparedQueries, sample: torch.Tensor) -> torch.Tensor:
        upper = np.empty((len(prepared.fine), self._rows.groups), np.float32)
        self._kernel.scan(self._rows.struct(), prepared.scanned.struct(), upper)
        return torch.from_numpy(upper)

    def rows_above(self, prepared: PreparedQueries, upper: torch.Tensor, reach: np.ndarray, excluded: Excluded, limit: int) -> NativeRows:
        hidden = excluded.row, excluded.start
        return NativeRows.of(
            self._kernel, *self._kernel.list(self._rows.struct(), prepared.fine.struct(), upper.numpy(), reach, hidden, limit)
        )
