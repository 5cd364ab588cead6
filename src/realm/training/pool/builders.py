"""A pool of actors that embed a corpus, in place of ``embed_parts`` on several machines.

Actors read parameters and corpus from the shared file system and send vectors back; the coordinator alone writes. An actor that dies is
restarted by Ray, and a free actor takes its part."""

import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import ConfigError, PoolError
from realm.models.types import Embedding
from realm.progress import Advance
from realm.search.blocks import BlockInputs
from realm.search.publishing import embedding
from realm.search.publishing.embedding import EmbedOptions, part_embedder
from realm.training.pool.cluster import cause_of, connected, located, ray
from realm.training.refresh.refresher_process import open_recipe, serve_run

START_SECONDS = 300.0
"""Seconds that a pool does without any actor before it is given up."""
MAX_DEATHS = 3
"""So many actors may one part kill."""
WAIT_SECONDS = 1.0
Request = tuple[str, str, int, int, str, bool]  # the arguments of part_embedder


class Builder:
    """Actor that embeds parts; what it has opened stays open for the next part of the same generation."""

    def __init__(self) -> None:
        self._request: Request | None = None
        self._embed: Callable[[np.ndarray], np.ndarray] | None = None

    def ready(self) -> tuple[str, int]:
        """Host and process of the actor."""
        return socket.gethostname(), os.getpid()

    def embed(self, request: Request, block_ids: np.ndarray) -> np.ndarray:
        """Block ids int64 [r] -> float32 [r, d]."""
        with located():
            if self._embed is None or request != self._request:
                self._embed, self._request = part_embedder(*request), request
            return self._embed(block_ids)


class BuilderPool:
    """``actors`` builders in a connected Ray cluster, started when first needed. A context manager. Raises ConfigError: fewer than 1."""

    actor: type = Builder

    def __init__(self, actors: int, say: Callable[[str], None] = lambda line: None):
        if actors < 1:
            raise ConfigError(f"actors = {actors} is below 1")
        self.count = actors
        self._say = say
        self._all: list[Any] = []
        self._idle: list[Any] = []
        self._coming: dict[Any, Any] = {}  # reference of an answer that says "ready" -> actor
        self._reason = ""  # why one could not be started
        self._since = 0.0  # when an actor was last known to be up

    def __enter__(self) -> "BuilderPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors."""
        for actor in self._all:
            ray().kill(actor)
        self._all, self._idle, self._coming = [], [], {}

    def parts(
        self,
        embedder: Embedding,
        params: os.PathLike[str],
        inputs: BlockInputs,
        rows: np.ndarray,
        options: EmbedOptions,
        progress: Advance | None,
    ) -> Callable[[int], Iterator[np.ndarray]]:
        """As ``embed_parts``, bit for bit; of ``options`` count an actor's threads (0: 1), bf16, and GPUs: then one for each actor."""
        gpu = any(device.startswith("cuda") for device in options.devices)
        places = os.path.abspath(params), os.path.abspath(inputs.store.path)
        request = (*places, inputs.featurizer.query_length, options.threads or 1, "cuda" if gpu else "cpu", options.bf16)

        def parts(start: int) -> Iterator[np.ndarray]:
            self._start(options.threads or 1, int(gpu))
            ids = np.asarray(inputs.store.block_ids)[rows]
            size = embedding.PART_ROWS
            items = ((at, ids[at : at + size]) for at in range(start, len(rows), size))
            with closing(_Work(self, request, items).in_order()) as results:
                for at, vectors in results:
                    if progress is not None:
                        progress(at + len(vectors), len(rows))
                    yield vectors

        return parts

    def take(self) -> Any | None:
        """An actor that has nothing to do; None if there is none."""
        return self._idle.pop() if self._idle else None

    def give(self, actor: Any) -> None:
        """Take an actor back that has nothing to do."""
        self._idle.append(actor)
        self._since = time.monotonic()

    def ask(self, actor: Any) -> None:
        """Take an actor back that is being started or is still at work: it counts again when it answers."""
        self._coming[actor.ready.options(max_task_retries=-1).remote()] = actor

    def died(self, part: str) -> None:
        """Tell of a dead actor."""
        self._say(f"an actor that embedded {part} died; Ray restarts it, and a free actor takes the part")

    def wait(self, pending: list[Any]) -> list[Any]:
        """Some of the answers that are there; actors that answered ``ask`` are idle by then. Raises PoolError: no actor is up."""
        package = ray()
        found, _ = package.wait([*pending, *self._coming], num_returns=1, timeout=WAIT_SECONDS)
        for reference in [one for one in found if one in self._coming]:
            actor = self._coming.pop(reference)
            try:
                package.get(reference)
                self.give(actor)
            except package.exceptions.RayError as error:  # it cannot be started
                self._all.remove(actor)
                self._reason = ": " + str(error).strip().splitlines()[-1]
        if not self._all or (not pending and not self._idle and time.monotonic() - self._since > START_SECONDS):
            there = ", ".join(f"{what} {amount:g}" for what, amount in package.cluster_resources().items() if what in ("CPU", "GPU"))
            cure = "Ask for fewer --actors or refresher.threads, or add machines; run the same command again to continue"
            raise PoolError(f"none of {self.count} actors is up (the cluster has {there}){self._reason}", cure=cure)
        return [one for one in found if one in pending]

    def _start(self, threads: int, gpus: int) -> None:
        self._since = time.monotonic()
        if self._all:
            return
        remote = ray().remote(self.actor).options(num_cpus=threads, num_gpus=gpus, max_restarts=-1, scheduling_strategy="SPREAD")
        self._all = [remote.remote() for _ in range(self.count)]
        for actor in self._all:
            self.ask(actor)


