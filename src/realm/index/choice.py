"""Which kind of index serves how many rows: one rule, and every kind by name."""

import numpy as np
import torch

from realm.index.base import ExactIndex, RowIndex
from realm.index.clustered import ClusteredIndex
from realm.index.compressed import CompressedIndex
from realm.index.mips import Metric
from realm.index.native.kernel import installed_kernel

_CLASSES: dict[str, type[RowIndex]] = {kind.kind: kind for kind in (ExactIndex, CompressedIndex, ClusteredIndex)}
KINDS = tuple(_CLASSES)
EXACT_ENTRIES = 1 << 21
"""Components (rows x d) up to which scanning the full vectors on a CPU is as fast as the compressed scan: 16,384 rows of 128, 8 MiB."""


def chosen_kind(kind: str, n: int, dim: int, device: torch.device) -> tuple[str, str]:
    """The kind that is used where ``kind`` is asked for, and why: "auto" and "compressed" find the same rows as "exact".

    On an accelerator "exact": the vectors are there already and are scanned at its memory's speed. On a CPU "auto" is "exact" up to
    EXACT_ENTRIES components and "compressed" above, which reads a quarter of the memory. Without the native kernel both are "exact". The
    approximate kind is used only where it is asked for.
    """
    if kind not in ("auto", "compressed"):
        return kind, "asked for"
    if device.type != "cpu":
        return "exact", f"the vectors are on {device}, which scans them whole"
    if kind == "auto" and n * dim <= EXACT_ENTRIES:
        return "exact", f"{n * dim:,} components: up to {EXACT_ENTRIES:,} are scanned whole"
    if installed_kernel() is None:
        return "exact", "no kernel for this processor: with a C compiler and AVX2, python -m realm.index.native.build makes it"
    return "compressed", "asked for" if kind == "compressed" else f"more than {EXACT_ENTRIES:,} components, of which a kernel scans codes"


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
    if kind not in ("auto", *KINDS):
        raise ValueError(f"no index kind '{kind}'; there are: auto, {', '.join(KINDS)}")
    device = vectors.device if isinstance(vectors, torch.Tensor) else torch.device("cpu")
    used, why = chosen_kind(kind, len(vectors), vectors.shape[-1], device)
    index = _CLASSES[used](vectors, ids, live, metric=metric, values=values)
    index.why = why
    return index
