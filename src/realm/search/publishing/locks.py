"""The two locks of a run's ``index/``: of its one publisher, held for as long as that works, and of its requests, held for a moment.

Who becomes the publisher removes what killed writers left.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from realm.errors import SnapshotError
from realm.search.publishing.manifest import MANIFEST, read_manifest
from realm.search.publishing.writing import PROGRESS
from realm.storage.files import STAGING_SUFFIX, make_directory, remove_staging
from realm.storage.generations import delete_unnamed, generation_numbers, generation_path
from realm.storage.locks import LOCK_FILE, held

REQUESTS = "LOCK.requests"


@contextmanager
def publishing(index: Path) -> Iterator[None]:
    """Be the one process that publishes generations in a run's ``index/``.

    Raises:
        SnapshotError: another process does, and did not end while we waited; or the directory may not be written to.
    """
    cure = "Wait for it, or stop it; only one process at a time can build the index of a run"
    with _holding(index, LOCK_FILE, "builds this index", cure):
        sweep(index)
        yield


@contextmanager
def deciding(index: Path) -> Iterator[None]:
    """Hold the requests of a run for the moment in which one is answered or some are taken back: each is one or the other.

    A refresher is the publisher for its whole life, so a trainer that takes requests back cannot wait for that.

    Raises:
        SnapshotError: as ``publishing``.
    """
    with _holding(index, REQUESTS, "is handling the requests for this index", "Try again; if it hangs, stop that process"):
        yield


@contextmanager
def _holding(index: Path, name: str, does: str, cure: str) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            make_directory(index)
            stack.enter_context(held(index, lambda named: SnapshotError(f"another process{named} {does}", path=index, cure=cure), name))
        except OSError as error:
            raise SnapshotError(f"could not be written: {error.strerror}", path=index, cure="Make the directory writable") from error
        yield


def sweep(directory: Path) -> None:
    """Delete half-written files, and shards that no manifest names: a delta that was cut off. The caller holds the index.

    Args:
        directory: the run's ``index/``.
    """
    remove_staging(directory)
    for number in generation_numbers(directory):
        path = generation_path(directory, number)
        try:
            manifest = read_manifest(path, number)
        except SnapshotError:  # whoever opens it says so and puts it aside
            continue
        named = {name for shard in manifest.shards for name in shard.files} | {MANIFEST}
        ours = (file for file in path.iterdir() if file.name == PROGRESS or file.suffix in (".npy", STAGING_SUFFIX))
        delete_unnamed(ours, {path / name for name in named})
