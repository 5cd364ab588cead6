"""The fast part of exact search: bounds on inner products from one matrix product, and the best rows so far."""

import numpy as np
import torch

# Added to every norm in the error bound: pays for products that underflow or are flushed to zero.
NORM_FLOOR = 2.0**-50
# Above this product of norms a float32 score could overflow, and the scan is done in float64.
SAFE_PRODUCT = 1e37
# Relative rounding of the *inputs* of a float32 matrix product under torch.set_float32_matmul_precision (TF32, bf16).
INPUT_ROUNDING = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-8}


class Scan:
    """Bounds on inner products by one matrix product. Everything is -inf for rows that must not be returned."""

    def __init__(self, queries: torch.Tensor, largest_norm: float):
        norms = torch.linalg.vector_norm(queries.double(), dim=1)
        overflow = (1 + largest_norm) * (1 + float(norms.max())) > SAFE_PRODUCT
        self.dtype = torch.float64 if overflow else torch.float32
        self.queries = queries.to(self.dtype)
        # d * roundoff bounds the matrix product; the factor 2 and the 8 pay for the final scores' and the bounds' own rounding.
        relative = 2 * (queries.shape[1] + 8) * torch.finfo(self.dtype).eps / 2
        if not overflow:
            relative += 4 * INPUT_ROUNDING[torch.get_float32_matmul_precision()]
        self.error = (relative * (norms + NORM_FLOOR)).to(self.dtype)  # [b], to be multiplied by the norm of a row

    def lower_bounds(self, vectors: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
        """Scores minus their possible error: [b,r] for vectors [r,d] with norms float64 [r]."""
        scores = self.queries @ vectors.to(self.dtype).T
        return scores.addr_(self.error, norms.to(self.dtype), alpha=-1)

    def candidates(self, lower: torch.Tensor, norms: torch.Tensor, threshold: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The (query, row) pairs of a block that may belong to the top k: int64 [c] each, by query.

        Args:
            lower: lower bounds [b,r].
            norms: float64 [r].
            threshold: float64 [b], the k-th best exact score so far, -inf before there is one.
        """
        upper = torch.addr(lower, self.error, norms.to(self.dtype), alpha=2)
        floor = torch.from_numpy(_round_down(threshold, self.dtype)).to(lower.device)
        possible = (upper >= floor[:, None]) & (upper > -torch.inf)
        if int(possible.sum()) > 8 * k * len(lower) and lower.shape[1] > k:
            # k rows of this block reach at least the k-th largest lower bound: nothing with an upper bound below it can be among the best.
            floor = torch.maximum(floor, lower.topk(k, dim=1).values[:, -1])
            possible &= upper >= floor[:, None]
        query, row = possible.nonzero(as_tuple=True)
        return query.cpu().numpy(), row.cpu().numpy()


class Best:
    """The k best rows of each of b queries so far: parallel arrays query, row, score, rank, ordered by query and rank."""

    def __init__(self, b: int, k: int):
        self.k = k
        self.query = np.zeros(0, np.int64)
        self.row = np.zeros(0, np.int64)
        self.score = np.zeros(0, np.float64)
        self.rank = np.zeros(0, np.int64)
        self.threshold = np.full(b, -np.inf)  # float64 [b], the k-th best score

    def add(self, query: np.ndarray, row: np.ndarray, score: np.ndarray) -> None:
        """Merge scored rows that were not seen before: int64 [c], int64 [c], float64 [c]."""
        query, row, score = (np.concatenate(pair) for pair in ((self.query, query), (self.row, row), (self.score, score)))
        order = np.lexsort((row, -score, query))
        query = query[order]
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        kept = rank < self.k
        self.query, self.rank, self.row, self.score = query[kept], rank[kept], row[order][kept], score[order][kept]
        last = self.rank == self.k - 1
        self.threshold[self.query[last]] = self.score[last]


def _round_down(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Float64 values as the scan's type, never larger than they were."""
    if dtype == torch.float64:
        return values
    rounded = values.astype(np.float32)
    with np.errstate(all="ignore"):
        return np.where(rounded > values, np.nextafter(rounded, np.float32(-np.inf)), rounded)
