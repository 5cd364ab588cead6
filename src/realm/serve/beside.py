"""Large changes of documents in a process of their own, which takes the memory with it, while the server keeps answering."""

import os
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from pathlib import Path

from realm.answering.opening import open_run
from realm.documents.change.updates import add_documents, update_documents
from realm.documents.workers import Workers
from realm.errors import CorpusError, RealmError
from realm.storage.paths import RunPaths

MIN_CHILD_BYTES = 256 * 2**10
"""A file of documents of at least so many bytes gets its own process, which takes seconds to start."""
CHILD_NICENESS = 5
"""Questions come first."""
CHANGES: dict[str, Callable[..., object]] = {"added": add_documents, "replaced": update_documents}


def change(run: Path, kind: str, file: Path) -> None:
    """Take in a file of JSON lines, strictly: here where it is small, in a process of its own where it is not. ``kind``: of CHANGES.

    Raises RealmError: as the change raises it; nothing is changed."""
    if file.stat().st_size < MIN_CHILD_BYTES:
        CHANGES[kind](RunPaths(run).corpus, [file], strict=True, workers=1)
        return
    try:
        with closing(Workers(1)) as workers:
            workers.apart(take_in, run, kind, file)
    except BrokenProcessPool as error:
        cure = "Check which documents are stored, and send the others in smaller requests"
        raise CorpusError("the process that stores the documents ended, perhaps out of memory", path=run, cure=cure) from error


def take_in(run: Path, kind: str, file: Path) -> None:
    """The change and its embeddings, in a process for it."""
    os.nice(CHILD_NICENESS)
    CHANGES[kind](RunPaths(run).corpus, [file], strict=True, workers=1)
    with suppress(RealmError):  # the change is made; the server embeds it, and says what is wrong if it cannot either
        open_run(run).with_added()
