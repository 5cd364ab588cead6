"""An index whose rows lie in actors, each with a range of them: every search asks all, and the best of their best are the result.

Scores are the same float64 numbers whoever computes them (``realm.index.mips``), so what exact kinds return is that of one index over all
rows, ties included. Ray starts a dead actor again and asks it again; it opens its rows from the generation's files, as at first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from realm.config import run_index_kind
from realm.corpus.store.blocks import BlockStore
from realm.errors import ConfigError, PoolError
from realm.index.base import Hidden, RowIndex
from realm.index.live import FollowingIndex
from realm.index.mips import Metric
from realm.index.scan import Best
from realm.index.snapshot import Snapshot
from realm.paths import RunPaths
from realm.pool.cluster import cause_of, ray
from realm.pool.searcher import Searcher
from realm.refresh.generation import Generation
from realm.storage.generations import generation_path

DEADLINE = 120.0
"""Seconds within which every actor must have answered a search, a start and the opening of its rows in between included."""
TRIES = 3


class PooledIndex(RowIndex):
    """A published generation, searched by actors of the Ray cluster that this process is connected to. Call ``close`` at the end.

    Args:
        directory: the run's ``index/``, at the same place on every machine.
        snapshot: the generation, verified by whoever opened it.
        kind: of the index in every actor; exact kinds give the results of one exact index.
        metric: as for ``make_index``.
        actors: how many; never more than rows.
        threads: CPU threads of each.
        deadline: seconds to wait for answers.

    Raises:
        ConfigError: ``actors`` is below 1.
        PoolError: an actor did not start.
    """

    kind = "pool"
    actor: type = Searcher

    def __init__(
        self,
        directory: Path,
        snapshot: Snapshot,
        *,
        kind: str = "auto",
        metric: Metric = "ip",
        actors: int = 2,
        threads: int = 1,
        deadline: float = DEADLINE,
    ):
        if actors < 1:
            raise ConfigError(f"actors = {actors} is below 1")
        n = len(snapshot.block_ids)
        # The rows lie in the actors; here only their number and dimension count, which costs no memory.
        super().__init__(torch.zeros(1, snapshot.manifest.dim).expand(n, -1), np.asarray(snapshot.block_ids), metric=metric)
        self.deadline = deadline
        self._versions = count(1)
        self._tombstones: tuple[torch.Tensor | None, int, list[list[Any]]] = (None, 0, [[] for _ in range(actors)])
        self._ranges = list(pairwise(np.linspace(0, n, min(actors, n) + 1).astype(int).tolist())) if n else []
        number = snapshot.manifest.generation
        place = str(generation_path(directory.absolute(), number))
        options = {"num_cpus": threads, "max_restarts": -1, "max_task_retries": TRIES, "scheduling_strategy": "SPREAD"}
        remote = ray().remote(self.actor).options(**options)
        self._actors = [remote.remote(place, number, start, stop, kind, metric, threads) for start, stop in self._ranges]
        try:
            self._held = sum(self._answers([actor.bytes.remote() for actor in self._actors]))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the actors."""
        for actor in self._actors:
            ray().kill(actor)
        self._actors = []

    def _bytes(self) -> int:
        return self._held

    def _best(self, queries: torch.Tensor, k: int, hidden: Hidden) -> Best:
        version, removed = self._shared(hidden.removed)
        shared, asked = ray().put(queries.numpy()), []
        for actor, (start, stop), reference in zip(self._actors, self._ranges, removed, strict=False):
            first, last = np.searchsorted(hidden.row, [start, stop])
            excluded = hidden.query[first:last], hidden.row[first:last] - start
            asked.append(actor.best.remote(shared, k, *excluded, version, reference))
        best = Best(len(queries), k)
        for (start, _), (query, row, score) in zip(self._ranges, self._answers(asked), strict=True):
            best.add(query, row + start, score)
        return best

    def _shared(self, removed: torch.Tensor | None) -> tuple[int, list[list[Any]]]:
        """Version of the tombstones, and a reference to each actor's part of them: shared once, not with every search."""
        known, version, references = self._tombstones
        if removed is not known:
            version = next(self._versions)
            parts = [] if removed is None else [removed[start:stop].numpy() for start, stop in self._ranges]
            references = [[ray().put(part)] for part in parts] or [[] for _ in self._ranges]
            self._tombstones = removed, version, references
        return version, references

    def _answers(self, asked: list[Any]) -> list[Any]:
        """What was asked of all actors.

        Raises:
            PoolError: one did not answer in time, died again and again, or cannot read its rows.
        """
        errors = ray().exceptions
        cure = "See that every machine of the cluster is up and has room for its rows (ray status)"
        try:
            return list(ray().get(asked, timeout=self.deadline))
        except errors.GetTimeoutError:
            done, _ = ray().wait(asked, num_returns=len(asked), timeout=0)
            late = [f"{i + 1} (rows {start} to {stop})" for i, (start, stop) in enumerate(self._ranges) if asked[i] not in done]
            silent = f"searcher {', '.join(late)} of {len(asked)} did not answer within {self.deadline:g} s"
            raise PoolError(silent, cure=cure) from None
        except errors.RayTaskError as error:
            raise cause_of(error) from None
        except errors.RayError as error:
            raise PoolError(f"a searcher died {TRIES + 1} times over one search", cure=cure) from error


@contextmanager
def searched_by_actors(
    generation: Generation, paths: RunPaths, store: BlockStore, *, actors: int = 2, threads: int = 1, deadline: float = DEADLINE
) -> Iterator[Generation]:
    """The same generation with its rows in actors, as long as the block lasts; searches hide what the corpus removes.

    Args:
        generation: as opened from ``paths``.
        store: its corpus.
        actors, threads, deadline: see ``PooledIndex``.
    """
    kind = run_index_kind(paths.config)
    index = PooledIndex(paths.index, generation.snapshot, kind=kind, actors=actors, threads=threads, deadline=deadline)
    try:
        following = FollowingIndex(index, np.asarray(generation.snapshot.block_ids), store)
        yield replace(generation, make_index=lambda snapshot: following)
    finally:
        index.close()
