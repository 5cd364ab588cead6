"""One writer at a time: the lock of a directory, such as a corpus."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from realm.errors import RealmError

try:
    fcntl: Any = import_module("fcntl")
except ImportError:  # Windows
    fcntl = None
LOCK_FILE = "LOCK"
# How long a second writer waits: an addition of a few documents is over by then.
WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.1


@contextmanager
def held(directory: Path, busy: Callable[[str], RealmError], name: str = LOCK_FILE) -> Iterator[None]:
    """Hold the lock of a directory; wait up to ``WAIT_SECONDS`` for its holder, then raise ``busy(" (process 7)")``.

    The kernel holds the lock for the open file: there are no stale locks. ``LOCK_FILE`` comes with a lock on the directory itself, where
    its file system has such: a user may delete the file under a writer, and the next one would lock a new file."""
    with ExitStack() as stack:
        file = stack.enter_context(open(directory / name, "a+", encoding="ascii"))
        _acquire(file, file, busy)
        if name == LOCK_FILE and (itself := _lockable(directory)) is not None:
            stack.callback(os.close, itself)
            _acquire(itself, file, busy)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _lockable(directory: Path) -> int | None:
    """A descriptor of the directory; None where it cannot be locked (NFS wants a file that is open for writing, Windows opens none)."""
    if fcntl is None:
        return None
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError:
        pass
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _acquire(locked: IO[str] | int, file: IO[str], busy: Callable[[str], RealmError]) -> None:
    """Lock a file or a descriptor; ``file`` says who has it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            if fcntl is not None:
                fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:  # a byte far behind what is written
                windows: Any = import_module("msvcrt")
                file.seek(1 << 20)
                windows.locking(file.fileno(), windows.LK_NBLCK, 1)
                file.seek(0)
            return
        except (BlockingIOError, PermissionError) as error:
            if time.monotonic() >= deadline:
                file.seek(0)
                writer = file.read().strip()
                raise busy(f" (process {writer})" if writer else "") from error
            time.sleep(_POLL_SECONDS)
