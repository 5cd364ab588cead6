"""The serving index: an approximate search of faiss's inverted lists, which measures its own recall and gives way to exact search.

A row lies, as 8-bit codes, in the list of its nearest centroid; a query looks into the likeliest lists, and the best rows by their codes
are scored exactly. How many lists that are is measured when the index is made: on sample queries, against exact search. Where no small
share of the rows reaches the floor, all searches are exact ones.
"""

import logging
from typing import Any

import numpy as np
import torch

from realm.index.base import Hidden
from realm.index.checks import checked_queries
from realm.index.compressed import CompressedIndex
from realm.index.faiss_index import ROWS_PER_CENTROID, FaissIvfIndex
from realm.index.mips import Metric
from realm.index.quality import share_found
from realm.index.scan import Best

logger = logging.getLogger(__name__)

FLOOR = 0.98
DEPTH = 8  # the k whose recall is measured
SMALLEST = 20_000  # rows below which an exact search takes no longer
LARGEST_SHARE = 0.25  # of the rows that a query may have to see: beyond it, an exact search takes hardly longer
SAMPLE = 256  # queries that say how many lists must be searched; as many others measure the recall
NOISE = 0.7  # of sample queries, in root mean squares of the components
SPARE, LEAST_FETCHED = 2, 16  # rows scored exactly: SPARE * k + LEAST_FETCHED
SEEN_PER_RESULT = 16  # rows that a query looks at for each result it wants, at least
LISTS_PER_ROOT = 4  # lists for n rows: this times the root of n
ROUNDS = 10  # of k-means
NEIGHBOURS, EFFORT = 32, 24  # of the graph of centroids by which rows find theirs
CHUNK = 1 << 18  # rows added at a time: bounds the memory of a copy


