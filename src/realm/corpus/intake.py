"""First pass over the sources: canonical documents with their sentences go to a temporary Arrow file, rejected records to a list.

Later passes (casing, vocabulary, blocks) read that file, so sources are read once and cannot change in between.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from realm.corpus.canonical import canonical_line, canonical_text
from realm.corpus.records import DUPLICATE_ID, EMPTY_ID, EMPTY_TEXT, Rejected, SourceDocument
from realm.corpus.sources import SourceOptions, iter_documents
from realm.errors import CorpusError, DataError
from realm.text.sentences import split_sentences

Progress = Callable[[str, int], None]

# Characters of text in one batch of documents: bounds the memory of every pass.
BATCH_CHARS = 1_000_000
PROGRESS_EVERY = 1_000

_SCHEMA = pa.schema([("doc_id", pa.string()), ("title", pa.string()), ("text", pa.large_string()), ("sentences", pa.list_(pa.int64()))])


@dataclass(frozen=True)
class Document:
    """A canonical document: ``sentences`` are (start, end) chars in ``text``."""

    doc_id: str
    title: str
    text: str
    sentences: list[tuple[int, int]]


class Spool:
    """A temporary Arrow stream of documents: written once, read as often as needed, a batch at a time."""

    def __init__(self, path: Path):
        self._path = path
        self._pending: list[Document] = []
        self._chars = 0
        self._writer = pa.ipc.new_stream(pa.OSFile(str(path), "wb"), _SCHEMA)
        self.documents = 0

    def add(self, document: Document) -> None:
        """Append one document."""
        self._pending.append(document)
        self._chars += len(document.text)
        self.documents += 1
        if self._chars >= BATCH_CHARS:
            self._flush()

    def close(self) -> None:
        """End writing."""
        self._flush()
        self._writer.close()

    def batches(self) -> Iterator[list[Document]]:
        """The documents in order, about ``BATCH_CHARS`` characters at a time."""
        with pa.ipc.open_stream(pa.memory_map(str(self._path), "r")) as reader:
            for batch in reader:
                columns = (batch.column(name).to_pylist() for name in _SCHEMA.names)
                yield [
                    Document(doc_id, title, text, list(zip(flat[::2], flat[1::2], strict=True)))
                    for doc_id, title, text, flat in zip(*columns, strict=True)
                ]

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink()

    def _flush(self) -> None:
        if not self._pending:
            return
        rows = self._pending
        columns = [
            [row.doc_id for row in rows],
            [row.title for row in rows],
            [row.text for row in rows],
            [[edge for edges in row.sentences for edge in edges] for row in rows],
        ]
        arrays = [pa.array(values, type=entry.type) for values, entry in zip(columns, _SCHEMA, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
        self._pending, self._chars = [], 0


class RejectedList:
    """Rejected records: counted by reason, listed in a JSONL file, or fatal if ``strict``."""

    def __init__(self, strict: bool):
        self._strict = strict
        self._lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def add(self, record: Rejected) -> None:
        """Count and list one record.

        Raises:
            DataError: ``strict`` was asked for.
        """
        if self._strict:
            cure = "Repair the record, or build without --strict to leave it out"
            raise DataError(record.reason, path=record.path, line=record.line or None, cure=cure)
        self.counts[record.reason] += 1
        self._lines.append(json.dumps({"path": record.path, "line": record.line, "reason": record.reason}, ensure_ascii=False) + "\n")

    def text(self) -> bytes:
        """The JSONL lines. File names that are not UTF-8 keep their bytes."""
        return "".join(self._lines).encode("utf-8", "surrogateescape")

    def by_reason(self) -> dict[str, int]:
        """Counts in order of the reasons' names."""
        return dict(sorted(self.counts.items()))


def take_in(
    sources: Sequence[Path],
    spool: Spool,
    rejected: RejectedList,
    known_ids: set[str],
    progress: Progress | None,
    source_options: SourceOptions,
) -> None:
    """Read every source into ``spool``.

    Args:
        sources: read in order; of two documents with one id the first stays.
        spool: gets the documents; closed at the end.
        rejected: gets the rest.
        known_ids: ids that are taken; grows by the new ones.
        progress: called with ("documents", count) now and then.
        source_options: what the user said about the sources.

    Raises:
        DataError: a source is missing or of no known type, or ``strict`` met a bad record.
    """
    for source in sources:
        for record in iter_documents(source, source_options):
            refusal = _canonical_document(record, known_ids, spool) if isinstance(record, SourceDocument) else record
            if refusal is not None:
                rejected.add(refusal)
            elif progress is not None and spool.documents % PROGRESS_EVERY == 0:
                progress("documents", spool.documents)
    spool.close()
    if progress is not None:
        progress("documents", spool.documents)


def _canonical_document(record: SourceDocument, known_ids: set[str], spool: Spool) -> Rejected | None:
    """Put one document into the spool, or say why not."""
    doc_id = canonical_line(record.doc_id)
    if not doc_id:
        return Rejected(record.path, record.line, EMPTY_ID)
    if doc_id in known_ids:
        return Rejected(record.path, record.line, DUPLICATE_ID)
    text = canonical_text(record.text)
    sentences = split_sentences(text)
    if not sentences:
        return Rejected(record.path, record.line, EMPTY_TEXT)
    known_ids.add(doc_id)
    spool.add(Document(doc_id, canonical_line(record.title), text, sentences))
    return None


def nothing_usable(sources: Sequence[Path], rejected: RejectedList, duplicates: int = 0) -> CorpusError:
    """The error of a build or an addition that found nothing to put into blocks."""
    counts = [f"{count} {reason}" for reason, count in rejected.by_reason().items()]
    counts += [f"{duplicates} identical to blocks that are there"] if duplicates else []
    where = ", ".join(str(source) for source in sources) or "no source"
    return CorpusError(f"no usable document in {where} ({'; '.join(counts) or 'nothing found'})", cure="Check the sources")
