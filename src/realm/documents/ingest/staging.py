"""The place beside its target, ``OUT.staging/``, in which a corpus is built until it is published."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from realm.documents.store import manifest as manifests
from realm.documents.store.manifest import writer_lock
from realm.errors import CorpusError
from realm.storage import files
from realm.storage.files import full_disk_ends_cleanly
from realm.storage.locks import LOCK_FILE

CORPUS, SPOOL = "corpus", "documents"
"""Names in the staging directory: what becomes the corpus, and the documents on their way to it."""


@contextmanager
def staged_build(out: Path) -> Iterator[Path]:
    """Yield a staging directory beside ``out``, of which ``CORPUS`` becomes ``out`` at the end; after an error nothing is left, and what a
    killed build left goes first. Raises Interrupted: the disk is full; CorpusError: another process is building here."""
    root = _beside(out)
    try:
        files.make_directory(out.parent)
        root.mkdir(exist_ok=True)
    except (OSError, ValueError) as error:
        problem = f"no directory can be made here ({getattr(error, 'strerror', None) or error})"
        raise CorpusError(problem, path=out, cure="Choose another --out") from error
    with writer_lock(root), full_disk_ends_cleanly(root):
        try:
            for name in (CORPUS, SPOOL):
                shutil.rmtree(root / name, ignore_errors=True)
            (root / CORPUS / manifests.SEGMENTS_DIRECTORY).mkdir(parents=True)
            yield root
            files.rename_durably(root / CORPUS, out)
        finally:
            shutil.rmtree(root, ignore_errors=True)


def remove_finished(out: Path) -> None:
    """Delete what a build that was killed after it had published ``out`` left beside it: a copy of all documents."""
    root = _beside(out)
    if (out / manifests.CURRENT_FILE).exists() and root.is_dir() and {CORPUS, SPOOL, LOCK_FILE}.issuperset(os.listdir(root)):
        shutil.rmtree(root, ignore_errors=True)


def _beside(out: Path) -> Path:
    return out.with_name(f"{out.name}{files.STAGING_SUFFIX}")
