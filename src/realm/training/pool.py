"""A pool of actors on Ray that embed a corpus on several machines, in place of ``embed_parts``, and the one connection to Ray: a cluster of
this machine's own, or one that is there. Token authentication on, usage statistics off.

Only plain values pass: paths, numbers, arrays, and classes at the top of a module, which travel by name; no pickle file is ever read.
Actors read parameters and corpus from the shared file system and send vectors back; the coordinator alone writes. Ray restarts an actor
that dies and gives it its part again."""

import importlib
import logging
import os
import secrets
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import ConfigError, PoolError, RealmError, needing, said
from realm.models.types import Embedding
from realm.progress import Advance
from realm.search.blocks import BlockInputs
from realm.search.publishing import embedding
from realm.search.publishing.embedding import EmbedOptions, part_embedder
from realm.storage.processes import environment, safely
from realm.training.refresh.refresher_process import open_recipe, serve_run

LOCAL = "local"
"""The address that means: start a cluster on this machine, and end it afterwards."""
OBJECT_STORE = 1 << 28
"""Bytes of shared memory for what is under way in a local cluster; beyond that Ray goes to disk."""
KNOCK_SECONDS = 5.0
TOKEN, TOKEN_PATH, MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_AUTO_CONNECT": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", MODE: "token"}
# Ray takes the machine's outer address even where 127.0.0.1 is asked for, unless clusters are off: then its servers bind to loopback.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


_imported: dict[str, str] = {}
"""The settings under which Ray was imported here: it reads most of them then and never again."""


def ray() -> Any:
    """The package. Raises MissingExtra: it is not installed."""
    with needing("a pool on several machines", "ray"):
        return importlib.import_module("ray")


def _imported_with(settings: dict[str, str]) -> Any:
    """The package, imported under these settings. Raises MissingExtra: not installed; PoolError: imported under others."""
    if sys.modules.get("ray") is not None and settings != _imported:
        raise PoolError("Ray was imported, or another cluster was used, in this process before", cure="Do this in a process of its own")
    package = ray()
    _imported.update(settings)
    if package.is_initialized():
        raise PoolError("this process is connected to Ray already", cure="End that connection first")
    return package


@contextmanager
def connected(address: str = LOCAL, *, cpus: int = 1) -> Iterator[None]:
    """Be connected to a Ray cluster while the block lasts; Ray must not have been imported before.

    ``address``: LOCAL for a new cluster in child processes, on loopback, with a token, of ``cpus``; HOST:PORT of a cluster's head, or
    "auto".

    Raises MissingExtra: no Ray; ConfigError: no address, or no token for a shared cluster; PoolError: nothing answers, or connected
    already."""
    local = address == LOCAL
    settings = QUIET | (LOOPBACK | {TOKEN: _own_token()} if local else _credentials(address))
    # Where a local cluster keeps its sockets and logs.
    place = tempfile.TemporaryDirectory(prefix="realm-ray-", ignore_cleanup_errors=True) if local else nullcontext()
    with environment(settings), place as directory:
        package = _imported_with(settings)
        options = {"num_cpus": cpus, "object_store_memory": OBJECT_STORE, "_temp_dir": directory, "include_dashboard": False}
        try:
            with safely():  # what starts here keeps it, for the workers that it starts
                _start(package, address, options if local else {})
            yield
        finally:
            package.shutdown()


@contextmanager
def located() -> Iterator[None]:
    """Name the actor's machine in an error that a user can cure. Raises PoolError instead of any other RealmError."""
    try:
        yield
    except RealmError as said:
        problem = f"{said.problem} (in an actor on {socket.gethostname()})"
        raise PoolError(problem, path=said.path, line=said.line, cure=said.cure) from said


def cause_of(error: Any) -> Exception:
    """The error that ``located`` raised in the actor, otherwise the RayTaskError itself."""
    cause = error.cause
    return cause if isinstance(cause, PoolError) else error


def _start(package: Any, address: str, options: dict[str, Any]) -> None:
    """Connect, or start. Raises PoolError: see ``connected``."""
    try:
        if not options and address != "auto":
            host, _, port = address.rpartition(":")  # where nothing listens Ray would try for two minutes
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
        # Ray would put the directory where this process stands on the path of its workers; they get an empty one.
        with tempfile.TemporaryDirectory(prefix="realm-ray-stand-") as empty:
            environment = {"working_dir": empty}
            package.init(address=address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment, **options)
    except Exception as error:  # Ray raises the bare one, too, where a busy machine does not start its node in time
        if options:
            raise PoolError(f"Ray did not start: {said(error)}", cure="Run the same command again when the machine is less busy") from error
        cure = "Start Ray on this machine with the same token: RAY_AUTH_MODE=token ray start --address HOST:PORT (--head on the first)"
        raise PoolError(f"no Ray cluster at {address}: {said(error)}", cure=cure) from error
    outer = package.util.get_node_ip_address()
    if options and not outer.startswith("127."):
        cure = "Start a cluster yourself and name its address"
        raise PoolError(f"Ray binds to {outer} and not to loopback", cure=cure)


def _credentials(address: str) -> dict[str, str]:
    """Settings for a cluster that is there: the user's own token is used, and one must be there. Raises ConfigError: see ``connected``."""
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and port.isdecimal() and "/" not in host):
        cure = "Give HOST:PORT of its head, auto, or nothing for this machine"
        raise ConfigError(f"'{address}' is not the address of a Ray cluster", cure=cure)
    named = os.environ.get(TOKEN_PATH)
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        token = os.environ.get(TOKEN) or file.read_text("utf-8").strip()
    except OSError:
        token = ""
    if not token:
        cure = f"Start every Ray process of it with {MODE}=token and one token, and put that into {TOKEN}, or a file named by {TOKEN_PATH}"
        raise ConfigError(f"there is no token for the Ray cluster at {address}, and without one anyone could run code there", cure=cure)
    return {TOKEN: token}


@cache
def _own_token() -> str:
    """Token of this process's local clusters: Ray remembers the first one it saw."""
    return secrets.token_hex(32)


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
