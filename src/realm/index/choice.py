"""Which kind of index serves how many rows: one rule, and every kind by name."""

from importlib import import_module

import numpy as np
import torch

from realm.index.base import RowIndex
from realm.index.mips import Metric

_CLASSES = {
    "exact": ("realm.index.base", "ExactIndex"),
    "compressed": ("realm.index.compressed", "CompressedIndex"),
    "clustered": ("realm.index.clustered", "ClusteredIndex"),
}
KINDS = tuple(_CLASSES)
EXACT_ENTRIES = 1 << 21
"""Components (rows x d) up to which scanning the full vectors on a CPU is as fast as the compressed scan: 16,384 rows of 128, 8 MiB."""


def chosen_kind(n: int, dim: int, device: torch.device) -> str:
    """What ``auto`` means: results are exact either way.

    On an accelerator "exact": the vectors are there already and are scanned at its memory's speed. On a CPU "exact" up to EXACT_ENTRIES
    components and "compressed" above, which reads a quarter of the memory. The approximate kind is used only where it is asked for.
    """
    return "exact" if device.type != "cpu" or n * dim <= EXACT_ENTRIES else "compressed"


def make_index(
    vectors: np.ndarray | torch.Tensor,
    ids: np.ndarray,
    live: np.ndarray | None = None,
    *,
    kind: str = "auto",
    metric: Metric = "ip",
    values: np.ndarray | None = None,
) -> RowIndex:
    """An index of the rows.

    Args:
        kind: one of KINDS, or "auto": see ``chosen_kind``.

    Raises:
        SnapshotError: see RowIndex.
        MissingExtra: "clustered" without faiss.
        ValueError: an unknown kind or metric.
    """
    if kind == "auto":
        device = vectors.device if isinstance(vectors, torch.Tensor) else torch.device("cpu")
        kind = chosen_kind(len(vectors), vectors.shape[-1], device)
    if kind not in _CLASSES:
        raise ValueError(f"no index kind '{kind}'; there are: auto, {', '.join(KINDS)}")
    module, name = _CLASSES[kind]
    index: RowIndex = getattr(import_module(module), name)(vectors, ids, live, metric=metric, values=values)
    return index
