"""Errors of the disk, with what is still whole and what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from realm.errors import Interrupted, SnapshotError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_transient(error: BaseException) -> bool:
    """Return whether a file could not be read for want of descriptors or memory: it may be whole, and must be left alone."""
    found = error if isinstance(error, OSError) else error.__cause__
    return isinstance(found, MemoryError) or (isinstance(found, OSError) and found.errno in TRANSIENT)


@contextmanager
def full_disk_ends_cleanly(path: Path) -> Iterator[None]:
    """Turn the operating system's error into ours, around work that can be continued. Raises Interrupted: there is no room left."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise Interrupted("the disk is full", path=path, cure="Make room and run the same command again; nothing was published") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into a SnapshotError that names the generation ``path``; what was published before is intact."""
    try:
        yield
    except FileExistsError:
        raise SnapshotError("this generation exists and is never rewritten", path=path, cure="Publish it under the next number") from None
    except OSError as error:
        cure = "Free space or make the directory writable; everything published before is intact"
        raise SnapshotError(f"could not be written: {error.strerror or error}", path=path, cure=cure) from error
