"""An index that never returns what was removed from the corpus, however long it has been open."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from realm.errors import CorpusError
from realm.index.choice import make_index
from realm.index.mips import Hits, Metric


class Living(Protocol):
    """What an index asks the corpus that it follows, as ``BlockStore`` says it."""

    path: Path
    corpus_id: str

    def is_live(self, block_ids: np.ndarray, /) -> np.ndarray: ...

    def newest(self) -> "Living": ...


class LiveIndex:
    """An index that follows its corpus: each search first asks if the corpus has another version, and hides what that removed.

    Blocks added since are not found: they have no vectors here.

    Args:
        vectors, ids, kind: as for ``make_index``.
        store: the corpus as the caller has it open. Blocks that it does not hold are hidden, too: the caller could not read them.
    """

    def __init__(self, vectors: np.ndarray | torch.Tensor, ids: np.ndarray, store: Living, kind: str = "auto"):
        self._ids = ids
        self._newest = store
        self._readable = store.is_live(ids)
        self._index = make_index(vectors, ids, kind=kind)
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
        """As ``MipsIndex.info``, of the index as the corpus is now.

        Raises:
            CorpusError: the corpus has been deleted, damaged or rebuilt.
        """
        self._hide_removed()
        return self._index.info()

    def search(self, queries: torch.Tensor, k: int, exclude: Sequence[np.ndarray] | None = None) -> Hits:
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