class _Work:
    """The parts of one generation on their way through the pool."""

    def __init__(self, pool: BuilderPool, request: Request, items: Iterator[tuple[int, np.ndarray]]):
        self._pool = pool
        self._request = request
        self._items = items
        self._again: deque[tuple[int, np.ndarray]] = deque()  # parts of dead actors
        self._order: deque[int] = deque()  # parts begun and not yielded
        self._busy: dict[Any, tuple[Any, tuple[int, np.ndarray]]] = {}
        self._done: dict[int, np.ndarray] = {}
        self._deaths: Counter[int] = Counter()

    def in_order(self) -> Generator[tuple[int, np.ndarray], None, None]:
        """(first row, vectors) of every part in order. At most two parts an actor, and two more, are under way or wait for their turn."""
        try:
            while True:
                more = self._hand_out()
                if self._order and self._order[0] in self._done:
                    at = self._order.popleft()
                    yield at, self._done.pop(at)
                elif more or self._order:
                    for reference in self._pool.wait(list(self._busy)):
                        self._settle(reference)
                else:
                    return
        finally:
            for actor, _ in self._busy.values():
                self._pool.ask(actor)

    def _hand_out(self) -> bool:
        """Give parts to idle actors. Whether any part is left that was not begun."""
        while self._again or len(self._order) < 2 * self._pool.count + 2:
            if (actor := self._pool.take()) is None:
                return True
            item = self._again.popleft() if self._again else next(self._items, None)
            if item is None:
                self._pool.give(actor)
                return False
            if not self._deaths[item[0]]:
                self._order.append(item[0])
            self._busy[actor.embed.remote(self._request, item[1])] = actor, item
        return True

    def _settle(self, reference: Any) -> None:
        """Take a result, or give the part of a dead actor to another."""
        errors = ray().exceptions
        actor, item = self._busy.pop(reference)
        first, part = item[0], f"rows {item[0]} to {item[0] + len(item[1])}"
        try:
            self._done[first] = ray().get(reference)
        except errors.RayTaskError as error:
            self._pool.give(actor)
            raise cause_of(error) from None
        except errors.RayError as error:  # the actor, its machine, or what it had sent is gone
            self._pool.ask(actor)
            self._deaths[first] += 1
            self._again.append(item)
            if self._deaths[first] > MAX_DEATHS:
                cure = "If memory ran out, lower refresher.threads or --actors; run the same command again to continue"
                raise PoolError(f"{MAX_DEATHS + 1} actors died over {part}", cure=cure) from error
            self._pool.died(part)
        else:
            self._pool.give(actor)


def serve_pool(root: Path, address: str, actors: int, *, once: bool, say: Callable[[str], None], progress: Advance) -> None:
    """``realm refresh RUN --ray``: answer a trainer's requests until pre-training has ended, as ``serve_run`` does.

    ``root`` lies at the same place on every machine; each of ``actors`` has ``refresher.threads`` CPU threads, and a GPU where the run uses
    them.

    Raises MissingExtra: no Ray; ConfigError: no token, address or actors; PoolError: no cluster or actor is up; else as ``serve_run``."""
    threads = open_recipe(root)[1].refresher.threads
    pool = BuilderPool(actors, say)  # refuses before anything starts
    with connected(address, cpus=actors * threads), pool:
        say(f"{actors} actors on {'this machine' if address == 'local' else address}")
        serve_run(root, once=once, say=say, progress=progress, parts_of=pool.parts)
