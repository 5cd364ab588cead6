"""The spool: canonical documents on disk between the first pass over the sources and the later ones.

A directory of numbered parts. A part is finished when its JSON file is there; what an interrupted process wrote after its last finished
part is overwritten by the next one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from realm.documents.links import Links
from realm.documents.outline import Places
from realm.errors import CorpusError
from realm.storage import files
from realm.storage.decoding import json_value

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
    columns = {name: [getattr(document, name, ()) for document in documents] for name in SCHEMA.names}
    columns["anchors"] = [[words for words, _ in document.links] for document in documents]
    columns["targets"] = [[key for _, key in document.links] for document in documents]
    columns["place_starts"] = [[start for start, _ in document.places] for document in documents]
    columns["place_paths"] = [["\n".join(path) for _, path in document.places] for document in documents]
    columns["sentences"] = [list(chain.from_iterable(sentences)) for sentences in columns["sentences"]]
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


_REDIRECTS = ".redirects.npy"


def redirects_in(directory: Path) -> np.ndarray:
    """The redirects that a spool's finished parts hold, uint64 [r, 2], in order."""
    parts = [np.load(path, allow_pickle=False) for path in sorted(directory.glob(f"*{_REDIRECTS}"))]
    return np.concatenate([np.empty((0, 2), np.uint64), *parts])


class Spool:
    """Documents on disk: written once, read as often as needed, a batch at a time. ``resumable``: what an interrupted process left in
    ``path`` is continued.

    Attributes:
        text_bytes: of the texts of its ``documents`` in UTF-8.
        place: where in the sources they end, for the reader of these (``intake.SourcePosition``)."""

    def __init__(self, path: Path, resumable: bool = False):
        self._path = path
        self._resumable = resumable
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._parts = 0
        self._batches: list[SpoolBatch] = []
        self._in_part = 0
        self._redirects: list[np.ndarray] = []
        self.documents = self.text_bytes = 0
        self.place = (0, 0)
        self.complete = False
        path.mkdir(parents=True, exist_ok=True)
        if resumable:
            self._take_up()

    def add(self, batch: pa.RecordBatch, keep: Sequence[bool]) -> None:
        """Append those documents of a batch that ``keep`` names."""
        if not all(keep):
            batch = batch.filter(pa.array(keep, pa.bool_()))
        if not batch.num_rows:
            return
        path = self._part_path()
        if self._writer is None:
            self._sink = pa.OSFile(str(path), "wb")
            self._writer = pa.ipc.new_file(self._sink, SCHEMA)
        self._writer.write_batch(batch)
        self._batches.append(SpoolBatch(path, self._in_part, batch.num_rows))
        self._in_part += 1
        self.documents += batch.num_rows
        self.text_bytes += batch.column("text").nbytes

    def add_redirects(self, pairs: np.ndarray) -> None:
        """Append redirects: uint64 [r, 2], the key of each name and of what it stands for."""
        if len(pairs):
            self._redirects.append(pairs)

    def end_part(self, rejected: Sequence[str], forms: Mapping[str, int], complete: bool = False) -> None:
        """Make everything so far durable, so that another process can continue from here: with lines of rejected records and counts of
        surface forms since the last part."""
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
            self._writer = None
        self.complete = complete
        if self._redirects:
            np.save(self._redirects_path(self._parts + 1), np.concatenate(self._redirects))
            self._redirects.clear()
        if self._resumable:
            self._save_facts({"rejected": list(rejected), "forms": dict(forms)})
        self._parts += 1
        self._in_part = 0

    def finished_parts(self) -> Iterator[tuple[list[str], dict[str, int]]]:
        """The arguments of ``end_part``, part by part."""
        for part in range(1, self._parts + 1):
            facts = json_value(self._facts_path(part).read_text("utf-8"))
            yield facts["rejected"], facts["forms"]

    def tasks(self) -> list[SpoolBatch]:
        """All batches in order, about a million characters each."""
        return list(self._batches)

    def documents_from(self) -> Iterator[tuple[str, str]]:
        """Id and source of each document in order; no text is read."""
        for columns in (batch.columns() for batch in self._batches):
            yield from zip(columns.column("doc_id").to_pylist(), columns.column("source").to_pylist(), strict=True)

    def redirects(self) -> np.ndarray:
        return redirects_in(self._path)

    def _save_facts(self, more: dict[str, Any]) -> None:
        if self._part_path().exists():
            files.fsync_file(self._part_path())
        if (redirects := self._redirects_path(self._parts + 1)).exists():
            files.fsync_file(redirects)
        facts = {"documents": self.documents, "text_bytes": self.text_bytes, "place": self.place, "complete": self.complete}
        files.write_json(self._facts_path(self._parts + 1), facts | more)

    def _take_up(self) -> None:
        while self._facts_path(self._parts + 1).exists():
            try:
                self._take_up_part()
            except (ValueError, KeyError, TypeError) as error:  # pa.ArrowInvalid is a ValueError
                cure = "Remove this directory and run the same command again"
                raise CorpusError("the remains of an interrupted build are damaged", path=self._path, cure=cure) from error
        for left in (self._part_path(), self._redirects_path(self._parts + 1)):
            left.unlink(missing_ok=True)

    def _take_up_part(self) -> None:
        """A finished part. Its rows are looked at as a whole: Arrow trusts offsets, and ends the process where they are wrong."""
        facts = json_value(self._facts_path(self._parts + 1).read_text("utf-8"))
        self.documents, self.text_bytes, self.place = facts["documents"], facts["text_bytes"], (facts["place"][0], facts["place"][1])
        self.complete = facts["complete"]
        path = self._part_path()
        if path.exists():
            with pa.memory_map(str(path), "r") as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number)
                    batch.validate(full=True)
                    self._batches.append(SpoolBatch(path, number, batch.num_rows))
        self._parts += 1

    def _part_path(self) -> Path:
        return self._path / f"{self._parts + 1:06d}.arrow"

    def _redirects_path(self, part: int) -> Path:
        return self._path / f"{part:06d}{_REDIRECTS}"

    def _facts_path(self, part: int) -> Path:
        return self._path / f"{part:06d}.json"
