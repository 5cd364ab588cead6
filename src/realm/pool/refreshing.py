"""``realm refresh RUN --ray``: an external refresher whose embedding is done by a pool of actors."""

from collections.abc import Callable
from pathlib import Path

from realm.pool.builders import BuilderPool
from realm.pool.cluster import connected
from realm.refresh.embedding import Progress
from realm.refresh.external import open_recipe, serve_run


def serve_pool(root: Path, address: str, actors: int, *, once: bool, say: Callable[[str], None], progress: Progress) -> None:
    """Answer a trainer's requests until pre-training has ended, as ``serve_run`` does.

    Args:
        root: the run, at the same place on every machine.
        address: see ``connected``.
        actors: how many embed; each with ``refresher.threads`` CPU threads, and a GPU of its own where the run computes on GPUs.
        once, say, progress: see ``serve_run``.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: no token, no address, or no actors.
        PoolError: no cluster, or none of its actors is up.
        RunError, SnapshotError: see ``serve_run``.
    """
    threads = open_recipe(root)[1].refresher.threads
    pool = BuilderPool(actors, say)  # refuses before anything starts
    with connected(address, cpus=actors * threads), pool:
        say(f"{actors} actors on {'this machine' if address == 'local' else address}")
        serve_run(root, once=once, say=say, progress=progress, parts_of=pool.parts)
