"""One writer at a time: the lock of a corpus directory."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from realm.errors import CorpusError

LOCK_FILE = "LOCK"
# How long a second writer waits: an addition of a few documents is over by then.
WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.1


@contextmanager
def writer_lock(corpus: Path) -> Iterator[None]:
    """Hold the corpus for writing; wait up to ``WAIT_SECONDS`` for another writer.

    The kernel holds the lock for the open file, so it ends with the process, however that ends: there are no stale locks. The file
    stays and names the process that wrote last.

    Raises:
        CorpusError: another process is still writing.
    """
    with open(corpus / LOCK_FILE, "a+", encoding="ascii") as file:
        _acquire(file, corpus)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _acquire(file: IO[str], corpus: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                file.seek(0)
                writer = file.read().strip()
                named = f" (process {writer})" if writer else ""
                raise CorpusError(
                    f"another process{named} is changing this corpus", path=corpus, cure="Try again when it has ended"
                ) from error
            time.sleep(_POLL_SECONDS)
