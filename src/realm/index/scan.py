"""The fast part of exact search: bounds on scores from one matrix product, and the best rows so far."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch

from realm.index.mips import Metric

# Added to every norm in the error bound: pays for products that underflow or are flushed to zero.
NORM_FLOOR = 2.0**-50
# Above this product of norms a float32 score could overflow, and the scan is done in float64.
SAFE_PRODUCT = 1e37
# Relative rounding of the *inputs* of a float32 matrix product under torch.set_float32_matmul_precision (TF32, bf16).
INPUT_ROUNDING = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-8}
_NONE = np.zeros(0, np.int64)
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


class Best:
    """The k best rows of each of b queries so far: parallel arrays query, row, score, rank, ordered by query and rank."""

    def __init__(self, b: int, k: int):
        self.k = k
        self.query = np.zeros(0, np.int64)
        self.row = np.zeros(0, np.int64)
        self.score = np.zeros(0, np.float64)
        self.rank = np.zeros(0, np.int64)
        self.threshold = np.full(b, -np.inf)  # float64 [b], the k-th best score

    @classmethod
    def ordered(cls, b: int, k: int, query: np.ndarray, row: np.ndarray, score: np.ndarray) -> "Best":
        """Of rows int64 [c] that are in order already: by query, the best first, equal scores by row."""
        best = cls(b, k)
        starts = np.searchsorted(query, np.arange(b + 1))
        counts = np.minimum(np.diff(starts), k)
        best.query, best.rank = np.repeat(np.arange(b), counts), np.concatenate([_NONE, *(np.arange(count) for count in counts.tolist())])
        kept = best.rank + starts[best.query]
        best.row, best.score = row[kept], score[kept]
        full = counts == k
        best.threshold[full] = score[starts[:-1][full] + k - 1]
        return best

    @classmethod
    def of_matrices(cls, row: np.ndarray, score: np.ndarray, counts: np.ndarray) -> "Best":
        """Of rows int64 [b,k] with their scores, in order, counts int64 [b] of each query."""
        b, k = row.shape
        best = cls(b, k)
        best.query, best.rank = np.repeat(np.arange(b), counts), np.tile(np.arange(k), b)
        full = counts == k
        if full.all():
            best.row, best.score = row.ravel(), score.ravel()
        else:
            there = np.arange(k) < counts[:, None]
            best.row, best.score, best.rank = row[there], score[there], best.rank[there.ravel()]
        best.threshold[full] = score[full, -1]
        return best

    def add(self, query: np.ndarray, row: np.ndarray, score: np.ndarray) -> None:
        """Merge scored rows that were not seen before: int64 [c], int64 [c], float64 [c]."""
        query, row, score = (np.concatenate(pair) for pair in ((self.query, query), (self.row, row), (self.score, score)))
        order = np.lexsort((row, -score, query))
        self.__dict__.update(Best.ordered(len(self.threshold), self.k, query[order], row[order], score[order]).__dict__)


def joined(parts: Sequence[Best]) -> Best:
    """The best rows of all queries from those of one or more parts, whose queries follow each other."""
    best = Best(0, parts[0].k)
    for name in ("query", "row", "score", "rank", "threshold"):
        setattr(best, name, np.concatenate([getattr(part, name) for part in parts]))
    return best


def _round_down(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Float64 values as the scan's type, never larger than they were."""
    if dtype == torch.float64:
        return values
    rounded = values.astype(np.float32)
    with np.errstate(all="ignore"):
        return np.where(rounded > values, np.nextafter(rounded, np.float32(-np.inf)), rounded)
