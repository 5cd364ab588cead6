"""faiss behind the protocol: Flat (exact), IVF, and IVF-PQ with refine. It needs the extra "faiss" and searches on the CPU.

faiss proposes rows; each is scored again by our own definition, so that scores and order compare between kinds, and PQ needs no second
copy of the vectors for its refine step. Removed rows are left out by a selector. For exclusion lists more rows are fetched: as many more
as the longest list is long. A query that gets too few rows that way, or whose rows (Flat) rounding could have misplaced, is searched with
more effort and at last exactly: everybody gets exactly min(k, live rows that are not excluded) rows.
"""

from abc import abstractmethod
from typing import Any

import numpy as np
import torch

from realm.errors import MissingExtra
from realm.index.base import ExactIndex, Hidden, RowIndex
from realm.index.compressed import CompressedIndex
from realm.index.scan import SAFE_PRODUCT, Best

MOST_LISTS = 4096
ROWS_PER_CENTROID = 39  # faiss's own advice for k-means: fewer training rows a centroid make poor lists
TRAINING_PER_LIST = 64  # rows of the training sample for each list, spread evenly over all rows
PROBED = 16  # one list in so many is searched, but never fewer than LEAST_PROBED
LEAST_PROBED = 8
PQ_CENTROIDS = 16  # 4-bit codes: faiss scans them with SIMD table look-ups


