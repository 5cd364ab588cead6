"""A pool of actors that embed a corpus, in place of ``embed_parts`` on several machines.

Actors read parameters and corpus from the shared file system and send vectors back; the coordinator alone writes. Ray restarts an actor
that dies and gives it its part again."""

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
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
"""Seconds in which an actor must be up; a pool without any is given up."""
MAX_DEATHS = 3
"""So many actors may one part kill."""
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

    def __init__(self, actors: int):
        if actors < 1:
            raise ConfigError(f"actors = {actors} is below 1")
        self.count = actors
        self._actors: list[Any] = []

    def __enter__(self) -> "BuilderPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors."""
        for actor in self._actors:
            ray().kill(actor)
        self._actors = []

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
            from ray.util import ActorPool

            pool, asked = ActorPool(self._started(options.threads or 1, int(gpu))), deque[tuple[int, int]]()
            ids, size = np.asarray(inputs.store.block_ids)[rows], embedding.PART_ROWS
            items = ((at, ids[at : at + size]) for at in range(start, len(rows), size))
            while True:
                for at, part in islice(items, 2 * self.count + 2 - len(asked)):
                    pool.submit(lambda actor, part: actor.embed.remote(request, part), part)
                    asked.append((at, at + len(part)))
                if not asked:
                    return
                vectors, done = _next(pool, *asked[0]), asked.popleft()[1]
                if progress is not None:
                    progress(done, len(rows))
                yield vectors

        return parts

    def _started(self, threads: int, gpus: int) -> list[Any]:
        """The actors that are up within ``START_SECONDS``. Raises PoolError: none is."""
        if self._actors:
            return self._actors
        package = ray()
        remote = package.remote(self.actor).options(
            num_cpus=threads, num_gpus=gpus, max_restarts=-1, max_task_retries=MAX_DEATHS, scheduling_strategy="SPREAD"
        )
        asked = {actor.ready.remote(): actor for actor in (remote.remote() for _ in range(self.count))}
        reason, (up, _) = "", package.wait([*asked], num_returns=self.count, timeout=START_SECONDS)
        for reference in up:
            try:
                package.get(reference)
                self._actors.append(asked.pop(reference))
            except package.exceptions.RayError as error:
                reason = ": " + str(error).strip().splitlines()[-1]
        for actor in asked.values():
            package.kill(actor)
        if not self._actors:
            there = ", ".join(f"{what} {amount:g}" for what, amount in package.cluster_resources().items() if what in ("CPU", "GPU"))
            cure = "Ask for fewer --actors or refresher.threads, or add machines; run the same command again to continue"
            raise PoolError(f"none of {self.count} actors is up (the cluster has {there}){reason}", cure=cure)
        return self._actors


def _next(pool: Any, first: int, stop: int) -> np.ndarray:
    """The vectors of the next rows, [first, stop). Raises PoolError: they killed too many actors, or an actor cannot embed them."""
    errors = ray().exceptions
    try:
        vectors: np.ndarray = pool.get_next()
    except errors.RayTaskError as error:
        raise cause_of(error) from None
    except errors.RayError as error:  # the actor, its machine, or what it had sent is gone, and Ray has tried again
        cure = "If memory ran out, lower refresher.threads or --actors; run the same command again to continue"
        raise PoolError(f"{MAX_DEATHS + 1} actors died over rows {first} to {stop}", cure=cure) from error
    return vectors


def serve_pool(root: Path, address: str, actors: int, *, once: bool, say: Callable[[str], None], progress: Advance) -> None:
    """``realm refresh RUN --ray``: answer a trainer's requests until pre-training has ended, as ``serve_run`` does.

    ``root`` lies at the same place on every machine; each of ``actors`` has ``refresher.threads`` CPU threads, and a GPU where the run uses
    them.

    Raises MissingExtra: no Ray; ConfigError: no token, address or actors; PoolError: no cluster or actor is up; else as ``serve_run``."""
    threads = open_recipe(root)[1].refresher.threads
    pool = BuilderPool(actors)  # refuses before anything starts
    with connected(address, cpus=actors * threads), pool:
        say(f"{actors} actors on {'this machine' if address == 'local' else address}")
        serve_run(root, once=once, say=say, progress=progress, parts_of=pool.parts)
