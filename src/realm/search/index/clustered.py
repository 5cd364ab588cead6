"""Approximate search by faiss's inverted lists, which measures its own recall and falls back to exact search. CPU only, extra "faiss".

A query scans the 8-bit codes in the lists of its nearest centroids, and the best rows are scored exactly."""

import logging
from typing import Any

import numpy as np

from realm.errors import needing
from realm.search.index.base import Best, Hidden, RowIndex
from realm.search.index.exact import SAFE_PRODUCT, CompressedIndex, ExactIndex, exact_index
from realm.search.index.mips import Metric, checked_queries, share_found

logger = logging.getLogger(__name__)

RECALL_FLOOR = 0.98  # default least recall at RECALL_DEPTH
RECALL_DEPTH = 8  # the k whose recall is measured
MIN_ROWS = 20_000  # rows below which an exact search takes no longer
MAX_SCANNED_SHARE = 0.25  # of the rows scanned per query, above which an exact search takes hardly longer
SAMPLE_QUERIES = 256  # queries that fix the number of lists; as many others measure the recall
SAMPLE_NOISE = 0.7  # of sample queries, in root mean squares of the components
RESCORED_PER_RESULT, MIN_RESCORED = 2, 16  # rows scored exactly: RESCORED_PER_RESULT * k + MIN_RESCORED
MIN_SCANNED_PER_RESULT = 16  # least number of rows scanned per result
LISTS_PER_ROOT = 4  # lists for n rows: this times the root of n
ROWS_PER_CENTROID = 39  # faiss's advice for k-means: fewer training rows per centroid make poor lists
KMEANS_ITERATIONS = 10  # of k-means
HNSW_NEIGHBOURS, HNSW_EF_SEARCH = 32, 24  # of the graph of centroids, with its search effort
ROWS_PER_ADD = 1 << 18  # rows added at a time, which bounds the memory of a copy


