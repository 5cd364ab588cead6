"""The two locks of a run's ``index/``: of its one publisher, held for as long as that works, and of its requests, held for a moment."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from realm.errors import SnapshotError
from realm.index.sweeping import sweep
from realm.storage.locks import LOCK_FILE, held

REQUESTS = "LOCK.requests"


@contextmanager
def publishing(index: Path) -> Iterator[None]:
    """Be the one process that publishes generations in a run's ``index/``.

    Raises:
        SnapshotError: another process does, and did not end while we waited; or the directory may not be written to.
    """
    cure = "Wait until it has ended, or end it; one process at a time builds the index of a run"
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
    with _holding(index, REQUESTS, "answers the requests for this index or takes them back", "Try again; if it hangs, end that process"):
        yield


@contextmanager
def _holding(index: Path, name: str, does: str, cure: str) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            index.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(index, lambda named: SnapshotError(f"another process{named} {does}", path=index, cure=cure), name))
        except OSError as error:
            raise SnapshotError(f"could not be written: {error.strerror}", path=index, cure="Make the directory writable") from error
        yield
