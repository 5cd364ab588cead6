"""What an actor that searches does. A module of its own, so that its process imports no network."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from realm.errors import SnapshotError
from realm.index.base import Hidden, RowIndex
from realm.index.choice import make_index
from realm.index.mips import Metric
from realm.index.snapshot import Snapshot, read_generation
from realm.pool.cluster import located, ray

Found = tuple[np.ndarray, np.ndarray, np.ndarray]


class Searcher:
    """In an actor: searches some rows of a published generation. They are opened at the first question, in a restarted actor again.

    Args:
        directory: the generation's.
        generation: its number.
        start, stop: its rows.
        kind, metric: as for ``make_index``.
        threads: CPU threads.
    """

    def __init__(self, directory: str, generation: int, start: int, stop: int, kind: str, metric: Metric, threads: int):
        torch.set_num_threads(threads)
        self._place = Path(directory), generation
        self._rows = start, stop
        self._how: tuple[str, Metric] = kind, metric
        self._opened: RowIndex | None = None
        self._removed: tuple[int, torch.Tensor | None] = (0, None)

    def bytes(self) -> int:
        """The memory that searches go through."""
        return int(self._index().info()["bytes"])

    def best(self, queries: np.ndarray, k: int, query: np.ndarray, row: np.ndarray, version: int, removed: list[Any]) -> Found:
        """The best rows of each of b queries: query int64 [c], row int64 [c] counted from ``start``, score float64 [c].

        Args:
            queries: float32 [b,d].
            k: at least 1.
            query, row: the excluded pairs of these rows, as in ``Hidden``.
            version: of the tombstones.
            removed: nothing, or one reference to them, bool [r]: fetched when the version is another than before.
        """
        index = self._index()
        if version != self._removed[0]:
            self._removed = version, torch.from_numpy(ray().get(removed[0]).copy()) if removed else None
        hidden = Hidden(query, row, self._removed[1])
        found = index._best(torch.from_numpy(queries.copy()), min(k, len(index)), hidden)
        return found.query, found.row, found.score

    def _index(self) -> RowIndex:
        if self._opened is None:
            with located():
                self._opened = self._open()
        return self._opened

    def _open(self) -> RowIndex:
        snapshot = read_generation(*self._place, {}, verify=False)
        start, stop = self._rows
        if stop > len(snapshot.block_ids):
            raise SnapshotError(f"{len(snapshot.block_ids)} rows, and {stop} were there", path=self._place[0], cure="Open it again")
        kind, metric = self._how
        return make_index(rows_of(snapshot, start, stop), snapshot.block_ids[start:stop], kind=kind, metric=metric)


def rows_of(snapshot: Snapshot, start: int, stop: int) -> np.ndarray:
    """Vectors of the rows ``start`` to ``stop``, float32 [r,d]; memory-mapped where they lie in one shard."""
    ends = np.cumsum([0, *(len(shard) for shard in snapshot.shards)])
    parts = [shard[max(0, start - at) : max(0, stop - at)] for at, shard in zip(ends, snapshot.shards, strict=False)]
    parts = [part for part in parts if len(part)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
