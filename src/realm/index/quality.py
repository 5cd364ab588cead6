"""How much of what exact search finds an index finds, too."""

from collections.abc import Sequence

import numpy as np
import torch

from realm.index.mips import Hits, MipsIndex


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
