"""Exact search by the full vectors: a matrix product bounds the scores, float64 decides between what may be among the best."""

from typing import TypeVar

import numpy as np
import torch

from realm.search.index.base import Best, Hidden, RowIndex
from realm.search.index.checks import checked_norms
from realm.search.index.mips import Metric

# Added to every norm in the error bound: pays for products that underflow or are flushed to zero.
NORM_FLOOR = 2.0**-50
# Above this product of norms a float32 score could overflow, and the scan is done in float64.
SAFE_PRODUCT = 1e37
# Relative rounding of the *inputs* of a float32 matrix product under torch.set_float32_matmul_precision (TF32, bf16).
INPUT_ROUNDING = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-8}
Norms = TypeVar("Norms", float, np.ndarray)


def largest_score(row_norm: float, query_norms: Norms, metric: Metric) -> Norms:
    """What no score of such rows exceeds, on the way to it included: to be compared with ``SAFE_PRODUCT``."""
    return (1 + row_norm) * (1 + query_norms) if metric == "ip" else (1 + row_norm + query_norms) ** 2


class Scan:
    """Bounds on scores by one matrix product. Everything is -inf for rows that must not be returned.

    What is bounded is q.x for metric "ip", and for "l2" q.x - |x|^2 / 2, which orders rows as minus their squared distance does. With u the
    roundoff of the scan's type, its error is at most 2 (d + 8) u |q| |x| from the product, for "l2" 2 (d + 8) u |x|^2 more from the
    squares, and, for all rows of a query alike, ``margin``: what the float64 scores, which say |q - x|^2, may be off in terms of |q|^2.

    Args:
        queries: float32 [b,d].
    """

    def __init__(self, queries: torch.Tensor, largest_norm: float, metric: Metric):
        norms = torch.linalg.vector_norm(queries.double(), dim=1)
        overflow = largest_score(largest_norm, float(norms.max()), metric) > SAFE_PRODUCT
        self.metric = metric
        self.dtype = torch.float64 if overflow else torch.float32
        self.queries = queries.to(self.dtype)
        # d * roundoff bounds the matrix product; the factor 2 and the 8 pay for the final scores' and the bounds' own rounding.
        exact, self.relative = (2 * (queries.shape[1] + 8) * torch.finfo(dtype).eps / 2 for dtype in (torch.float64, self.dtype))
        if not overflow:
            self.relative += 4 * INPUT_ROUNDING[torch.get_float32_matmul_precision()]
        self.error = (self.relative * (norms + NORM_FLOOR)).to(self.dtype)  # [b], to be multiplied by the norm of a row
        self.squares = torch.square(norms).cpu().numpy()
        self.margin = np.zeros(len(norms)) if metric == "ip" else 8 * exact * self.squares  # float64 [b]

    def lower_bounds(self, vectors: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
        """What is bounded minus its possible error: [b,r] for vectors [r,d] with norms float64 [r]."""
        scores = self.queries @ vectors.to(self.dtype).T
        scores.addr_(self.error, self._row_factor(norms), alpha=-1)
        if self.metric == "l2":
            scores -= (torch.square(norms) / 2).to(self.dtype) + self._row_error(norms)
        return scores

    def candidates(self, lower: torch.Tensor, norms: torch.Tensor, threshold: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The (query, row) pairs of a block that may belong to the top k: int64 [c] each, by query.

        Args:
            lower: lower bounds [b,r].
            norms: float64 [r].
            threshold: float64 [b], the k-th best exact score so far, -inf before there is one.
        """
        upper = torch.addr(lower, self.error, self._row_factor(norms), alpha=2)
        if self.metric == "l2":
            upper += 2 * self._row_error(norms)
            threshold = (threshold + self.squares) / 2  # of -|q - x|^2 in terms of q.x - |x|^2 / 2
        margin = torch.from_numpy(_round_down(-self.margin, self.dtype)).to(lower.device)
        floor = torch.from_numpy(_round_down(threshold, self.dtype)).to(lower.device) + margin
        possible = (upper >= floor[:, None]) & (upper > -torch.inf)
        if int(possible.sum()) > 2 * k * len(lower) and lower.shape[1] > k:
            # k rows of this block reach at least the k-th largest lower bound: nothing with an upper bound below it can be among the best.
            floor = torch.maximum(floor, lower.topk(k, dim=1).values[:, -1] + margin)
            possible &= upper >= floor[:, None]
        query, row = possible.nonzero(as_tuple=True)
        return query.cpu().numpy(), row.cpu().numpy()

    def _row_factor(self, norms: torch.Tensor) -> torch.Tensor:
        """Norms [r], rounded up a little."""
        return (norms * (1 + 1e-9) + NORM_FLOOR).to(self.dtype)

    def _row_error(self, norms: torch.Tensor) -> torch.Tensor:
        """The part of the error that the squares bring: [r]."""
        return (self.relative * torch.square(norms * (1 + 1e-9) + NORM_FLOOR)).to(self.dtype)


def _round_down(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Float64 values as the scan's type, never larger than they were."""
    if dtype == torch.float64:
        return values
    rounded = values.astype(np.float32)
    with np.errstate(all="ignore"):
        return np.where(rounded > values, np.nextafter(rounded, np.float32(-np.inf)), rounded)


SCORE_ENTRIES = 1 << 22  # entries of the largest score matrix (queries x rows): 16 MiB in float32, 32 MiB in float64


class ExactIndex(RowIndex):
    """Exact search over n rows in memory (or memory-mapped), on the device of the vectors: float64 scores decide.

    A fast matrix product says which rows could belong to the top k under the bound of its rounding error; those are scored again.

    Ties go to the lower block id, and the ids of a query do not depend on what else is in its batch. One search needs about four score
    matrices of at most SCORE_ENTRIES entries beside the vectors, and up to twenty where all rows tie. Searching is thread-safe.

    Args: see RowIndex.
    """

    kind = "exact"

    def _prepare(self) -> None:
        self._norms = checked_norms(self._vectors)
        self.largest_norm = float(self._norms.max()) if len(self._norms) else 0.0

    def _bytes(self) -> int:
        return self._vectors.nbytes + self._norms.nbytes

    def _best(self, queries: torch.Tensor, k: int, hidden: Hidden) -> Best:
        """Scan all rows in blocks, keep the k best of each query by float64 score."""
        best, hidden = Best(len(queries), k), hidden.by_row()
        scan = Scan(queries, self.largest_norm, self._metric)
        exact_queries = queries.cpu().numpy().astype(np.float64)
        step = max(1, SCORE_ENTRIES // len(queries))
        for start in range(0, len(self), step):
            stop = min(start + step, len(self))
            lower = scan.lower_bounds(self._vectors[start:stop], self._norms[start:stop])
            hidden.mask(lower, start, stop)
            query, row = scan.candidates(lower, self._norms[start:stop], best.threshold, k)
            best.add(query, row + start, self._exact_scores(exact_queries, query, row + start))
        return best
