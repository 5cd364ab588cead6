"""Exact search: by the full vectors, or by a compressed scan on the CPU with the same result bit by bit.

A matrix product, or the native kernel's scan of codes, bounds the scores; float64 decides among the rows that the bounds admit."""

from typing import Any, TypeVar

import numpy as np

from realm.search.index.base import Best, Hidden, RowIndex, joined
from realm.search.index.listing import CodeScan, Listing
from realm.search.index.mips import Metric, checked_norms
from realm.search.index.native.kernel import Kernel, installed_kernel
from realm.search.index.quantised import quantise

# Added to every norm in the error bound: pays for products that underflow or are flushed to zero.
NORM_FLOOR = 2.0**-50
# Above this product of norms a float32 score could overflow, and the scan is done in float64.
SAFE_PRODUCT = 1e37
Norms = TypeVar("Norms", float, np.ndarray)


def largest_score(row_norm: float, query_norms: Norms, metric: Metric) -> Norms:
    """Upper bound of scores of such rows and of their intermediate values, to be compared with ``SAFE_PRODUCT``."""
    return (1 + row_norm) * (1 + query_norms) if metric == "ip" else (1 + row_norm + query_norms) ** 2


class Scan:
    """Bounds on scores of float32 queries [b,d] by one matrix product; -inf for rows that must not be returned.

    Bounded is q.x for metric "ip", and for "l2" q.x - |x|^2 / 2, which orders rows like minus their squared distance. With u the roundoff
    of the scan's type, its error is at most 2 (d + 8) u |q| |x| from the product, for "l2" 2 (d + 8) u |x|^2 more from the squares, and,
    for all rows of a query alike, ``margin``: the error of the float64 scores |q - x|^2 in terms of |q|^2."""

    def __init__(self, queries: np.ndarray, largest_norm: float, metric: Metric, place: "Host | Accelerator"):
        norms = np.linalg.norm(queries.astype(np.float64), axis=1)
        overflow = largest_score(largest_norm, float(norms.max()), metric) > SAFE_PRODUCT
        self.metric = metric
        self.place = HOST if overflow else place
        self.dtype = np.dtype(np.float64 if overflow else np.float32)
        self.queries = self.place.put(queries.astype(self.dtype))
        # d * roundoff bounds the matrix product; the factor 2 and the 8 pay for the final scores' and the bounds' own rounding.
        exact = 2 * (queries.shape[1] + 8) * 2.0**-53
        self.relative = exact if overflow else 2 * (queries.shape[1] + 8) * 2.0**-24 + 4 * self.place.rounding
        self.error = self._put(self.relative * (norms + NORM_FLOOR))  # [b], to be multiplied by the norm of a row
        self.squares = np.square(norms)
        self.margin = np.zeros(len(norms)) if metric == "ip" else 8 * exact * self.squares  # float64 [b]

    def lower_bounds(self, vectors: Any, norms: np.ndarray) -> Any:
        """Bounded score minus its possible error: [b,r] for vectors [r,d] with norms float64 [r]."""
        scores = self.place.products(self.queries, vectors)
        scores -= self.error[:, None] * self._row_factor(norms)
        if self.metric == "l2":
            scores -= self._put(np.square(norms) / 2) + self._row_error(norms)
        return scores

    def candidates(self, lower: Any, norms: np.ndarray, threshold: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The (query, row) pairs of a block that may belong to the top k: int64 [c] each, by query.

        ``lower`` [b,r] are lower bounds, ``norms`` float64 [r]; ``threshold`` float64 [b] is the k-th best exact score so far, or -inf."""
        upper = lower + 2 * self.error[:, None] * self._row_factor(norms)
        if self.metric == "l2":
            upper += 2 * self._row_error(norms)
            threshold = (threshold + self.squares) / 2  # of -|q - x|^2 in terms of q.x - |x|^2 / 2
        margin = self.place.put(_round_down(-self.margin, self.dtype))
        floor = self.place.put(_round_down(threshold, self.dtype)) + margin
        possible = (upper >= floor[:, None]) & (upper > -np.inf)
        if int(possible.sum()) > 2 * k * len(lower) and lower.shape[1] > k:
            # k rows of this block reach at least the k-th largest lower bound: nothing with an upper bound below it can be among the best.
            possible &= upper >= (self.place.kth_largest(lower, k) + margin)[:, None]
        query, row = np.nonzero(self.place.get(possible))
        return query, row

    def _put(self, values: np.ndarray) -> Any:
        return self.place.put(values.astype(self.dtype))

    def _row_factor(self, norms: np.ndarray) -> Any:
        return self._put(norms * (1 + 1e-9) + NORM_FLOOR)

    def _row_error(self, norms: np.ndarray) -> Any:
        """Part of the error from the squares: [r]."""
        return self._put(self.relative * np.square(norms * (1 + 1e-9) + NORM_FLOOR))


class Host:
    """Scans by numpy, in this machine's memory."""

    rounding = 0.0  # relative, of the inputs of a product

    def put(self, values: np.ndarray) -> np.ndarray:
        return values

    def get(self, values: np.ndarray) -> np.ndarray:
        return values

    def products(self, queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return queries @ vectors.astype(queries.dtype, copy=False).T

    def kth_largest(self, scores: np.ndarray, k: int) -> np.ndarray:
        return np.partition(scores, -k, axis=1)[:, -k]


HOST = Host()


class Accelerator:
    """Scans by torch, in the memory of a device."""

    def __init__(self, device: str):
        import torch

        self._torch, self._device = torch, device
        # Under torch.set_float32_matmul_precision products round their inputs (TF32, bf16).
        self.rounding = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-8}[torch.get_float32_matmul_precision()]

    def put(self, values: np.ndarray) -> Any:
        return self._torch.tensor(values, device=self._device)

    def get(self, values: Any) -> np.ndarray:
        found: np.ndarray = values.cpu().numpy()
        return found

    def products(self, queries: Any, vectors: Any) -> Any:
        # Mixed precision around the caller's step must not reach the scores: the error bound is that of float32.
        with self._torch.autocast(self._torch.device(self._device).type, enabled=False):
            return queries @ vectors.T

    def kth_largest(self, scores: Any, k: int) -> Any:
        return scores.topk(k, dim=1).values[:, -1]


def _round_down(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype == np.float64:
        return values
    rounded = values.astype(np.float32)
    with np.errstate(all="ignore"):
        return np.where(rounded > values, np.nextafter(rounded, np.float32(-np.inf)), rounded)


SCORE_ENTRIES = 1 << 22  # entries of the largest score matrix (queries x rows): 16 MiB in float32, 32 MiB in float64


class ExactIndex(RowIndex):
    """Exact search over n rows in memory (or memory-mapped), scanned there or on a ``device``: float64 scores decide.

    >>> ExactIndex(np.eye(3, dtype=np.float32), np.array([10, 11, 12])).search(np.array([[0.0, 2.0, 1.0]]), k=1).ids
    array([[11]])

    A fast matrix product says which rows could belong to the top k under the bound of its rounding error; those are scored again. The ids
    of a query do not depend on the rest of its batch. One search needs about four score matrices of at most SCORE_ENTRIES entries besides
    the vectors, and up to twenty if all rows tie. Searching is thread-safe."""

    kind = "exact"

    def __init__(self, *rows: Any, device: str = "cpu", **options: Any):
        self._place = HOST if device == "cpu" else Accelerator(device)
        super().__init__(*rows, **options)

    def _prepare(self) -> None:
        self._norms = checked_norms(self._vectors)
        self._scanned = self._place.put(self._vectors)
        self.largest_norm = float(self._norms.max()) if len(self._norms) else 0.0

    def _bytes(self) -> int:
        return self._vectors.nbytes + self._norms.nbytes

    def _best(self, queries: np.ndarray, k: int, hidden: Hidden) -> Best:
        """Scan all rows in blocks, keep the k best of each query by float64 score."""
        best, hidden = Best(len(queries), k), hidden.by_row()
        scan = Scan(queries, self.largest_norm, self._metric, self._place)
        vectors = self._scanned if scan.place is self._place else self._vectors
        exact_queries = queries.astype(np.float64)
        step = max(1, SCORE_ENTRIES // len(queries))
        for start in range(0, len(self), step):
            stop = min(start + step, len(self))
            lower = scan.lower_bounds(vectors[start:stop], self._norms[start:stop])
            hidden.mask(lower, start, stop)
            query, row = scan.candidates(lower, self._norms[start:stop], best.threshold, k)
            best.add(query, row + start, self._exact_scores(exact_queries, query, row + start))
        return best


SCAN_QUERIES = 64  # sharing a pass over the rows


class CompressedIndex(RowIndex):
    """Exact search over n rows by a compressed scan. The full-precision vectors only score single rows: memory-map them.

    Arguments as for RowIndex; ``kernel`` None is the one built with the package. Raises SnapshotError: see RowIndex. Raises ValueError: no
    kernel; ``exact_index`` asks first."""

    kind = "compressed"

    def __init__(self, *arrays: Any, kernel: Kernel | None = None, **more: Any):
        super().__init__(*arrays, **more)
        kernel = kernel or installed_kernel()
        if kernel is None:
            raise ValueError("compressed search needs the native kernel")
        self._kernel = kernel
        self._vectors = np.ascontiguousarray(self._vectors)
        self._scan = CodeScan(kernel, quantise(kernel, self._vectors, self._bias()))
        self._showing: tuple[np.ndarray | None, CodeScan] = (None, self._scan)
        self._exact: ExactIndex | None = None
        self.listed = np.zeros(0, np.int64)  # rows that the last search scored exactly for each query, -1 for all

    @property
    def largest_norm(self) -> float:
        """Upper bound of the rows' norms, removed ones included; 0 without rows."""
        return self._scan.largest_norm

    def info(self) -> dict[str, Any]:
        """See MipsIndex.info; ``scan`` is the kernel's level: "avx2", "avx512-vnni"."""
        return {**super().info(), "scan": self._kernel.level}

    def _bytes(self) -> int:
        return self._scan.nbytes

    def _bias(self) -> np.ndarray | None:
        """Bias that ranks inner products as distances, -|x|^2 / 2 as float32 [n]; None for inner products."""
        if self._metric == "ip":
            return None
        return np.maximum(np.square(checked_norms(self._vectors)) / -2, np.finfo(np.float32).min).astype(np.float32)

    def _best(self, queries: np.ndarray, k: int, hidden: Hidden) -> Best:
        parts: list[Best] = []
        lengths = np.zeros(len(queries), np.int64)
        for start in range(0, len(queries), SCAN_QUERIES):
            part = slice(start, min(start + SCAN_QUERIES, len(queries)))
            found, lengths[part] = self._best_of_part(queries[part], k, hidden.only(np.arange(part.start, part.stop)))
            found.query += start
            parts.append(found)
        self.listed = lengths
        return joined(parts)

    def _best_of_part(self, queries: np.ndarray, k: int, hidden: Hidden) -> tuple[Best, np.ndarray]:
        """The best rows, and the number of rows scored exactly for each query: int64 [b], -1 for all."""
        listing = Listing(self._shown(hidden.removed), queries, hidden, len(self))
        exact_queries = queries.astype(np.float64)
        margin = self._margin(exact_queries)
        listed, floor, given_up = listing.possible_rows(k, margin)
        given_up |= ~(largest_score(self.largest_norm, np.linalg.norm(exact_queries, axis=1), self._metric) <= SAFE_PRODUCT)
        if given_up.any():
            listed = listed.without(given_up)
        request = (listed.address, listed.start(), k, floor, margin, self._metric == "l2")
        row, score, lengths = self._kernel.best(self._vectors, exact_queries, *request)
        best = Best.of_matrices(row, score, np.minimum(lengths, k))
        if given_up.any():
            lengths[given_up] = -1
            scanned = self._scanned_exactly(queries, np.flatnonzero(given_up), k, hidden)
            best.add(scanned.query, scanned.row, scanned.score)
        return best, lengths

    def _shown(self, removed: np.ndarray | None) -> CodeScan:
        """The scan without removed rows, cached for each set of tombstones."""
        shown_without, scan = self._showing
        if shown_without is not removed:
            scan = self._scan.hidden(removed)
            self._showing = removed, scan
        return scan

    def _margin(self, queries: np.ndarray) -> np.ndarray:
        """Possible error of a query's defined scores in terms of the bounds, beyond the bounds' own room: float64 [b]."""
        if self._metric == "ip":
            return np.zeros(len(queries))
        return 32 * (self.dim + 8) * 2.0**-53 * np.square(queries).sum(axis=1)  # they say |q - x|^2, bounds q.x - |x|^2 / 2

    def _scanned_exactly(self, queries: np.ndarray, at: np.ndarray, k: int, hidden: Hidden) -> Best:
        """The best rows of the queries ``at`` by a full scan."""
        if self._exact is None:
            self._exact = ExactIndex(self._vectors, self._ids, metric=self._metric)
        best = self._exact._best(queries[at], k, hidden.only(at))
        best.query = at[best.query]
        return best


def exact_index(
    vectors: np.ndarray, ids: np.ndarray, live: np.ndarray | None = None, *, metric: Metric = "ip"
) -> ExactIndex | CompressedIndex:
    """The compressed index if possible, else the exact one: the same results. Arguments and errors: see RowIndex.

    >>> exact_index(np.eye(3, dtype=np.float32), np.array([10, 11, 12])).search(np.array([[0.0, 2.0, 1.0]]), k=1).ids
    array([[11]])
    """
    kind = ExactIndex if installed_kernel() is None else CompressedIndex
    return kind(vectors, ids, live, metric=metric)
