"""Exact search by a compressed scan: bounds from the scan say which rows deserve a float64 score.

1. The scan gives every group of 64 rows an upper bound of its best score.
2. The promising groups are looked at row by row: k of their rows have at least a score that serves as a floor (``listing``).
3. Every row whose bound reaches the floor is scored exactly; the bound rules out all others.

Where bounds cannot decide (so many rows reach the floor that the scan has saved nothing, or numbers so large that it could overflow) the
query is searched by ``ExactIndex``. The result is that of ``ExactIndex`` bit by bit. It needs the native kernel, and vectors on the CPU.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from realm.search.index.base import Best, Hidden, RowIndex, joined
from realm.search.index.checks import checked_norms
from realm.search.index.exact import SAFE_PRODUCT, ExactIndex, largest_score
from realm.search.index.listing import CodeScan, Listing
from realm.search.index.mips import Metric
from realm.search.index.native.kernel import Kernel, installed_kernel
from realm.search.index.quantised import quantise

SCAN_QUERIES = 64  # queries that share a pass over the rows


@dataclass(frozen=True)
class SearchStatistics:
    """Of the last search: queries, how many of them were scanned exactly, and the mean number of rows that the others scored exactly."""

    queries: int
    scanned_exactly: int
    mean_list: float


class CompressedIndex(RowIndex):
    """Exact search over n rows by a compressed scan. The full-precision vectors only serve to score single rows: memory-map them.

    Args:
        vectors, ids, live, metric, values: see RowIndex.
        kernel: the native kernel; None: the one built with the package.

    Raises:
        SnapshotError: see RowIndex.
        ValueError: there is no kernel, or the vectors are not on the CPU; ``exact_index`` asks first.
    """

    kind = "compressed"

    def __init__(
        self,
        vectors: np.ndarray | torch.Tensor,
        ids: np.ndarray,
        live: np.ndarray | None = None,
        *,
        metric: Metric = "ip",
        values: np.ndarray | None = None,
        kernel: Kernel | None = None,
    ):
        super().__init__(vectors, ids, live, metric=metric, values=values)
        kernel = kernel or installed_kernel()
        if kernel is None or self._vectors.device.type != "cpu":
            raise ValueError("compressed search needs the native kernel, and vectors on the CPU")
        self._kernel = kernel
        self._vectors = self._vectors.contiguous()
        self._scan = CodeScan(kernel, quantise(kernel, self._vectors.numpy(), self._bias()))
        self._showing: tuple[torch.Tensor | None, CodeScan] = (None, self._scan)
        self._exact: ExactIndex | None = None
        self.statistics = SearchStatistics(0, 0, 0.0)

    @property
    def largest_norm(self) -> float:
        """No row is longer, removed ones included; 0 without rows."""
        return self._scan.largest_norm

    def info(self) -> dict[str, Any]:
        """See MipsIndex.info; ``scan`` says what the kernel uses: "avx2", "avx512-vnni"."""
        return {**super().info(), "scan": self._kernel.level}

    def _bytes(self) -> int:
        return self._scan.nbytes

    def _bias(self) -> np.ndarray | None:
        """What ranks inner products as distances do, -|x|^2 / 2 as float32 [n]; None for inner products."""
        if self._metric == "ip":
            return None
        return (checked_norms(self._vectors).square() / -2).clamp_min(torch.finfo(torch.float32).min).float().numpy()

    def _best(self, queries: torch.Tensor, k: int, hidden: Hidden) -> Best:
        parts: list[Best] = []
        lengths = np.zeros(len(queries), np.int64)
        for start in range(0, len(queries), SCAN_QUERIES):
            part = slice(start, min(start + SCAN_QUERIES, len(queries)))
            found, lengths[part] = self._best_of_part(queries[part], k, hidden.only(np.arange(part.start, part.stop)))
            found.query += start
            parts.append(found)
        listed = lengths[lengths >= 0]
        self.statistics = SearchStatistics(len(lengths), int((lengths < 0).sum()), float(listed.mean()) if len(listed) else 0.0)
        return joined(parts)

    def _best_of_part(self, queries: torch.Tensor, k: int, hidden: Hidden) -> tuple[Best, np.ndarray]:
        """The best rows, and of each query the number of rows that were scored exactly: int64 [b], -1 where that was all of them."""
        listing = Listing(self._shown(hidden.removed), queries, hidden, len(self))
        exact_queries = queries.numpy().astype(np.float64)
        margin = self._margin(exact_queries)
        listed, floor, given_up = listing.possible_rows(k, margin)
        given_up |= ~self._safe(exact_queries)
        if given_up.any():
            listed = listed.without(given_up)
        request = (listed.address, listed.start(), k, floor, margin, self._metric == "l2")
        row, score, lengths = self._kernel.best(self._vectors.numpy(), exact_queries, *request)
        best = Best.of_matrices(row, score, np.minimum(lengths, k))
        if given_up.any():
            lengths[given_up] = -1
            scanned = self._scanned_exactly(queries, np.flatnonzero(given_up), k, hidden)
            best.add(scanned.query, scanned.row, scanned.score)
        return best, lengths

    def _shown(self, removed: torch.Tensor | None) -> CodeScan:
        """The scan without the rows that one search must not see; made once for each set of tombstones."""
        shown_without, scan = self._showing
        if shown_without is not removed:
            scan = self._scan.hidden(removed)
            self._showing = removed, scan
        return scan

    def _safe(self, queries: np.ndarray) -> np.ndarray:
        """Of which queries no score can overflow in the scan: bool [b]."""
        return largest_score(self.largest_norm, np.linalg.norm(queries, axis=1), self._metric) <= SAFE_PRODUCT

    def _margin(self, queries: np.ndarray) -> np.ndarray:
        """What the defined scores of a query may be off in terms of what bounds speak of, beyond the bounds' own room: float64 [b]."""
        if self._metric == "ip":
            return np.zeros(len(queries))
        return 32 * (self.dim + 8) * 2.0**-53 * np.square(queries).sum(axis=1)  # they say |q - x|^2, bounds q.x - |x|^2 / 2

    def _scanned_exactly(self, queries: torch.Tensor, at: np.ndarray, k: int, hidden: Hidden) -> Best:
        """The best rows of the queries ``at`` by a full scan."""
        if self._exact is None:
            self._exact = ExactIndex(self._vectors, self._ids, metric=self._metric)
        best = self._exact._best(queries[torch.from_numpy(at)], k, hidden.only(at))
        best.query = at[best.query]
        return best


def exact_index(
    vectors: np.ndarray | torch.Tensor,
    ids: np.ndarray,
    live: np.ndarray | None = None,
    *,
    metric: Metric = "ip",
    values: np.ndarray | None = None,
) -> ExactIndex | CompressedIndex:
    """The compressed index where it can be, else the exact one: the same results. Arguments and errors: see RowIndex."""
    on_cpu = not isinstance(vectors, torch.Tensor) or vectors.device.type == "cpu"
    kind = CompressedIndex if on_cpu and installed_kernel() is not None else ExactIndex
    return kind(vectors, ids, live, metric=metric, values=values)