class ClusteredIndex(FaissIvfIndex):
    """Approximate search over n rows: scores and order are exact, a few of the best rows may be missing.

    Recall at DEPTH on the sample was at least ``floor``, or all searches are exact: ``info`` says which. The number of rows found is always
    that of the protocol.

    Args:
        vectors, ids, live, metric, values: see RowIndex; on a GPU all searches are exact. Memory-map the vectors: searches score few rows.
        floor: of the recall at DEPTH, 0 to 1.
        sample: float32 [s,d], queries to measure with, like those to come, at least two; None: rows of the index with noise.
        seed: of lists and sample.

    Raises:
        MissingExtra: faiss is not installed.
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
    ):
        if not 0 <= floor <= 1:
            raise ValueError(f"the floor of the recall must be in 0 to 1, not {floor}")
        self._floor, self._seed = floor, seed
        self._recall: float | None = None  # at DEPTH; None: not measured
        self._probed, self._seen = 0, 0.0  # lists that a query looks into, and the rows in them
        super().__init__(vectors, ids, live, metric=metric, values=values)
        if sample is not None:
            sample = checked_queries(sample, self.dim, self._vectors.device)
            if len(sample) < 2:
                raise ValueError(f"at least two sample queries are needed, not {len(sample)}")
        if not self._usable or not self._reaches_floor(self._made_up_queries() if sample is None else sample):
            self._usable = False
            self._index = None
            self._exact = CompressedIndex(self._vectors, self._ids, metric=metric)

    @property
    def approximate(self) -> bool:
        """Whether searches go through lists; False: they are exact."""
        return self._usable

    def info(self) -> dict[str, Any]:
        """See MipsIndex.info; also "approximate", "recall" (None: not measured) at "recall_at", "floor", "seen" (rows of a query)."""
        seen = round(self._seen) if self.approximate else len(self)
        measured = {"recall": self._recall, "recall_at": DEPTH, "floor": self._floor, "seen": seen}
        return {**super().info(), "approximate": self.approximate, **measured}

    def _bytes(self) -> int:
        return super()._bytes() if self.approximate else int(self._exact.info()["bytes"])

    def _worthwhile(self) -> bool:
        return self._vectors.device.type == "cpu" and len(self) >= SMALLEST

    def _build(self, vectors: np.ndarray) -> Any:
        """faiss's lists of 8-bit codes, each row in that of its nearest centroid; None without rows."""
        if not len(vectors):
            return None
        faiss, (n, dim) = self._faiss, vectors.shape
        lists = max(1, min(round(LISTS_PER_ROOT * n**0.5), n // ROWS_PER_CENTROID))
        rows = vectors[np.sort(np.random.default_rng(self._seed).integers(0, n, min(n, lists * ROWS_PER_CENTROID)))]
        centroids = self._centroids(rows, lists)
        # Rows find their centroid by a graph; queries, of which each looks into many lists, rank all centroids.
        graph, self._ranking = faiss.IndexHNSWFlat(dim, NEIGHBOURS), faiss.IndexFlat(dim, self._metric_type)
        graph.hnsw.efSearch = EFFORT
        for quantizer in (graph, self._ranking):
            quantizer.add(centroids)
        index = faiss.IndexIVFScalarQuantizer(graph, dim, len(centroids), faiss.ScalarQuantizer.QT_8bit, self._metric_type, False)
        index.train(rows)
        for start in range(0, n, CHUNK):
            index.add(np.ascontiguousarray(vectors[start : start + CHUNK]))
        index.quantizer = self._ranking
        self._sizes = np.array([index.invlists.list_size(number) for number in range(len(centroids))])
        return index

    def _centroids(self, rows: np.ndarray, lists: int) -> np.ndarray:
        """About ``lists`` centroids float32 [c,d] by k-means in two levels: of the rows, then of those of each cell."""
        cells = self._k_means(rows, max(1, round(lists**0.5)))
        cell = cells.assign(rows)[1]
        found = []
        for number in np.unique(cell):
            members = rows[cell == number]
            found.append(self._k_means(members, max(1, round(lists * len(members) / len(rows)))).centroids)
        return np.concatenate(found)

    def _k_means(self, rows: np.ndarray, count: int) -> Any:
        """For inner products centroids have length one, as faiss takes them: the likeliest list is the one they point to."""
        options = {"niter": ROUNDS, "seed": self._seed, "spherical": self._metric == "ip"}
        means = self._faiss.Kmeans(rows.shape[1], min(count, len(rows)), min_points_per_centroid=1, **options)
        means.train(rows)
        return means

    def _reaches_floor(self, sample: torch.Tensor) -> bool:
        """Look into as few lists as reach the floor on the sample, if that is a small share of the rows: whether it is."""
        live = None if self._removed is None else ~self._removed.numpy()
        exact = CompressedIndex(self._vectors, self._ids, live, metric=self._metric)
        halves = sample[: len(sample) // 2], sample[len(sample) // 2 :]
        wanted = [exact.search(half, DEPTH) for half in halves]
        self._probed = self._least_probed(DEPTH)
        while self._probed <= len(self._sizes):
            self._seen = float(self._sizes[self._ranking.search(sample.numpy(), self._probed)[1]].sum(axis=1).mean())
            if self._seen > LARGEST_SHARE * len(self):
                break
            first, self._recall = (share_found(truth, self.search(half, DEPTH), DEPTH) for truth, half in zip(wanted, halves, strict=True))
            if min(first, self._recall) >= self._floor:
                logger.info("clustered index: recall@%d %.3f with %d of %d rows a query", DEPTH, self._recall, self._seen, len(self))
                return True
            self._probed = self._probed * 5 // 4 + 1
        found = "more than a quarter of the rows would be seen" if self._recall is None else f"{self._recall:.3f}"
        logger.warning("clustered index: recall@%d: %s; the floor is %s: searches are exact", DEPTH, found, self._floor)
        return False

    def _made_up_queries(self) -> torch.Tensor:
        """Rows with noise, each as long as its row: float32 [2 * SAMPLE,d]."""
        generator = torch.Generator().manual_seed(self._seed)
        rows = self._vectors[torch.randint(len(self), (2 * SAMPLE,), generator=generator)]
        noise = torch.randn(rows.shape, generator=generator) * rows.square().mean(1, keepdim=True).sqrt()
        return torch.nn.functional.normalize(rows + NOISE * noise) * torch.linalg.vector_norm(rows, dim=1, keepdim=True)

    def _least_probed(self, k: int) -> int:
        """Lists that hold SEEN_PER_RESULT rows for each of k results."""
        return min(len(self._sizes), -(-SEEN_PER_RESULT * k * len(self._sizes) // len(self)))

    def _effort(self, k: int, attempt: int) -> tuple[int, dict[str, int]]:
        probed = len(self._sizes) if attempt else max(self._probed, self._least_probed(k))
        return SPARE * k + LEAST_FETCHED, {"nprobe": probed}

    def _best(self, queries: torch.Tensor, k: int, hidden: Hidden) -> Best:
        if self.approximate:
            self._index.parallel_mode = int(len(queries) == 1)  # one query: its lists are shared out among the threads
        return super()._best(queries, k, hidden)
