"""Exact search by a compressed scan: bounds from the scan say which rows deserve a float64 score.

1. The scan gives every group of 64 rows an upper bound of its best score.
2. The promising groups are looked at row by row: k of their rows have at least a score that serves as a floor (``listing``).
3. Every row whose bound reaches the floor is scored exactly; the bound rules out all others.

Where bounds cannot decide (so many rows reach the floor that the scan has saved nothing, or numbers so large that it could overflow) the
query is searched by ``ExactIndex``. The result is that of ``ExactIndex`` bit by bit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from realm.index.base import ExactIndex, Hidden, RowIndex
from realm.index.checks import checked_norms
from realm.index.group_scan import GroupScan, NativeRows, NativeScan
from realm.index.library_scan import LibraryScan, fastest_type
from realm.index.listing import Listed, Listing, round_down
from realm.index.mips import Metric
from realm.index.native.kernel import Kernel, installed_kernel
from realm.index.quantised import quantise
from realm.index.scan import SAFE_PRODUCT, Best, joined, largest_score

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
        kernel: the native kernel; None: the one built with the package, and PyTorch where none was.
        library: use PyTorch even where a kernel is.

    Raises:
        SnapshotError: see RowIndex.
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
        library: bool = False,
    ):
        super().__init__(vectors, ids, live, metric=metric, values=values)
        self._vectors = self._vectors.contiguous()
        native = None if library or self._vectors.device.type != "cpu" else kernel or installed_kernel()
        bias = self._bias(self._vectors)
        self._scan: GroupScan
        if native is None:
            device = self._vectors.device
            self._scan = LibraryScan(self._vectors, None if bias is None else bias.to(device), fastest_type(device))
        else:
            self._scan = NativeScan(native, quantise(native, self._vectors.numpy(), None if bias is None else bias.numpy()))
        self._showing: tuple[torch.Tensor | None, GroupScan] = (None, self._scan)
        self._exact: ExactIndex | None = None
        self.statistics = SearchStatistics(0, 0, 0.0)

    @property
    def largest_norm(self) -> float:
        """No row is longer, removed ones included; 0 without rows."""
        return self._scan.largest_norm

    def info(self) -> dict[str, Any]:
        """See MipsIndex.info; ``scan`` says what scans: "native avx2", "torch float32"."""
        return {**super().info(), "scan": self._scan.name}

    def _bytes(self) -> int:
        return self._scan.nbytes

    def _bias(self, vectors: torch.Tensor) -> torch.Tensor | None:
        """What ranks inner products as distances do, -|x|^2 / 2 as float32 [n]; None for inner products."""
        if self._metric == "ip":
            return None
        return (checked_norms(vectors).square() / -2).clamp_min(torch.finfo(torch.float32).min).float().cpu()

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
        exact_queries = queries.cpu().numpy().astype(np.float64)
        margin = self._margin(exact_queries)
        listed, floor, given_up = listing.possible_rows(k, margin)
        given_up |= ~self._safe(exact_queries)
        if given_up.any():
            listed = listed.without(given_up)
        if isinstance(listed, NativeRows):
            best, lengths = self._best_by_kernel(exact_queries, listed, k, floor, margin)
        else:
            best, lengths = self._best_listed(exact_queries, listed.reaching(floor), k, margin)
        if given_up.any():
            lengths[given_up] = -1
            scanned = self._scanned_exactly(queries, np.flatnonzero(given_up), k, hidden)
            best.add(scanned.query, scanned.row, scanned.score)
        return best, lengths

    def _best_by_kernel(
        self, queries: np.ndarray, listed: NativeRows, k: int, floor: np.ndarray, margin: np.ndarray
    ) -> tuple[Best, np.ndarray]:
        """The best of listed rows, and how many of each query were scored: int64 [b]."""
        request = (listed.address, listed.start(), k, floor, margin, self._metric == "l2")
        row, score, scored = listed.kernel.best(self._vectors.numpy(), queries, *request)
        return Best.of_matrices(row, score, np.minimum(scored, k)), scored

    def _best_listed(self, queries: np.ndarray, listed: Listed, k: int, margin: np.ndarray) -> tuple[Best, np.ndarray]:
        """The same in numpy. The k of the largest bounds come first: their scores are a better floor than any bound."""
        b, best = len(queries), Best(len(queries), k)
        first = listed.best(k)
        best.add(*self._scored(queries, listed.only(first)))
        floor = best.threshold
        if self._metric == "l2":  # as bounds are: of q.x - |x|^2 / 2
            floor = (floor + np.square(queries).sum(axis=1)) / 2
        others = listed.only(~first).reaching(round_down(floor - margin))
        best.add(*self._scored(queries, others))
        return best, np.bincount(listed.query[first], minlength=b) + np.bincount(others.query, minlength=b)

    def _scored(self, queries: np.ndarray, listed: Listed) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Query, row and score of listed rows."""
        return listed.query, listed.row, self._exact_scores(queries, listed.query, listed.row)

    def _shown(self, removed: torch.Tensor | None) -> GroupScan:
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
        best = self._exact._best(queries[torch.from_numpy(at).to(queries.device)], k, hidden.only(at))
        best.query = at[best.query]
        return best
