"""The serving index: an approximate search of the likeliest clusters, which measures its own recall and gives way to exact search.

A query goes through the clusters in the order of the best score that each may hold until it has seen its share of the rows
(``realm.index.probing``); the best of them by the compressed scan are scored exactly.

How many rows that are is measured when the index is made: on sample queries, against exact search. Where no small share of the rows reaches
the floor, all searches are exact ones.
"""

import logging
from typing import Any

import numpy as np
import torch

from realm.index.base import Hidden, RowIndex
from realm.index.checks import checked_queries
from realm.index.clusters import Centroids
from realm.index.compressed import CompressedIndex
from realm.index.mips import Metric
from realm.index.probing import ClusterScan, cluster_count
from realm.index.quality import share_found
from realm.index.scan import SAFE_PRODUCT, Best, largest_score

logger = logging.getLogger(__name__)

FLOOR = 0.98
DEPTH = 8  # the k whose recall is measured
SMALLEST = 20_000  # rows below which an exact search takes no longer
LARGEST_SHARE = 0.25  # of the rows that a query may have to see: beyond it, an exact search takes hardly longer
SAMPLE = 256  # queries that say how many rows must be seen; as many others measure the recall
NOISE = 0.7  # of sample queries, in root mean squares of the components
SPARE, LEAST_LIST = 2, 16  # rows scored exactly: SPARE * k + LEAST_LIST
PROBED_ROWS = 1 << 24  # of all queries that are scanned together: bounds the memory of their scores
SEEN_PER_RESULT = 16  # rows that a query looks at for each result it wants, at least
WIDER = 4  # how many times as much is seen when a search found too little


