"""Documents over HTTP: all of a request or none of it, in the corpus and in the index when the call returns.

A change is durable before it is acknowledged; a server that is killed in between embeds the document when it starts again. Large changes
are made in a process of their own, which takes the memory with it, while the server keeps answering.
No request names a file: a document that is added over HTTP has no picture, and a picture that changed since it was read is not sent."""

import json
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np

from realm.answering import records
from realm.answering.opening import open_run
from realm.documents.change.updates import add_documents, remove_documents, update_documents
from realm.documents.pages.pictures import picture_bytes
from realm.documents.pictures import SHOWN, picture_type
from realm.documents.store.blocks import BlockStore
from realm.documents.store.info import unread_files
from realm.documents.workers import Workers
from realm.errors import CorpusError, RealmError
from realm.serve.serving import UPLOADS, Serving
from realm.serve.shapes import Document, Refusal, queue_full
from realm.storage.layout import RunPaths
from realm.text.lines import canonical_line

MIN_CHILD_BYTES = 256 * 2**10
"""A file of documents of at least so many bytes gets its own process, which takes seconds to start."""
CHILD_NICENESS = 5
"""Questions come first."""
CHANGES: dict[str, Callable[..., object]] = {"added": add_documents, "replaced": update_documents}
MAX_NAMED_IDS = 5
"""Ids that a refusal names."""


class Documents:
    """The documents of the run that is served. Calls block; any number of threads may make them."""

    def __init__(self, serving: Serving):
        self._serving = serving
        self._room = threading.BoundedSemaphore(serving.limits.changes)

    def add(self, documents: Sequence[Document]) -> records.DocumentsResponse:
        """Add documents whose ids are new. Raises Refusal: 409 an id is there already or given twice, 422 a document without text, 503 too
        many changes wait; RealmError: the corpus or the index cannot be written to now."""
        return self._store("added", documents)

    def replace(self, documents: Sequence[Document]) -> records.DocumentsResponse:
        """Replace documents that are there. Raises Refusal: 404 an id is not there, 409 one is given twice, 422 a document without text,
        503 too many changes wait; RealmError: as for ``add``."""
        return self._store("replaced", documents)

    def remove(self, ids: Sequence[str]) -> records.RemoveResponse:
        """Remove documents: no answer that is given from now on holds them. Raises Refusal: 404 an id is not there, 409 nothing would be
        left, 503 too many changes wait; RealmError: as for ``add``."""
        names = list(dict.fromkeys(map(canonical_line, ids)))

        def act() -> None:
            store = self._newest()
            rows = [store.live_rows_of_document(name) for name in names]
            _refuse(404, "unknown", "not there", [name for name, found in zip(names, rows, strict=True) if not len(found)])
            if sum(map(len, rows)) == int(store.live.sum()):
                raise Refusal(409, "last", "a served run needs at least one document; add others first")
            remove_documents(store.path, names)

        with self._waiting():
            current = self._serving.change(act)
        return records.RemoveResponse(names, records.Versions(**current.versions))

    def get(self, doc_id: str) -> records.DocumentResponse:
        """A document, block by block. Raises Refusal: 404."""
        current = self._serving.current
        store = current.inputs.store.newest()
        rows = store.live_rows_of_document(canonical_line(doc_id)).tolist()
        if not rows:
            raise Refusal(404, "unknown", "no document has this id")
        blocks = [store.block(row) for row in rows]
        parts = [records.DocumentBlock(block.block_id, block.text, block.char_start, block.media) for block in blocks]
        return records.DocumentResponse(blocks[0].doc_id, blocks[0].title, parts, records.Versions(**current.versions))

    def page(self, start: int, limit: int) -> records.ListResponse:
        """Ids and titles of ``limit`` documents from number ``start`` on; files that were not read, by their place in a source."""
        current = self._serving.current
        found, following = current.listed(start, limit)
        listed = [records.ListedDocument(*one) for one in found]
        unread = [{**file, "path": _place(file["path"], current.recipe.corpus.sources)} for file in unread_files(current.paths.corpus)]
        return records.ListResponse(listed, len(current.documents), following, unread, records.Versions(**current.versions))

    def picture(self, block_id: int) -> tuple[bytes, str]:
        """The picture that a block is of, and its media type: only one that the corpus names, and only as it was when the corpus read it.
        Raises Refusal: 404 there is no such block, it is of no picture, or the picture is gone or changed; 415 browsers do not show its
        kind."""
        store, wanted = self._newest(), np.array([block_id], np.int64)
        if not store.is_live(wanted)[0]:
            raise Refusal(404, "unknown", "no block has this id")
        block = store.block(int(store.rows_of(wanted)[0]))
        if not block.media:
            raise Refusal(404, "unknown", "this block is of no picture")
        data = picture_bytes(block.media, block.media_sum)
        if data is None:
            raise Refusal(404, "gone", "the picture is not where it was read, or has changed since; sync the corpus")
        kind = picture_type(data)
        if kind not in SHOWN:
            raise Refusal(415, "not_shown", "browsers do not show pictures of this kind")
        return data, kind

    def _store(self, kind: str, documents: Sequence[Document]) -> records.DocumentsResponse:
        """Write the documents to a file of the run and have the corpus read it, strictly. ``kind``: added or replaced."""
        ids = [canonical_line(document.id) for document in documents]
        empty = [given.id for given, name in zip(documents, ids, strict=True) if not name]
        _refuse(422, "invalid", "empty once control characters are taken out", empty)
        _refuse(409, "twice", "given twice", [name for name, count in Counter(ids).items() if count > 1])

        def act() -> None:
            store = self._newest()
            there = [name for name in ids if len(store.live_rows_of_document(name))]
            if kind == "added":
                _refuse(409, "exists", "there already", there)
            else:
                _refuse(404, "unknown", "not there", [name for name in ids if name not in there])
            with _written(self._serving.paths.root / UPLOADS, documents) as file:
                change(self._serving.paths.root, kind, file)

        with self._waiting():
            current = self._serving.change(act)
        store = current.inputs.store
        stored = [records.StoredDocument(name, len(store.live_rows_of_document(name))) for name in ids]
        return records.DocumentsResponse(stored, records.Versions(**current.versions))

    def _newest(self) -> BlockStore:
        """The corpus as it is on disk: another process may have changed it."""
        return self._serving.current.inputs.store.newest()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """A place among the changes that wait for each other."""
        if not self._room.acquire(blocking=False):
            raise queue_full("changes of documents")
        try:
            yield
        finally:
            self._room.release()


def _place(path: str, sources: Sequence[str]) -> str:
    """The path of a file in the source that holds it; where that lies on this machine is private."""
    return next((path.removeprefix(f"{source}/") for source in sources if path.startswith(f"{source}/")), Path(path).name)


def _refuse(status: int, code: str, what: str, ids: list[str]) -> None:
    if ids:
        more = f" and {len(ids) - MAX_NAMED_IDS} more" if len(ids) > MAX_NAMED_IDS else ""
        raise Refusal(status, code, f"nothing is changed, since these ids are {what}: {', '.join(map(repr, ids[:MAX_NAMED_IDS]))}{more}")


@contextmanager
def _written(directory: Path, documents: Sequence[Document]) -> Iterator[Path]:
    """The documents as JSONL, for as long as it takes to take them in: the corpus keeps their text, and removal must remove it."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=directory, prefix="request-", suffix=".jsonl") as file:
        for document in documents:
            row = {"id": document.id, "title": document.title, "text": document.text}
            file.write(json.dumps(row) + "\n")
        file.flush()
        yield Path(file.name)


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
