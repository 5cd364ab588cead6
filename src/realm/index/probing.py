"""Rows sorted by cluster and coded, so that a cluster is a run of groups; and the scan of the likeliest clusters of a query."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from realm.index.checks import refuse_row
from realm.index.clusters import Centroids, assign, learn_centroids
from realm.index.group_scan import GroupScan, NativeScan
from realm.index.library_scan import LibraryScan
from realm.index.mips import Metric
from realm.index.native.kernel import GROUP, Kernel, installed_kernel
from realm.index.quantised import ARRAYS, QuantisedRows, array_shapes

REACH = 5.0  # standard deviations above a centroid's score at which the best row of a cluster is expected
# Clusters for n rows: this times the root of n, some 730 rows each at 13 million. Ranking more costs more than a better choice saves.
CLUSTERS_PER_ROOT = 5
CHUNK = 1 << 16  # rows read in the new order at a time, a multiple of GROUP


@dataclass(frozen=True)
class ClusterFacts:
    """Of c clusters: means float32 [c,d]; spread float32 [c], the standard deviation of a component around its mean."""

    means: torch.Tensor
    spread: torch.Tensor

    def ranks(self, queries: torch.Tensor, metric: Metric) -> torch.Tensor:
        """The score that the best row of each cluster may have, up to a constant of the query: [b,c] for queries [b,d]."""
        scores = queries @ self.means.T
        if metric == "ip":
            return scores.addr_(torch.linalg.vector_norm(queries, dim=1), self.spread, alpha=REACH)
        # q.x - |x|^2 / 2 with x = mean + r: the mean's own, (q - mean).r and what |r|^2 costs.
        scores -= self.means.square().sum(1) / 2 + self.means.shape[1] * self.spread.square() / 2
        return scores.add_(torch.cdist(queries, self.means) * self.spread, alpha=REACH)


def cluster_count(n: int) -> int:
    """How many clusters are learnt for n rows."""
    return max(1, min(n // GROUP, round(CLUSTERS_PER_ROOT * n**0.5)))


class ClusterScan:
    """n rows by cluster.

    Args:
        vectors: float32 [n,d] on the CPU; read twice, kept only where no native kernel is (as a sorted copy).
        bias: float32 [n], added to inner products; None: zero.
        metric: how clusters are ranked.
        seed: of the clusters.
        start: centroids of nearly these vectors, which are then used instead of others being learnt; None: learnt.

    Raises:
        SnapshotError: a component that is not finite.
    """

    def __init__(self, vectors: torch.Tensor, bias: torch.Tensor | None, metric: Metric, seed: int = 0, start: Centroids | None = None):
        centroids = learn_centroids(vectors, cluster_count(len(vectors)), seed) if start is None else start
        self.cluster = assign(vectors, centroids)  # int32 [n]
        self._metric: Metric = metric
        self._order = np.argsort(self.cluster, kind="stable").astype(np.int32 if len(vectors) < 1 << 31 else np.int64)
        self._starts = np.searchsorted(self.cluster[self._order], np.arange(len(centroids.values) + 1))
        kernel = installed_kernel()
        self._facts, rows = self._read(vectors, bias, kernel)
        self.centroids = centroids.moved_to(self._facts.means, np.diff(self._starts))  # a better start for the next index
        if kernel is None or rows is None:
            sorted_rows = torch.from_numpy(self._order)
            self._scan: GroupScan = LibraryScan(vectors[sorted_rows], None if bias is None else bias[sorted_rows], torch.float32)
        else:
            self._scan = NativeScan(kernel, rows)
        self._showing: tuple[torch.Tensor | None, GroupScan] = (None, self._scan)

    @property
    def nbytes(self) -> int:
        return self._scan.nbytes + self._order.nbytes + self.cluster.nbytes + self._facts.means.nbytes

    @property
    def largest_norm(self) -> float:
        """At least the norm of every row."""
        return self._scan.largest_norm

    @property
    def clusters(self) -> int:
        return len(self._starts) - 1

    def without(self, removed: torch.Tensor | None) -> GroupScan:
        """The scan without the rows of ``removed`` bool [n] (None: of all), made once for each set of tombstones."""
        shown_without, scan = self._showing
        if shown_without is not removed:
            scan = self._scan.hidden(None if removed is None else removed[torch.from_numpy(self._order)])
            self._showing = removed, scan
        return scan

    def seen_until(self, queries: torch.Tensor, rows: np.ndarray) -> np.ndarray:
        """How many rows a query sees before the clusters of these rows int64 [b,k] are done: int64 [b,k]."""
        order = np.argsort(-self._facts.ranks(queries, self._metric).numpy(), axis=1)
        seen = np.diff(self._starts)[order].cumsum(axis=1)
        place = np.argsort(order, axis=1)
        return np.take_along_axis(seen, np.take_along_axis(place, self.cluster[rows].astype(np.int64), 1), 1)

    def probe(self, scan: GroupScan, queries: torch.Tensor, seen: int, best: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best rows, by the scan, of the likeliest clusters.

        Args:
            scan: of ``without``.
            queries: float32 [b,d].
            seen: rows that each query looks at, at least.
            best: int64 [b], how many it wants, at least 1.

        Returns:
            Pairs of query and row, int64 [c] each, ordered by query; fewer than wanted where the scan found fewer.
        """
        groups = [self._groups_of(ranks, seen) for ranks in self._facts.ranks(queries, self._metric).numpy()]
        numbers = np.repeat(np.arange(len(groups)), [len(some) for some in groups])
        upper = scan.pairs(scan.prepare(queries), numbers, np.concatenate(groups))
        stops = np.cumsum([len(some) for some in groups])
        found = []
        for query, (some, stop) in enumerate(zip(groups, stops, strict=True)):
            found.append(self._order[_best_rows(upper[stop - len(some) : stop], some, int(best[query]))].astype(np.int64))
        return np.repeat(np.arange(len(found)), [len(rows) for rows in found]), np.concatenate(found)

    def _groups_of(self, ranks: np.ndarray, seen: int) -> np.ndarray:
        """The groups that hold the best-ranked clusters with ``seen`` rows in all: int64 [g], ascending."""
        chosen = self._best_clusters(ranks, seen)
        first, last = self._starts[chosen] // GROUP, (self._starts[chosen + 1] - 1) // GROUP
        counts = last - first + 1
        groups = np.repeat(first - (counts.cumsum() - counts), counts) + np.arange(counts.sum())
        return groups[np.diff(groups, prepend=-1) > 0]  # neighbours share a group where one ends and the next begins

    def _best_clusters(self, ranks: np.ndarray, seen: int) -> np.ndarray:
        """The best of ranks [c] with ``seen`` rows in all, none of them empty: int64, ascending."""
        sizes = np.diff(self._starts)
        count = min(len(ranks), 2 * seen * len(ranks) // len(self._order) + 8)
        while True:  # a share of the clusters is sorted; twice their mean size is nearly always enough
            chosen = np.argpartition(ranks, len(ranks) - count)[len(ranks) - count :]
            chosen = chosen[np.argsort(-ranks[chosen])]
            total = sizes[chosen].cumsum()
            if total[-1] >= seen or count == len(ranks):
                break
            count = min(len(ranks), 4 * count)
        chosen = np.sort(chosen[: int(np.searchsorted(total, seen)) + 1])
        return chosen[sizes[chosen] > 0]

    def _read(self, vectors: torch.Tensor, bias: torch.Tensor | None, kernel: Kernel | None) -> tuple[ClusterFacts, QuantisedRows | None]:
        """One pass over the sorted rows: means, spreads, and codes where there is a kernel."""
        n, dim = vectors.shape
        sums, squares = np.zeros((self.clusters, dim)), np.zeros(self.clusters)
        arrays: dict[str, Any] = {name: np.empty(shape, kind) for name, (shape, kind) in array_shapes(n if kernel else 0, dim).items()}
        for start in range(0, n, CHUNK):
            rows = torch.from_numpy(self._order[start : start + CHUNK])
            part = vectors[rows].contiguous().numpy()
            some = None if bias is None else bias[rows].contiguous().numpy()
            if kernel:
                _code(kernel, arrays, start, part, some)
            cluster = self.cluster[rows.numpy()]
            runs = np.flatnonzero(np.diff(cluster, prepend=-1))
            sums[cluster[runs]] += np.add.reduceat(part, runs, axis=0)
            squares[cluster[runs]] += np.add.reduceat(np.einsum("rd,rd->r", part, part), runs)
        sizes = np.maximum(np.diff(self._starts), 1)
        means = sums / sizes[:, None]
        spread = np.sqrt(np.maximum(squares / sizes - np.square(means).sum(axis=1), 0) / dim)
        facts = ClusterFacts(torch.from_numpy(means.astype(np.float32)), torch.from_numpy(spread.astype(np.float32)))
        return facts, QuantisedRows(n, dim, **arrays) if kernel else None


def _code(kernel: Kernel, arrays: dict[str, Any], start: int, vectors: np.ndarray, bias: np.ndarray | None) -> None:
    """Fill the arrays of QuantisedRows for the rows from ``start``, the first of a group."""
    groups = slice(start // GROUP, -(-(start + len(vectors)) // GROUP))
    rows = slice(groups.start * GROUP, groups.stop * GROUP)
    part: dict[str, Any] = {name: arrays[name][rows if name in ("scale", "offset") else groups] for name in ARRAYS}
    refused = kernel.quantise(QuantisedRows(*vectors.shape, **part).struct(), vectors, bias)
    if refused >= 0:
        refuse_row(start + refused)


def _best_rows(upper: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Places of the ``count`` best rows that are not hidden, of scores [g,64] of these groups: int64 [r], in no order."""
    if len(groups) > count:
        # No more than ``count`` groups can hold them: those of the largest maxima.
        chosen = np.argpartition(upper.max(axis=1), -count)[-count:]
        upper, groups = upper[chosen], groups[chosen]
    flat = upper.ravel()
    chosen = np.argpartition(flat, -count)[-count:] if len(flat) > count else np.arange(len(flat))
    chosen = chosen[flat[chosen] > -np.inf]
    return groups[chosen // GROUP] * GROUP + chosen % GROUP
