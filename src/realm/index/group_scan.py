"""What compressed search needs of a scan: upper bounds of the best score of every group of 64 rows, then of single rows."""

from typing import Any, Protocol

import numpy as np
import torch

from realm.index.native.kernel import GROUP, Kernel
from realm.index.quantised import CodedQueries, QuantisedRows, code_queries

FEW_QUERIES = 4  # up to here a scan is bound by memory, not by arithmetic: the finer codes of two planes cost nothing


class GroupScan(Protocol):
    """A scan of n rows in ceil(n / 64) groups. What is bounded is q.x, plus the row's bias where there is one."""

    name: str
    """What does the work, for people: "native avx2", "torch float32"."""

    @property
    def nbytes(self) -> int:
        """The memory that a scan goes through."""
        ...

    @property
    def largest_norm(self) -> float:
        """At least the Euclidean norm of every row."""
        ...

    def hidden(self, removed: torch.Tensor | None) -> "GroupScan":
        """The same scan, the rows of ``removed`` bool [n] hidden (None: none); rows and memory are shared."""
        ...

    def prepare(self, queries: torch.Tensor) -> Any:
        """What ``groups`` and ``pairs`` want of float32 queries [b,d]."""
        ...

    def groups(self, prepared: Any) -> torch.Tensor:
        """float32 [b,g]: no row of the group has a larger score; -inf only where all rows of a group are hidden."""
        ...

    def pairs(self, prepared: Any, query: np.ndarray, group: np.ndarray) -> np.ndarray:
        """float32 [c,64], for c pairs of query and group: no less than each row's score; -inf for hidden rows."""
        ...

    def replace(self, rows: np.ndarray, vectors: np.ndarray, bias: np.ndarray | None) -> None:
        """Other vectors float32 [r,d] and biases [r] for the ascending, distinct rows int64 [r]."""
        ...


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

    def prepare(self, queries: torch.Tensor) -> CodedQueries:
        return code_queries(queries, planes=2 if len(queries) <= FEW_QUERIES else 1)

    def groups(self, prepared: CodedQueries) -> torch.Tensor:
        """See GroupScan.groups."""
        upper = np.empty((len(prepared), self._rows.groups), np.float32)
        self._kernel.scan(self._rows.struct(), prepared.struct(), upper)
        return torch.from_numpy(upper)

    def pairs(self, prepared: CodedQueries, query: np.ndarray, group: np.ndarray) -> np.ndarray:
        """See GroupScan.pairs."""
        upper = np.empty((len(query), GROUP), np.float32)
        self._kernel.rows(self._rows.struct(), prepared.struct(), query, group, upper)
        return upper

    def replace(self, rows: np.ndarray, vectors: np.ndarray, bias: np.ndarray | None) -> None:
        self._all_rows.replace(self._kernel, rows, vectors, bias)
