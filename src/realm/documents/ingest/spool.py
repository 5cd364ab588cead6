"""The spool: canonical documents on disk between the first pass over the sources and the later ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from realm.documents.links import Links
from realm.documents.outline import Places

SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("title", pa.string()),
        ("text", pa.large_string()),
        ("source", pa.string()),
        ("line", pa.int64()),
        ("sentences", pa.list_(pa.int64())),
        ("caseless", pa.bool_()),
        ("anchors", pa.list_(pa.string())),
        ("targets", pa.list_(pa.uint64())),
        ("media", pa.string()),
        ("media_sum", pa.string()),
        ("place_starts", pa.list_(pa.int64())),
        ("place_paths", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class Document:
    """A canonical document: ``sentences`` are (start, end) chars in ``text``; ``source`` and ``line`` say where it was read;
    ``caseless`` whether one of its sentences is mostly written in a script without letter case; ``links`` are in its order;
    ``media`` and ``media_sum`` are the picture that it is, and its checksum; ``places`` are those under its headings (outline.py)."""

    doc_id: str
    title: str
    text: str
    source: str
    line: int
    sentences: list[tuple[int, int]]
    caseless: bool = False
    links: Links = ()
    media: str = ""
    media_sum: str = ""
    places: Places = ()


@dataclass(frozen=True)
class SpoolBatch:
    """The place of a batch of documents: any process can read it."""

    path: Path
    number: int
    rows: int

    def columns(self) -> pa.RecordBatch:
        """Its rows, mapped."""
        return pa.ipc.open_file(pa.memory_map(str(self.path), "r")).get_batch(self.number)

    def documents(self) -> list[Document]:
        return _from_batch(self.columns())

    def caseless_documents(self) -> list[Document]:
        """Those that are ``caseless``; the text of the others is not read."""
        batch = self.columns()
        return _from_batch(batch.filter(batch.column("caseless"))) if batch.column("caseless").true_count else []


def _from_batch(batch: pa.RecordBatch) -> list[Document]:
    columns = {name: batch.column(name).to_pylist() for name in SCHEMA.names}
    anchors, targets = columns.pop("anchors"), columns.pop("targets")
    columns["sentences"] = [list(zip(flat[::2], flat[1::2], strict=True)) for flat in columns["sentences"]]
    columns["links"] = [tuple(zip(words, keys, strict=True)) for words, keys in zip(anchors, targets, strict=True)]
    places = zip(columns.pop("place_starts"), columns.pop("place_paths"), strict=True)
    columns["places"] = [
        tuple((start, tuple(path.split("\n")) if path else ()) for start, path in zip(*found, strict=True)) for found in places
    ]
    return [Document(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def documents_batch(documents: Sequence[Document]) -> pa.RecordBatch:
    """Documents as a batch of Arrow, a row each: what the spool writes and gives to worker processes."""
    columns = {name: [getattr(document, name, ()) for document in documents] for name in SCHEMA.names}
    columns["anchors"] = [[words for words, _ in document.links] for document in documents]
    columns["targets"] = [[key for _, key in document.links] for document in documents]
    columns["place_starts"] = [[start for start, _ in document.places] for document in documents]
    columns["place_paths"] = [["\n".join(path) for _, path in document.places] for document in documents]
    columns["sentences"] = [list(chain.from_iterable(sentences)) for sentences in columns["sentences"]]
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


_DOCUMENTS, _REDIRECTS = "documents.arrow", "redirects.npy"


def redirects_in(directory: Path) -> np.ndarray:
    """The redirects that a closed spool holds, uint64 [r, 2], in order."""
    path = directory / _REDIRECTS
    return np.load(path, allow_pickle=False) if path.exists() else np.empty((0, 2), np.uint64)


class Spool:
    """Documents on disk: written once, closed, and read as often as needed, a batch at a time.

    Attributes:
        text_bytes: of the texts of its ``documents`` in UTF-8."""

    def __init__(self, path: Path):
        self._path = path
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._batches: list[SpoolBatch] = []
        self._redirects: list[np.ndarray] = []
        self.documents = self.text_bytes = 0
        path.mkdir(parents=True, exist_ok=True)

    def add(self, batch: pa.RecordBatch, keep: Sequence[bool]) -> None:
        """Append those documents of a batch that ``keep`` names."""
        if not all(keep):
            batch = batch.filter(pa.array(keep, pa.bool_()))
        if not batch.num_rows:
            return
        path = self._path / _DOCUMENTS
        if self._writer is None:
            self._sink = pa.OSFile(str(path), "wb")
            self._writer = pa.ipc.new_file(self._sink, SCHEMA)
        self._writer.write_batch(batch)
        self._batches.append(SpoolBatch(path, len(self._batches), batch.num_rows))
        self.documents += batch.num_rows
        self.text_bytes += batch.column("text").nbytes

    def add_redirects(self, pairs: np.ndarray) -> None:
        """Append redirects: uint64 [r, 2], the key of each name and of what it stands for."""
        if len(pairs):
            self._redirects.append(pairs)

    def close(self) -> None:
        """End writing: from here on it is read."""
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
            self._writer = None
        if self._redirects:
            np.save(self._path / _REDIRECTS, np.concatenate(self._redirects))

    def tasks(self) -> list[SpoolBatch]:
        """All batches in order, about a million characters each."""
        return list(self._batches)

    def doc_ids(self) -> Iterator[str]:
        """Ids of the documents in order; no text is read."""
        for batch in self._batches:
            yield from batch.columns().column("doc_id").to_pylist()

    def redirects(self) -> np.ndarray:
        return redirects_in(self._path)