def list_count(n: int) -> int:
    """Lists of an inverted file over n rows: 4 sqrt(n), at most MOST_LISTS and n / ROWS_PER_CENTROID, at least 1."""
    return max(1, min(MOST_LISTS, round(4 * n**0.5), n // ROWS_PER_CENTROID))


class _FaissIndex(RowIndex):
    """Rows proposed by faiss, scored by us; see the subclasses.

    Raises:
        MissingExtra: faiss is not installed.
        (others): see RowIndex.
    """

    def _prepare(self) -> None:
        try:
            import faiss
        except ImportError:
            raise MissingExtra(f"the index kind {self.kind}", "faiss") from None
        self._faiss: Any = faiss
        self._exact: ExactIndex | CompressedIndex = ExactIndex(self._vectors, self._ids, metric=self._metric)
        self._selected: tuple[torch.Tensor, Any] | None = None
        # Where squares would overflow in float32, as faiss takes them, it is not asked: k-means would make NaN of them, in silence.
        self._usable = self._exact.largest_norm**2 < SAFE_PRODUCT and self._worthwhile()
        self._index = self._build(self._vectors.cpu().numpy() if self._usable else np.zeros((0, self.dim), np.float32))

    def _worthwhile(self) -> bool:
        """Whether faiss is asked at all."""
        return True

    @property
    def _metric_type(self) -> int:
        return int(self._faiss.METRIC_INNER_PRODUCT if self._metric == "ip" else self._faiss.METRIC_L2)

    @abstractmethod
    def _build(self, vectors: np.ndarray) -> Any:
        """The faiss index of float32 vectors [n,d]; n may be 0."""

    @abstractmethod
    def _effort(self, k: int, attempt: int) -> tuple[int, dict[str, int]]:
        """Rows to fetch before any are dropped, and faiss's search parameters, for the first (0) and the second (1) attempt."""

    @abstractmethod
    def _settled(self, best: Best, queries: np.ndarray, last: np.ndarray, complete: np.ndarray, promised: np.ndarray) -> np.ndarray:
        """Which queries are done, bool [b].

        Args:
            best: the rows found.
            queries: float64 [b,d].
            last: faiss's score of the last row it returned, float64 [b].
            complete: bool [b], whether faiss had no more rows.
            promised: rows each query must get, int64 [b].
        """

    def _best(self, queries: torch.Tensor, k: int, hidden: Hidden) -> Best:
        best = Best(len(queries), k)
        single = queries.cpu().numpy()
        double = single.astype(np.float64)
        promised = np.minimum(k, hidden.available(len(queries), len(self)))
        fits = self._usable & ((1 + self._exact.largest_norm + np.linalg.norm(double, axis=1)) ** 2 < SAFE_PRODUCT)
        pending = np.flatnonzero(fits)
        for attempt in (0, 1) if len(pending) else ():
            found, settled = self._attempt(single[pending], double[pending], k, hidden.only(pending), promised[pending], attempt)
            done = settled[found.query]
            best.add(pending[found.query[done]], found.row[done], found.score[done])
            pending = pending[~settled]
            if not len(pending):
                break
        pending = np.union1d(pending, np.flatnonzero(~fits))
        if len(pending):
            found = self._exact._best(queries[torch.from_numpy(pending).to(queries.device)], k, hidden.only(pending))
            best.add(pending[found.query], found.row, found.score)
        return best

    def _attempt(
        self, single: np.ndarray, double: np.ndarray, k: int, hidden: Hidden, promised: np.ndarray, attempt: int
    ) -> tuple[Best, np.ndarray]:
        """One search by faiss: the best rows by our score, and which queries are done with."""
        fetch, parameters = self._effort(k, attempt)
        fetch = min(len(self), fetch + hidden.most_excluded())
        kind = self._faiss.SearchParametersIVF if parameters else self._faiss.SearchParameters
        scores, rows = self._index.search(single, fetch, params=kind(sel=self._selector(hidden.removed), **parameters))
        query, column = np.nonzero(rows >= 0)
        row = rows[query, column]
        allowed = hidden.allows(query, row)
        query, row = query[allowed], row[allowed]
        best = Best(len(single), k)
        best.add(query, row, self._exact_scores(double, query, row))
        last = scores[:, -1].astype(np.float64) * (1 if self._metric == "ip" else -1)
        complete = (rows[:, -1] < 0) | (fetch >= len(self))
        return best, self._settled(best, double, last, complete, promised)

    def _selector(self, removed: torch.Tensor | None) -> Any:
        """What tells faiss the live rows; kept as long as the tombstones are the same object."""
        if removed is None:
            return None
        selected = self._selected
        if selected is None or selected[0] is not removed:
            bits = np.packbits(~removed.cpu().numpy(), bitorder="little")
            self._selected = selected = (removed, self._faiss.IDSelectorBitmap(bits))
        return selected[1]


class FaissFlatIndex(_FaissIndex):
    """faiss IndexFlat: every row, exact. Rows of its float32 scores are checked by a bound on their rounding.

    Args: see RowIndex. The vectors are copied.
    """

    kind = "faiss-flat"

    def _build(self, vectors: np.ndarray) -> Any:
        index = self._faiss.IndexFlat(self.dim, self._metric_type)
        index.add(vectors)
        return index

    def _bytes(self) -> int:
        return int(self._index.ntotal) * self.dim * 4

    def _effort(self, k: int, attempt: int) -> tuple[int, dict[str, int]]:
        return (k + 32) * 8**attempt, {}

    def _settled(self, best: Best, queries: np.ndarray, last: np.ndarray, complete: np.ndarray, promised: np.ndarray) -> np.ndarray:
        """Where no row that faiss left out can reach the k-th best, by the error bound of ``realm.index.scan`` taken twice."""
        norms, largest = np.linalg.norm(queries, axis=1), self._exact.largest_norm
        size = norms * largest if self._metric == "ip" else (norms + largest) ** 2
        bound = 4 * (self.dim + 8) * np.finfo(np.float32).eps * size + 1e-30
        return complete | (best.threshold > last + bound)


class FaissIvfIndex(_FaissIndex):
    """faiss IndexIVFFlat: approximate, looks into one list of rows in PROBED.

    Lists: ``list_count``; trained on TRAINING_PER_LIST rows a list. Where that makes one list the search is exhaustive.

    Args: see RowIndex. The vectors are copied.
    """

    kind = "faiss-ivf"

    def _factory(self, lists: int) -> str:
        return f"IVF{lists},Flat"

    def _build(self, vectors: np.ndarray) -> Any:
        n = len(vectors)
        lists = list_count(n)
        index = self._faiss.index_factory(self.dim, self._factory(lists), self._metric_type)
        if n:
            index.cp.min_points_per_centroid = 1  # a tiny corpus is not worth a warning
            index.train(vectors[np.linspace(0, n - 1, min(n, max(lists * TRAINING_PER_LIST, 1024))).astype(np.int64)])
            index.add(vectors)
        return index

    def _bytes(self) -> int:
        return int(self._index.ntotal) * (int(self._index.code_size) + 8) + int(self._index.nlist) * self.dim * 4

    def _effort(self, k: int, attempt: int) -> tuple[int, dict[str, int]]:
        lists = int(self._index.nlist)
        return k, {"nprobe": lists if attempt else min(lists, max(LEAST_PROBED, lists // PROBED))}

    def _settled(self, best: Best, queries: np.ndarray, last: np.ndarray, complete: np.ndarray, promised: np.ndarray) -> np.ndarray:
        return np.bincount(best.query, minlength=len(promised)) == promised


class FaissIvfPqIndex(FaissIvfIndex):
    """faiss IVF with 4-bit product codes of 2 to 4 components each, refined: 4 k + 100 rows are scored again by their full vectors.

    Below ROWS_PER_CENTROID * PQ_CENTROIDS rows, which are too few to train codes, it keeps the vectors as faiss-ivf does.

    Args: see RowIndex.
    """

    kind = "faiss-ivfpq"

    def _factory(self, lists: int) -> str:
        if len(self) < ROWS_PER_CENTROID * PQ_CENTROIDS:
            return super()._factory(lists)
        parts = next((self.dim // size for size in (2, 3, 4) if self.dim % size == 0), self.dim)
        return f"IVF{lists},PQ{parts}x4fs"

    def _effort(self, k: int, attempt: int) -> tuple[int, dict[str, int]]:
        fetch, parameters = super()._effort(k, attempt)
        return 4 * fetch + 100, parameters
