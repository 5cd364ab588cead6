"""The run that is served: opened once, followed as it changes on disk, and swapped between two batches; counters for Prometheus.

A request is computed with one state of corpus, index and networks; the next state is made ready beside it, so that no request waits."""

import contextlib
import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from realm.answering.answerer import BATCH_SIZE
from realm.answering.opening import OpenRun, open_run
from realm.documents.change.compaction import needs_tidying, tidy_corpus
from realm.documents.store.manifest import current_version
from realm.errors import RealmError, RunError, SnapshotError
from realm.serve.batching import Batcher, Question, Result
from realm.serve.shapes import LIMITS, Limits, Refusal
from realm.storage.layout import RunPaths, has_stage
from realm.storage.locks import held

WATCH_SECONDS = 0.5
UPLOADS = "uploads"
"""Directory of documents in the run while they are taken in; holds the lock of the one server of a run."""
logger = logging.getLogger(__name__)


class Serving:
    """A run that is being served; ``close`` ends it. ``documents`` brings the corpus up to date with the files that it is made of, if
    they have changed; None: a run of its own. ``reader``: a model that reads in place of the run's own reader. Raises RealmError: the
    run cannot be opened, or another process serves it."""

    def __init__(self, root: Path, *, limits: Limits = LIMITS, documents: Callable[[Path], object] | None = None, reader: str = ""):
        self._documents, self._rests, self._reader = documents, 0.0, reader
        self.paths = RunPaths(root)
        self.limits = limits
        self._changing = threading.RLock()
        self._told = ""
        self._seen = networks_seen(self.paths)
        current = _ready(open_run(root).read_by(reader))
        self._only = self._only_server()
        self.current = self._with_added(current)  # what a killed server had taken into the corpus and not embedded yet
        self.batcher = Batcher(self._compute, waiting=limits.waiting, most=BATCH_SIZE)
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="realm-watcher", daemon=True)
        self._watcher.start()

    @property
    def versions(self) -> dict[str, int]:
        return self.current.versions

    async def ask(self, question: Question, payloads: list[Any], timeout_ms: int) -> list[Result]:
        """One result for each payload; raises as ``Batcher.submit`` does."""
        return await self.batcher.submit(question, payloads, timeout_ms / 1000)

    def change(self, action: Callable[[], None]) -> OpenRun:
        """Change the corpus, embed what is new, and serve the result. Returns what is served when all of that is done. Raises RealmError:
        whatever ``action`` raised; Refusal: 503, the change is in the corpus, and what it adds cannot be searched yet; ``follow`` will see
        to that."""
        with self._changing:
            action()
            try:
                self._swap(self._with_added(self.current))
            except SnapshotError as error:
                told = f"the change is stored, and its documents will be searchable later: {error.problem}"
                raise Refusal(503, "later", told, retry_after=5) from error
            return self.current

    def follow(self) -> bool:
        """Serve what others have changed on disk, if they have. Returns whether there was something new. Raises RealmError: the new state
        cannot be opened; the old one is still served."""
        with self._changing:
            seen = networks_seen(self.paths)
            if seen != self._seen:
                opened = open_run(self.paths.root).read_by(self._reader)
                if opened.tuned is None and self.current.tuned is not None:
                    raise RunError("the fine-tuned networks no longer exist on disk; answering from those in memory", path=self.paths.root)
                self._swap(self._with_added(_ready(opened)))
                self._seen = seen
                return True
            if current_version(self.paths.corpus) == self.current.inputs.store.version:
                return False
            self._swap(self._with_added(self.current))
            return True

    def tidy(self) -> bool:
        """Merge the files that single changes of documents have left in the corpus, if they are many. Returns whether they were. Raises
        RealmError: another process changes the corpus for long, or it cannot be written to. Nothing is changed then."""
        if not needs_tidying(self.current.inputs.store):
            return False
        with self._changing:
            tidy_corpus(self.paths.corpus)
            self._swap(self._with_added(self.current))
        return True

    def close(self) -> None:
        """Answer what was asked, then end."""
        self._stopped.set()
        self._watcher.join()
        self.batcher.close()
        self._only.close()

    def _compute(self, question: Any, payloads: list[Any]) -> list[Any]:
        results: list[Result] = question(self.current, payloads)
        return results

    def _with_added(self, current: OpenRun) -> OpenRun:
        """As the corpus is now, every live block searchable. Not served yet."""
        opened, added = current.with_added()
        if opened.generation is current.generation:  # only removals: the index follows them by itself
            return _able_to_answer(opened)
        logger.info("%d blocks embedded, corpus version %d", added, opened.inputs.store.version)
        return _ready(opened)

    def _swap(self, current: OpenRun) -> None:
        """Serve another state, from the next batch on; returns when no batch is computed with the old one any more."""

        def put() -> None:
            self.current = current

        self.batcher.between(put)
        give_back()  # the state before has gone, or goes with the next batch

    def _watch(self) -> None:
        while not self._stopped.wait(WATCH_SECONDS):
            try:
                self.follow()
                self.tidy()
                self._follow_documents()
                self._told = ""
            except Exception as error:  # whatever is wrong on disk, what is in memory goes on answering
                said = error.problem if isinstance(error, RealmError) else type(error).__name__
                if said != self._told:
                    logger.warning("a change of the run could not be loaded; serving the old state: %s", said)
                self._told = said

    def _follow_documents(self) -> None:
        """Look at the documents, but for a tenth of the time at most: many files take long to look at."""
        if self._documents is None or time.monotonic() < self._rests:
            return
        started = time.monotonic()
        try:
            with self._changing:
                self._documents(self.paths.root)
        finally:
            self._rests = time.monotonic() + 9 * (time.monotonic() - started)

    def _only_server(self) -> ExitStack:
        """Be the one server of this run until the result is closed; what a killed one left half taken in goes."""
        uploads = self.paths.root / UPLOADS
        uploads.mkdir(exist_ok=True)
        cure = "Only one process can serve a run: stop that one first"
        stack = ExitStack()
        stack.enter_context(
            held(uploads, lambda named: RunError(f"another process{named} serves this run", path=self.paths.root, cure=cure))
        )
        for left in uploads.glob("*.jsonl"):
            left.unlink()
        return stack


def _able_to_answer(opened: OpenRun) -> OpenRun:
    """With its reader in memory: what happens to the stage on disk later does not matter."""
    if opened.reads:
        _ = opened.answerer
    return opened


def _ready(opened: OpenRun) -> OpenRun:
    """Prepare everything that the first question would otherwise wait for. Only for an index that is not searched yet."""
    _able_to_answer(opened)
    if len(opened.generation.index):
        opened.search_all(["ready?"], 1)
    return opened


def networks_seen(paths: RunPaths) -> tuple[Any, ...]:
    """Inode and time of the notes of the stages whose networks answer: they tell one training from the next."""
    return tuple(_stat(paths.stage(stage) / "stage.json") for stage in ("pretrain", "finetune") if has_stage(paths, stage))


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def give_back() -> None:
    """Let the C library return the pages that hold nothing: a millisecond or two. Where it cannot, nothing happens. Each change of what is
    served makes large pieces of memory and frees others, in whichever thread the change came, and glibc keeps what is free for that thread:
    without this the process of a server grows for hours, though what it holds does not."""
    with contextlib.suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
