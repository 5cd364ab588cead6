"""What compressed search needs of a scan: upper bounds of the best score of every group of 64 rows, then of single rows."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from realm.index.listing import Excluded, Listed
from realm.index.native.kernel import Kernel
from realm.index.quantised import CodedQueries, QuantisedRows, code_queries

# The error of codes is nearly never what a bound allows for, and the best row of a group by coarse codes is one that they flatter: so much
# of what coarse and fine codes allow for lies between the bound of a group and the lower bound of its best row.
COARSE_SHARE, FINE_SHARE = 1.2, 1.02
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

    def groups(self, prepared: Any) -> torch.Tensor:
        """float32 [b,g]: no row of the group has a larger score; -inf only where all rows of a group are hidden."""

    def thresholds(self, prepared: Any, upper: torch.Tensor, folds: int, rank: int, sure: bool) -> np.ndarray:
        """The rank-th largest of what the best rows of groups have as their lower bound, float32 [b].

        Args:
            folds: groups i, i + folds, i + 2 folds... count as one; at most all groups, at least ``rank``.
            sure: no less than that many groups have such a row; otherwise it is an estimate, which is higher.
        """

    def rows_above(self, prepared: Any, upper: torch.Tensor, reach: np.ndarray, excluded: Excluded, usual: int, limit: int) -> Listed:
        """The rows whose bound is at least ``reach``, float32 [b], excluded and hidden ones aside.

        Args:
            usual: few queries have more rows.
            limit: queries of more rows are overfull.
        """


@dataclass(frozen=True)
class PreparedQueries:
    """Queries as codes: for the scan of all groups, and, finer if those are many, for single rows."""

    scanned: CodedQueries
    fine: CodedQueries


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

    def groups(self, prepared: PreparedQueries) -> torch.Tensor:
        upper = np.empty((len(prepared.fine), self._rows.groups), np.float32)
        self._kernel.scan(self._rows.struct(), prepared.scanned.struct(), upper)
        return torch.from_numpy(upper)

    def thresholds(self, prepared: PreparedQueries, upper: torch.Tensor, folds: int, rank: int, sure: bool) -> np.ndarray:
        fine, scanned = prepared.fine, prepared.scanned
        share = 3.0 if sure else FINE_SHARE if scanned is fine else COARSE_SHARE
        with np.errstate(over="ignore"):  # queries that could overflow are scanned exactly
            room = share * scanned.by_residual + fine.by_residual, share * scanned.by_norm + fine.by_norm
        return self._kernel.thresholds(self._rows.struct(), upper.numpy(), *room, share + 1, folds, rank)

    def rows_above(
        self, prepared: PreparedQueries, upper: torch.Tensor, reach: np.ndarray, excluded: Excluded, usual: int, limit: int
    ) -> Listed:
        hidden = excluded.row, excluded.start
        few = min(limit, usual)  # memory for the most that there may be is cleared by the system at every search
        listed, found = self._kernel.list(self._rows.struct(), prepared.fine.struct(), upper.numpy(), reach, hidden, few)
        overfull = found > few
        parts = [some[:count] for some, count in zip(listed, np.where(overfull, 0, found).tolist(), strict=True)]
        if few < limit and overfull.any():
            others = np.where(overfull, reach, np.float32(np.inf))
            listed, found = self._kernel.list(self._rows.struct(), prepared.fine.struct(), upper.numpy(), others, hidden, limit)
            for at in np.flatnonzero(overfull & (found <= limit)).tolist():
                parts[at] = listed[at, : found[at]]
            overfull &= found > limit
        rows = np.concatenate(parts)
        query = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return Listed(query, rows["row"], rows["upper"], rows["lower"], overfull)