class ClusteredIndex(RowIndex):
    """Approximate search over n rows: scores and order are exact, a few of the best rows may be missing.

    Recall at DEPTH on the sample was at least ``floor``, or all searches are exact: ``info`` says which. The number of rows found is always
    that of the protocol. Not for vectors that change in place: make a new one.

    Args:
        vectors, ids, live, metric, values: see RowIndex; on a GPU all searches are exact. Memory-map the vectors: searches score few rows.
        floor: of the recall at DEPTH, 0 to 1.
        sample: float32 [s,d], queries to measure with, like those to come, at least two; None: rows of the index with noise.
        seed: of clusters and sample.
        previous: an index of nearly the same vectors: its clusters, moved to where its rows were, are tried first. They are used if
            the recall measured with these vectors reaches the floor.

    Raises:
        SnapshotError: see RowIndex.
        ValueError: a floor outside 0 to 1, or sample queries that do not fit.
    """

    kind = "clustered"

    def __init__(
        self,
        vectors: np.ndarray | torch.Tensor,
        ids: np.ndarray,
        live: np.ndarray | None = None,
        *,
        metric: Metric = "ip",
        values: np.ndarray | None = None,
        floor: float = FLOOR,
        sample: torch.Tensor | None = None,
        seed: int = 0,
        previous: "ClusteredIndex | None" = None,
    ):
        if not 0 <= floor <= 1:
            raise ValueError(f"the floor of the recall must be in 0 to 1, not {floor}")
        super().__init__(vectors, ids, live, metric=metric, values=values)
        if sample is not None:
            sample = checked_queries(sample, self.dim, self._vectors.device)
            if len(sample) < 2:
                raise ValueError(f"at least two sample queries are needed, not {len(sample)}")
        self._floor = floor
        self._recall: float | None = None  # at DEPTH; None: not measured
        self._seen = 0  # rows that a query looks at
        self._clusters: ClusterScan | None = None  # None: all searches are exact
        self._exact: CompressedIndex | None = None
        largest = self._exact_index().largest_norm  # made here: it refuses rows that are not finite
        if self._vectors.device.type == "cpu" and len(self) >= SMALLEST and (1 + largest) ** 2 <= SAFE_PRODUCT:
            sample = self._made_up_queries(seed) if sample is None else sample
            start = None if previous is None else previous.centroids_for(len(self), self.dim)
            if start is None or not self._try_clusters(sample, seed, start):
                self._try_clusters(sample, seed, None)
            if self._clusters is None:
                self._exact_index()

    @property
    def approximate(self) -> bool:
        """Whether searches go through clusters; False: they are exact."""
        return self._clusters is not None

    def info(self) -> dict[str, Any]:
        """See MipsIndex.info; also "approximate", "recall" (None: not measured) at "recall_at", "floor", "seen" (rows of a query)."""
        seen = self._seen if self.approximate else len(self)
        measured = {"recall": self._recall, "recall_at": DEPTH, "floor": self._floor, "seen": seen}
        return {**super().info(), "approximate": self.approximate, **measured}

    def _bytes(self) -> int:
        if self._clusters is not None:
            return self._clusters.nbytes
        return int(self._exact_index().info()["bytes"])

    def _exact_index(self) -> CompressedIndex:
        """For what clusters cannot do; made at its first use, in a second for millions of rows. Tombstones come with each search."""
        if self._exact is None:
            self._exact = CompressedIndex(self._vectors, self._ids, metric=self._metric)
        return self._exact

    def centroids_for(self, n: int, dim: int) -> Centroids | None:
        """Where an index of n rows may start from; None: its searches are exact, or its clusters are twice too few or too many."""
        if self._clusters is None or self.dim != dim or not 0.5 <= self._clusters.clusters / cluster_count(n) <= 2:
            return None
        return self._clusters.centroids

    def _try_clusters(self, sample: torch.Tensor, seed: int, start: Centroids | None) -> bool:
        """Search by clusters from now on if that reaches the floor on the sample: whether it does."""
        half = len(sample) // 2
        truth, wanted = self.search(sample[:half], DEPTH), self.search(sample[half:], DEPTH)  # no clusters yet: exact
        bias = self._exact_index()._bias(self._vectors)
        self._exact = None
        clusters = ClusterScan(self._vectors, bias, self._metric, seed, start)
        rows = np.searchsorted(self._ids, np.where(truth.valid, truth.ids, self._ids[0]))
        needed = clusters.seen_until(sample[:half], rows)[truth.valid]
        # The scan itself loses a little, so the share aims half-way between the floor and all.
        self._seen = int(np.quantile(needed, (1 + self._floor) / 2)) if len(needed) else 1
        self._clusters = clusters
        while self._seen <= LARGEST_SHARE * len(self):
            self._recall = share_found(wanted, self.search(sample[half:], DEPTH), DEPTH)
            if self._recall >= self._floor:
                logger.info("clustered index: recall@%d %.3f with %d of %d rows a query", DEPTH, self._recall, self._seen, len(self))
                return True
            self._seen = self._seen * 5 // 4 + 1
        self._clusters = None
        instead = "searches are exact" if start is None else "clusters are learnt afresh"
        found = "more than a quarter of the rows would be seen" if self._recall is None else f"{self._recall:.3f}"
        logger.warning("clustered index: recall@%d: %s; the floor is %s: %s", DEPTH, found, self._floor, instead)
        return False

    def _made_up_queries(self, seed: int) -> torch.Tensor:
        """Rows with noise, each as long as its row: float32 [2 * SAMPLE,d]."""
        generator = torch.Generator().manual_seed(seed)
        rows = self._vectors[torch.randint(len(self), (2 * SAMPLE,), generator=generator)]
        noise = torch.randn(rows.shape, generator=generator) * rows.square().mean(1, keepdim=True).sqrt()
        return torch.nn.functional.normalize(rows + NOISE * noise) * torch.linalg.vector_norm(rows, dim=1, keepdim=True)

    def _best(self, queries: torch.Tensor, k: int, hidden: Hidden) -> Best:
        if self._clusters is None or not self._safe(self._clusters, queries):
            return self._exact_index()._best(queries, k, hidden)
        best = Best(len(queries), k)
        scan = self._clusters.without(hidden.removed)
        excluded = hidden.query * len(self) + hidden.row
        lists = SPARE * k + LEAST_LIST + np.bincount(hidden.query, minlength=len(queries))
        exact_queries = queries.numpy().astype(np.float64)
        waiting, seen = np.arange(len(queries)), min(max(self._seen, SEEN_PER_RESULT * k), len(self))
        while len(waiting):
            short = []
            for some in np.array_split(waiting, -(-len(waiting) * seen // PROBED_ROWS)):
                query, row = self._clusters.probe(scan, queries[torch.from_numpy(some)], seen, lists[some])
                allowed = ~np.isin(some[query] * len(self) + row, excluded)
                query, row = query[allowed], row[allowed]
                few = (np.bincount(query, minlength=len(some)) < k) & (seen < len(self))
                query, row = query[~few[query]], row[~few[query]]
                best.add(some[query], row, self._exact_scores(exact_queries, some[query], row))
                short.append(some[few])
            waiting, seen = np.concatenate(short), min(seen * WIDER, len(self))
        return best

    def _safe(self, clusters: ClusterScan, queries: torch.Tensor) -> bool:
        """Whether no score can overflow in the scan."""
        longest = float(torch.linalg.vector_norm(queries.double(), dim=1).max())
        return largest_score(clusters.largest_norm, longest, self._metric) <= SAFE_PRODUCT
