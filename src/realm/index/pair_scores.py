"""Scores of single rows to double precision with a bound on their rounding: enough to leave few rows for the definition of a score."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from realm.index.native.kernel import Kernel

GATHER_ENTRIES = 1 << 21  # components gathered at a time: 16 MiB


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of query and row, int64 [c] each, and bounds of their scores, float64 [c] each."""

    query: np.ndarray
    row: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def only(self, kept: np.ndarray) -> "ScoredPairs":
        """Those of ``kept`` bool [c]."""
        return ScoredPairs(self.query[kept], self.row[kept], self.lower[kept], self.upper[kept])

    def and_also(self, others: "ScoredPairs") -> "ScoredPairs":
        """These pairs, then the others."""
        pairs = ((self.query, others.query), (self.row, others.row), (self.lower, others.lower), (self.upper, others.upper))
        return ScoredPairs(*(np.concatenate(pair) for pair in pairs))


def score_bounds(
    vectors: torch.Tensor, queries: np.ndarray, query: np.ndarray, row: np.ndarray, distance: bool, kernel: Kernel | None
) -> ScoredPairs:
    """Bounds of q.x (for distances: of q.x - |x|^2 / 2) of c pairs of query and row.

    The bounds leave room for the rounding of the defined score, too (for distances up to a multiple of |q|^2).

    Args:
        vectors: float32 [n,d], C-contiguous.
        queries: float64 [b,d].
        query, row: int64 [c].
        distance: see above.
        kernel: does the work if given; the vectors must then be on the CPU.
    """
    if kernel is None:
        score, size = _score(vectors, queries, query, row, distance)
    else:
        score, size = kernel.score(vectors.numpy(), queries, query, row, distance)
    error = size * ((vectors.shape[1] + 8) * 2.0**-50)
    return ScoredPairs(query, row, score - error, score + error)


def kth_largest(query: np.ndarray, values: np.ndarray, b: int, k: int) -> np.ndarray:
    """The k-th largest of the values [c] of each query, -inf where there are fewer: float64 [b]."""
    order = np.argsort(query, kind="stable")
    values = values[order]
    ends = np.searchsorted(query[order], np.arange(b + 1))
    result = np.full(b, -np.inf)
    for i, (start, stop) in enumerate(pairwise(ends)):
        if stop - start >= k:
            result[i] = np.partition(values[start:stop], stop - start - k)[stop - start - k]
    return result


def _score(vectors: torch.Tensor, queries: np.ndarray, query: np.ndarray, row: np.ndarray, distance: bool) -> tuple[np.ndarray, np.ndarray]:
    """As Kernel.score."""
    score, size = np.empty(len(query)), np.empty(len(query))
    on_device = torch.from_numpy(queries).to(vectors.device)
    step = max(1, GATHER_ENTRIES // vectors.shape[1])
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        x = vectors[torch.from_numpy(row[part]).to(vectors.device)].double()
        terms = x * (on_device[torch.from_numpy(query[part]).to(vectors.device)] - x * (0.5 if distance else 0.0))
        score[part], size[part] = terms.sum(1).cpu().numpy(), terms.abs().sum(1).cpu().numpy()
    return score, size
