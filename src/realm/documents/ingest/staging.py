"""Files that a build keeps beside its target, in ``OUT.staging/``, until it is published; an interrupted build is continued from them. A
build with other sources or options discards them: ``build.json`` says what is built, ``segments.json`` how much of the spool is done."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from realm.documents.sources.folders import files_of, what_changes
from realm.documents.store import manifest as manifests
from realm.documents.store.manifest import CorpusManifest, writer_lock
from realm.errors import CorpusError, Interrupted, RealmError
from realm.storage import files
from realm.storage.decoding import json_value
from realm.storage.files import full_disk_ends_cleanly
from realm.storage.locks import LOCK_FILE

# Counts up with every change of what is staged.
FORMAT = "realm-build/4"


class Staging:
    """The places of one staged build; ``corpus`` becomes the corpus directory."""

    def __init__(self, root: Path):
        self.root = root
        self.corpus, self.spool, self.mark, self.segments = (root / name for name in ("corpus", "documents", "build.json", "segments.json"))

    @classmethod
    def beside(cls, out: Path) -> "Staging":
        return cls(out.with_name(f"{out.name}{files.STAGING_SUFFIX}"))

    def save_segments(self, manifest: CorpusManifest, batches: int) -> None:
        """Note that the segments of ``manifest`` are finished and hold the first ``batches`` batches of the spool."""
        files.fsync_tree(self.corpus)
        files.fsync_directory(self.root)  # the name of the corpus before the note of it
        files.write_json(self.segments, {"batches": batches, "manifest": asdict(manifest)})

    def load_segments(self) -> tuple[CorpusManifest, int] | None:
        """The last note of ``save_segments``; None if it was not called yet."""
        if not self.segments.exists():
            return None
        value = json_value(self.segments.read_text("utf-8"))
        return manifests.manifest_from_json(value["manifest"]), value["batches"]


@contextmanager
def staged_build(out: Path, sources: Sequence[Path], options: dict[str, Any], say: Callable[[str], None]) -> Iterator[Staging]:
    """Yield the staging of a build of ``out``, with what an interrupted build of the same left there; publish it at the end.

    An error in sources or options discards what is staged; an interruption of any kind (Ctrl-C, a crash, a full disk) keeps it. Raises
    Interrupted: the disk is full; CorpusError: another process is building here."""
    staging = Staging.beside(out)
    try:
        files.make_directory(out.parent)
        staging.root.mkdir(exist_ok=True)
    except (OSError, ValueError) as error:
        problem = f"no directory can be made here ({getattr(error, 'strerror', None) or error})"
        raise CorpusError(problem, path=out, cure="Choose another --out") from error
    with writer_lock(staging.root), full_disk_ends_cleanly(staging.root):
        try:
            _take_up(staging, _fingerprint(sources, options), say)
            yield staging
        except RealmError as error:
            if not isinstance(error, Interrupted):
                shutil.rmtree(staging.root, ignore_errors=True)
            raise
        files.rename_durably(staging.corpus, out)
        shutil.rmtree(staging.root, ignore_errors=True)


def remove_finished(out: Path) -> None:
    """Delete what a build that was killed after it had published ``out`` left beside it: a copy of all documents."""
    staging = Staging.beside(out)
    ours = {staging.corpus.name, staging.spool.name, staging.mark.name, staging.segments.name, LOCK_FILE}
    if (out / manifests.CURRENT_FILE).exists() and staging.root.is_dir() and ours.issuperset(os.listdir(staging.root)):
        shutil.rmtree(staging.root, ignore_errors=True)


def _take_up(staging: Staging, fingerprint: str, say: Callable[[str], None]) -> None:
    """Leave in the staging directory what belongs to this build, or nothing."""
    left = [path for path in staging.root.iterdir() if path.name != LOCK_FILE]
    mark = {"format": FORMAT, "fingerprint": fingerprint}
    if left:
        if files.read_json(staging.mark) == mark:
            say(f"continuing the interrupted build in {staging.root}")
            return
        say(f"discarding an interrupted build of other sources or options in {staging.root}")
        for path in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    files.write_json(staging.mark, mark)


def _fingerprint(sources: Sequence[Path], options: dict[str, Any]) -> str:
    """Paths, sizes and times of all source files, and the options."""
    rows: list[Any] = [options]
    for source in sources:
        rows.append(os.fspath(source.absolute()))
        rows += [[os.fspath(path), *what_changes(path)] for path in files_of(source)]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