class ClusteredIndex(RowIndex):
    """Approximate search over n rows: scores and order are exact, a few of the best rows may be missing.

    Recall at RECALL_DEPTH on the sample was at least ``floor``, or all searches are exact (see ``info``). The number of rows found is
    always the protocol's.

    Memory-map the vectors: searches score few rows. ``floor``: 0 to 1; ``sample``: float32 [s,d], at least two queries to measure with,
    None: rows of the index with noise; the rest as for RowIndex. Raises MissingExtra: faiss is not installed; SnapshotError: see RowIndex;
    ValueError: a floor outside 0 to 1, or sample queries that do not fit."""

    kind = "clustered"

    _usable: bool
    _index: Any
    _exact: ExactIndex | CompressedIndex

    def __init__(
        self,
        vectors: np.ndarray,
        ids: np.ndarray,
        live: np.ndarray | None = None,
        *,
        metric: Metric = "ip",
        values: np.ndarray | None = None,
        floor: float = RECALL_FLOOR,
        sample: np.ndarray | None = None,
        seed: int = 0,
    ):
        if not 0 <= floor <= 1:
            raise ValueError(f"the floor of the recall must be in 0 to 1, not {floor}")
        self._floor, self._seed = floor, seed
        self._recall: float | None = None  # at RECALL_DEPTH; None: not measured
        self._probed, self._seen = 0, 0.0  # lists that a query looks into, and the rows in them
        super().__init__(vectors, ids, live, metric=metric, values=values)
        if sample is not None:
            sample = checked_queries(sample, self.dim)
            if len(sample) < 2:
                raise ValueError(f"at least two sample queries are needed, not {len(sample)}")
        if not self._usable or not self._reaches_floor(self._made_up_queries() if sample is None else sample):
            self._usable = False
            self._index = None
            self._exact = exact_index(self._vectors, self._ids, metric=metric)

    @property
    def approximate(self) -> bool:
        """True if searches go through lists; False: they are exact."""
        return self._usable

    def info(self) -> dict[str, Any]:
        """See MipsIndex.info; also "approximate", "recall" (None: not measured) at "recall_at", "floor", "seen" (rows of a query)."""
        seen = round(self._seen) if self.approximate else len(self)
        measured = {"recall": self._recall, "recall_at": RECALL_DEPTH, "floor": self._floor, "seen": seen}
        return {**super().info(), "approximate": self.approximate, **measured}

    def _bytes(self) -> int:
        if not self.approximate:
            return int(self._exact.info()["bytes"])
        return len(self) * (int(self._index.code_size) + 8) + len(self._sizes) * self.dim * 4

    def _prepare(self) -> None:
        with needing(f"the index kind {self.kind}", "faiss"):
            import faiss
        self._faiss: Any = faiss
        self._exact = ExactIndex(self._vectors, self._ids, metric=self._metric)
        self._selected: tuple[np.ndarray, Any] | None = None
        # Where squares would overflow in float32, as faiss takes them, it is not asked: k-means would make NaN of them, in silence.
        self._usable = len(self) >= MIN_ROWS and self._exact.largest_norm**2 < SAFE_PRODUCT
        self._index = self._build(self._vectors) if self._usable else None

    @property
    def _metric_type(self) -> int:
        return int(self._faiss.METRIC_INNER_PRODUCT if self._metric == "ip" else self._faiss.METRIC_L2)

    def _build(self, vectors: np.ndarray) -> Any:
        """Build faiss's lists of 8-bit codes, each row in that of its nearest centroid."""
        faiss, (n, dim) = self._faiss, vectors.shape
        lists = max(1, min(round(LISTS_PER_ROOT * n**0.5), n // ROWS_PER_CENTROID))
        rows = vectors[np.sort(np.random.default_rng(self._seed).integers(0, n, min(n, lists * ROWS_PER_CENTROID)))]
        centroids = self._centroids(rows, lists)
        # Rows find their centroid by a graph; queries, of which each looks into many lists, rank all centroids.
        graph, self._ranking = faiss.IndexHNSWFlat(dim, HNSW_NEIGHBOURS), faiss.IndexFlat(dim, self._metric_type)
        graph.hnsw.efSearch = HNSW_EF_SEARCH
        for quantizer in (graph, self._ranking):
            quantizer.add(centroids)
        index = faiss.IndexIVFScalarQuantizer(graph, dim, len(centroids), faiss.ScalarQuantizer.QT_8bit, self._metric_type, False)
        index.train(rows)
        for start in range(0, n, ROWS_PER_ADD):
            index.add(np.ascontiguousarray(vectors[start : start + ROWS_PER_ADD]))
        index.quantizer = self._ranking
        self._sizes = np.array([index.invlists.list_size(number) for number in range(len(centroids))])
        return index

    def _centroids(self, rows: np.ndarray, lists: int) -> np.ndarray:
        """About ``lists`` centroids float32 [c,d] by k-means in two levels: of the rows, then within each cell."""
        cells = self._k_means(rows, max(1, round(lists**0.5)))
        cell = cells.assign(rows)[1]
        found = []
        for number in np.unique(cell):
            members = rows[cell == number]
            found.append(self._k_means(members, max(1, round(lists * len(members) / len(rows)))).centroids)
        return np.concatenate(found)

    def _k_means(self, rows: np.ndarray, count: int) -> Any:
        """Run k-means, for inner products with centroids of length one: the likeliest list is then the one they point to."""
        options = {"niter": KMEANS_ITERATIONS, "seed": self._seed, "spherical": self._metric == "ip"}
        means = self._faiss.Kmeans(rows.shape[1], min(count, len(rows)), min_points_per_centroid=1, **options)
        means.train(rows)
        return means

    def _reaches_floor(self, sample: np.ndarray) -> bool:
        """Find the least number of lists that reaches the floor on the sample; False if that is no small share of the rows."""
        live = None if self._removed is None else ~self._removed
        exact = exact_index(self._vectors, self._ids, live, metric=self._metric)
        halves = sample[: len(sample) // 2], sample[len(sample) // 2 :]
        wanted = [exact.search(half, RECALL_DEPTH) for half in halves]
        self._probed = self._least_probed(RECALL_DEPTH)
        while self._probed <= len(self._sizes):
            self._seen = float(self._sizes[self._ranking.search(sample, self._probed)[1]].sum(axis=1).mean())
            if self._seen > MAX_SCANNED_SHARE * len(self):
                break
            first, self._recall = (
                share_found(truth, self.search(half, RECALL_DEPTH), RECALL_DEPTH) for truth, half in zip(wanted, halves, strict=True)
            )
            if min(first, self._recall) >= self._floor:
                logger.info("clustered index: recall@%d %.3f with %d of %d rows a query", RECALL_DEPTH, self._recall, self._seen, len(self))
                return True
            self._probed = self._probed * 5 // 4 + 1
        found = "more than a quarter of the rows would be seen" if self._recall is None else f"{self._recall:.3f}"
        logger.warning("clustered index: recall@%d: %s; the floor is %s: searches are exact", RECALL_DEPTH, found, self._floor)
        return False

    def _made_up_queries(self) -> np.ndarray:
        """Rows with noise, each as long as its row: float32 [2 * SAMPLE_QUERIES,d]."""
        rng = np.random.default_rng(self._seed)
        rows = self._vectors[rng.integers(0, len(self), 2 * SAMPLE_QUERIES)]
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        noisy = rows + SAMPLE_NOISE * length / self.dim**0.5 * rng.standard_normal(rows.shape, np.float32)
        made: np.ndarray = noisy * (length / np.maximum(np.linalg.norm(noisy, axis=1, keepdims=True), np.finfo(np.float32).tiny))
        return made.astype(np.float32)

    def _least_probed(self, k: int) -> int:
        return min(len(self._sizes), -(-MIN_SCANNED_PER_RESULT * k * len(self._sizes) // len(self)))

    def _best(self, queries: np.ndarray, k: int, hidden: Hidden) -> Best:
        if self.approximate:
            self._index.parallel_mode = int(len(queries) == 1)  # one query: its lists are shared out among the threads
        best = Best(len(queries), k)
        double = queries.astype(np.float64)
        promised = np.minimum(k, hidden.available(len(queries), len(self)))
        fits = self._usable & ((1 + self._exact.largest_norm + np.linalg.norm(double, axis=1)) ** 2 < SAFE_PRODUCT)
        pending = np.flatnonzero(fits)
        for probed in (max(self._probed, self._least_probed(k)), len(self._sizes)) if len(pending) else ():
            found = self._proposed(queries[pending], double[pending], k, hidden.only(pending), probed)
            settled = np.bincount(found.query, minlength=len(pending)) == promised[pending]
            done = settled[found.query]
            best.add(pending[found.query[done]], found.row[done], found.score[done])
            pending = pending[~settled]
            if not len(pending):
                break
        pending = np.union1d(pending, np.flatnonzero(~fits))
        if len(pending):
            found = self._exact._best(queries[pending], k, hidden.only(pending))
            best.add(pending[found.query], found.row, found.score)
        return best

    def _proposed(self, single: np.ndarray, double: np.ndarray, k: int, hidden: Hidden, probed: int) -> Best:
        """The best rows of ``probed`` lists for queries [b,d] as float32 and float64, with spares for exclusion lists."""
        fetched = min(len(self), RESCORED_PER_RESULT * k + MIN_RESCORED + hidden.most_excluded())
        parameters = self._faiss.SearchParametersIVF(sel=self._selector(hidden.removed), nprobe=probed)
        rows = self._index.search(single, fetched, params=parameters)[1]
        query, column = np.nonzero(rows >= 0)
        row = rows[query, column]
        allowed = hidden.allows(query, row)
        query, row = query[allowed], row[allowed]
        best = Best(len(single), k)
        best.add(query, row, self._exact_scores(double, query, row))
        return best

    def _selector(self, removed: np.ndarray | None) -> Any:
        """faiss's selector of live rows, cached as long as the tombstones are the same object."""
        if removed is None:
            return None
        selected = self._selected
        if selected is None or selected[0] is not removed:
            bits = np.packbits(~removed, bitorder="little")
            self._selected = selected = (removed, self._faiss.IDSelectorBitmap(bits))
        return selected[1]
