"""Choice of the kind of index by the number of rows; and an index that follows its corpus."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.errors import CorpusError
from realm.search.index.base import RowIndex
from realm.search.index.clustered import ClusteredIndex
from realm.search.index.exact import CompressedIndex, ExactIndex
from realm.search.index.mips import Hits, Metric
from realm.search.index.native.kernel import installed_kernel

_CLASSES: dict[str, type[RowIndex]] = {kind.kind: kind for kind in (ExactIndex, CompressedIndex, ClusteredIndex)}
KINDS = tuple(_CLASSES)
EXACT_ENTRIES = 1 << 21  # components (rows x d) that a CPU scans whole as fast as compressed: 16,384 rows of 128, 8 MiB


def chosen_kind(kind: str, n: int, dim: int, device: str = "cpu") -> tuple[str, str]:
    """The kind used for ``kind``, and the reason: "auto" and "compressed" find the same rows as "exact".

    On an accelerator every kind is "exact": its memory is scanned whole at its speed. On a CPU "auto" is "exact" up to
    EXACT_ENTRIES components and "compressed" above, which reads a quarter of the memory. Without the native kernel both are "exact". The
    approximate kind is never chosen automatically."""
    if kind == "exact" or (kind == "clustered" and device == "cpu"):
        return kind, "asked for"
    if device != "cpu":
        return "exact", f"the vectors are on {device}, which scans them whole"
    if kind == "auto" and n * dim <= EXACT_ENTRIES:
        return "exact", f"{n * dim:,} components: up to {EXACT_ENTRIES:,} are scanned whole"
    if installed_kernel() is None:
        return "exact", "no kernel for this processor: with a C compiler and AVX2, python -m realm.search.index.native.build makes it"
    return "compressed", "asked for" if kind == "compressed" else f"more than {EXACT_ENTRIES:,} components, of which a kernel scans codes"


def make_index(
    vectors: np.ndarray,
    ids: np.ndarray,
    live: np.ndarray | None = None,
    *,
    kind: str = "auto",
    metric: Metric = "ip",
    values: np.ndarray | None = None,
    device: str = "cpu",
) -> RowIndex:
    """Make an index of the rows, of one of KINDS or "auto" (see ``chosen_kind``), scanned on ``device``.

    >>> make_index(np.eye(3, dtype=np.float32), ids=np.arange(3), kind="auto").info()["kind"]
    'exact'

    Raises SnapshotError: see RowIndex. Raises MissingExtra: "clustered" without faiss. Raises ValueError: an unknown kind or metric."""
    if kind not in ("auto", *KINDS):
        raise ValueError(f"no index kind '{kind}'; there are: auto, {', '.join(KINDS)}")
    used, why = chosen_kind(kind, len(vectors), vectors.shape[-1], device)
    options: dict[str, Any] = {"metric": metric, "values": values, **({"device": device} if used == "exact" else {})}
    index = _CLASSES[used](vectors, ids, live, **options)
    index.why = why
    return index


class LiveIndex:
    """An index that follows its corpus: each search first hides blocks removed by a newer version.

    Blocks added since have no vectors here and are not found; blocks that the caller's open ``store`` lacks are hidden, too."""

    def __init__(self, vectors: np.ndarray, ids: np.ndarray, store: BlockStore, kind: str = "auto", device: str = "cpu"):
        self._ids = ids
        self._newest = store
        self._readable = store.is_live(ids)
        self._index = make_index(vectors, ids, kind=kind, device=device)
        self._index.set_live(self._readable)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def dim(self) -> int:
        return self._index.dim

    @property
    def metric(self) -> Metric:
        return self._index.metric

    def info(self) -> dict[str, Any]:
        """``MipsIndex.info`` for the corpus as it is now. Raises CorpusError: it has been deleted, damaged or rebuilt."""
        self._hide_removed()
        return self._index.info()

    def search(self, queries: np.ndarray, k: int, exclude: Sequence[np.ndarray] | None = None) -> Hits:
        """As ``MipsIndex.search``. Raises CorpusError: the corpus has been deleted, damaged or rebuilt."""
        self._hide_removed()
        return self._index.search(queries, k, exclude)

    def _hide_removed(self) -> None:
        newest = self._newest.newest()
        if newest is not self._newest:
            if newest.corpus_id != self._newest.corpus_id:
                cure = "Open the run again: the index belongs to the old corpus."
                raise CorpusError("another corpus was built here while it was searched", path=newest.path, cure=cure)
            self._index.set_live(self._readable & newest.is_live(self._ids))
            self._newest = newest
