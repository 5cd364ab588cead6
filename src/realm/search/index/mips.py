"""Nearest-row search: the protocol that every index follows, its result, and what a score is.

The score of a query q and a row x is their inner product (metric "ip") or minus their squared distance (metric "l2"), larger is better. It
has one fixed definition, whatever the index, batch size, thread count or device: products (ip) or squared differences (l2) of the float32
components in float64, summed in float64 row by row. Exact indexes return the best rows by that score, equal scores by the lower block id;
approximate ones may miss rows, but what they return is ordered and scored the same way, so scores compare between kinds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch

Metric = Literal["ip", "l2"]


@dataclass(frozen=True)
class Hits:
    """The best rows of each query, best first.

    ids: int64 [b,k], block ids, -1 where invalid. scores: float32 [b,k], -inf where invalid. valid: bool [b,k]; valid entries come first.
    values: [b,k,...], the value column's entries of those rows, zeros where invalid; None where the index has no value column.
    """

    ids: np.ndarray
    scores: np.ndarray
    valid: np.ndarray
    values: np.ndarray | None = None


class MipsIndex(Protocol):
    """What the retriever needs of an index."""

    @property
    def dim(self) -> int:
        """d, the dimension of vectors and queries."""

    @property
    def metric(self) -> Metric:
        """What a score is: "ip" or "l2"."""

    def __len__(self) -> int:
        """n, all rows, removed ones included."""

    def info(self) -> dict[str, Any]:
        """What this index is: {"kind", "why", "rows", "removed", "dim", "metric", "bytes"}; a kind may tell more.

        ``bytes`` is the memory that searches go through, memory-mapped files that every search reads included, those that only serve to
        score single rows again not.
        """

    def search(self, queries: torch.Tensor, k: int, exclude: Sequence[np.ndarray] | None = None) -> Hits:
        """The min(k, live rows that are not excluded) rows of the largest score, for each query.

        Args:
            queries: floating point [b,d], finite.
            k: number of columns of the result, >= 0; may exceed n.
            exclude: for each of the b queries the block ids (int64, any order, unknown ids ignored) it must not get.

        Raises:
            ValueError: wrong shape or type, a value that is not finite, k < 0, one exclusion list too many or too few, or one of no ids.
        """


def recall_against(
    exact: MipsIndex, index: MipsIndex, queries: torch.Tensor, depths: Sequence[int], exclude: Sequence[np.ndarray] | None = None
) -> dict[int, float]:
    """Mean share of the k exactly best rows that ``index`` returns among its k, for each depth k.

    Args:
        exact, index: over the same rows.
        queries: floating point [b,d].

    Returns:
        {k: recall}, over the queries for which there is anything to find; 1.0 where there is none.
    """
    wanted = exact.search(queries, max(depths), exclude)
    return {k: share_found(wanted, index.search(queries, k, exclude), k) for k in depths}


def share_found(wanted: Hits, found: Hits, k: int) -> float:
    """The mean share of the first k of ``wanted`` that are in ``found``, over the queries that want any; 1.0 where none does."""
    shares = [
        np.isin(best[:k][valid[:k]], ids).mean()
        for best, valid, ids in zip(wanted.ids, wanted.valid, found.ids, strict=True)
        if valid[:k].any()
    ]
    return float(np.mean(shares)) if shares else 1.0
