"""First pass over the sources: canonical documents with their sentences go to a spool, rejected records to a list.

Later passes (vocabulary, blocks) read the spool, so sources are read once and cannot change in between. The work is done in chunks of
about a million characters, by several processes where there is enough of it; the result does not depend on their number."""

import json
import shutil
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import SpooledTemporaryFile

import numpy as np
import pyarrow as pa

from realm.documents import records
from realm.documents.ingest.spool import Document, Spool, documents_batch
from realm.documents.limited import read_parts
from realm.documents.outline import places_of
from realm.documents.records import Ids, Record, Redirect, Rejected, SourceDocument
from realm.documents.sources import LOOK, SourceOptions, iter_documents
from realm.documents.sources.reading import RowIds, names_of, source_name
from realm.documents.spans.collocations import mostly_caseless
from realm.documents.spans.truecase import CasingCounts
from realm.documents.workers import Workers, in_portions
from realm.errors import CorpusError, DataError
from realm.text.folding import folded
from realm.text.lines import canonical_line, canonical_text, lines_of, passages_of
from realm.text.sentences import split_sentences

# Bytes of listed records that stay in memory; more go to a temporary file.
IN_MEMORY = 1_000_000


class RejectedList:
    """Rejected records: counted, listed in a JSONL file, fatal if ``strict``; what was read before of ``unreadable`` files has not gone."""

    def __init__(self, strict: bool):
        self._strict = strict
        self._listing = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        weakref.finalize(self, self._listing.close)
        self.counts: Counter[str] = Counter()
        self.unreadable: set[str] = set()

    def add(self, record: Rejected) -> None:
        """Count and list one record. Raises DataError: ``strict`` was asked for, and the document is not used."""
        if self._strict and record.reason not in records.PARTLY_USED | records.LEFT_OUT:
            cure = "Repair the record, or build without --strict to leave it out"
            raise DataError(record.reason, path=record.path, line=record.line or None, cure=cure)
        if record.reason == records.UNREADABLE:
            self.unreadable.add(source_name(record.path))
        line = json.dumps({"path": record.path, "line": record.line, "reason": record.reason}, ensure_ascii=False)
        self._listing.seek(0, 2)
        self._listing.write(line.encode("utf-8", "surrogateescape") + b"\n")
        self.counts[record.reason] += 1

    def text(self) -> bytes:
        """The JSONL lines. File names that are not UTF-8 keep their bytes."""
        self._listing.seek(0)
        return self._listing.read()

    def save(self, path: Path) -> None:
        self._listing.seek(0)
        with open(path, "wb") as file:
            shutil.copyfileobj(self._listing, file)

    def by_reason(self) -> dict[str, int]:
        return dict(sorted(self.counts.items()))


Progress = Callable[[str, int, int | None], None]
"""Called with (what is counted, count, count at the end or None) now and then."""


# Characters of text in one chunk of documents, and records if they are short: bounds the memory of every pass.
CHUNK_CHARS = 1_000_000
CHUNK_RECORDS = 4_000
# Characters of a sentence. What is longer is no prose (a table, a key, a line of digits), and taggers take time quadratic in it.
SENTENCE_CHARS = 10_000
TITLE_CHARS = 1_000
"""Of a title: every block of its document carries it."""
LONG = 1_000_000
"""Characters of a document that is tried first. What is shorter takes seconds and some hundred megabytes, whatever it is."""
# Of one document: more are shorter than words.
MOST_SENTENCES = 1_000_000


@dataclass(frozen=True)
class _TakenIn:
    """The result of one chunk of records: documents of ``spool.SCHEMA`` with their positions in it, which are cheap to hand from process
    to process; (position, record) of what is rejected, and of documents taken in without all of their links; uint64 [r, 2], keys of names
    and of their targets; counts of the words' surface forms."""

    documents: pa.RecordBatch
    positions: list[int]
    rejected: list[tuple[int, Rejected]]
    redirects: np.ndarray
    forms: dict[str, int]


def take_in(
    sources: Sequence[Path],
    spool: Spool,
    rejected: RejectedList,
    known_ids: Ids,
    progress: Progress | None,
    source_options: SourceOptions = LOOK,
    *,
    casing: CasingCounts | None = None,
    workers: Workers | None = None,
    corpus: Ids | None = None,
) -> None:
    """Read every source into ``spool``, which is closed at the end.

    Of two documents with one id the first stays; ``known_ids`` grows by the new ones, ``rejected`` gets the rest, and ``casing`` counts the
    words of all; ``corpus`` is what is brought up to date (``RowIds``). Raises DataError: a source is missing or of no known type, or
    ``strict`` met a bad record, all sources looked at before the first record is read; Interrupted: a worker process died."""
    workers = workers or Workers(1)
    rows = None if corpus is None and len(sources) < 2 else RowIds(corpus)
    named = zip(sources, names_of(sources), strict=True)
    readers = [iter_documents(source, source_options, workers, name, rows) for source, name in named]
    found = chain.from_iterable(readers)
    chunks = in_portions(found, lambda record: len(getattr(record, "text", "")), CHUNK_CHARS, CHUNK_RECORDS)
    count_forms, seconds = casing is not None, source_options.document_seconds
    results = workers.in_order(chunks, partial(_take_in_chunk, count_forms, seconds), partial, (_take_in_chunk, count_forms, seconds))
    for chunk, taken in results:
        spool.add(*_without_known(chunk, taken, known_ids, rejected))
        spool.add_redirects(taken.redirects)
        if casing is not None:
            casing.merge(taken.forms)
        if progress is not None:
            progress("documents", spool.documents, None)
    spool.close()


def _take_in_chunk(count_forms: bool, seconds: float, chunk: list[Record]) -> _TakenIn:
    """Canonical documents with sentences; everything about a chunk that does not depend on the others."""
    documents: list[Document] = []
    positions: list[int] = []
    rejected: list[tuple[int, Rejected]] = []
    redirects: list[tuple[int, int]] = []
    casing = CasingCounts()
    for position, record in enumerate(chunk):
        if isinstance(record, Redirect):
            redirects.append((record.name, record.target))
            continue
        made = _within_limits(record, seconds) if isinstance(record, SourceDocument) else record
        if isinstance(made, Rejected):
            rejected.append((position, made))
            continue
        if isinstance(record, SourceDocument) and record.links_cut:
            rejected.append((position, Rejected(record.path, record.line, records.TOO_MANY_LINKS)))
        documents.append(made)
        positions.append(position)
        if count_forms:
            casing.add(folded(made.text[start:end]) for start, end in made.sentences)
    pairs = np.array(redirects, np.uint64).reshape(-1, 2)
    return _TakenIn(documents_batch(documents), positions, rejected, pairs, casing.forms())


def _within_limits(record: SourceDocument, seconds: float) -> Document | Rejected:
    """The document; a long one only if every stage of a build can do it, which is tried in the limited child."""
    if len(record.text) >= LONG:
        _, _, beyond = read_parts("stages", record.text.encode("utf-8", "replace"), seconds, 2 * seconds)
        if beyond is not None:
            return Rejected(record.path, record.line, beyond.reason)
    return canonical_document(record)


def canonical_document(record: SourceDocument) -> Document | Rejected:
    """Normalise id, title and text, and find sentences and headings; rejected are an empty id, no sentence, or too many."""
    doc_id = canonical_line(record.doc_id)
    if not doc_id:
        return Rejected(record.path, record.line, records.EMPTY_ID)
    text = canonical_text(record.text)
    passages = lines_of(text) if record.structured else passages_of(text)
    sentences = [part for start, end in split_sentences(text, passages) for part in _within_reason(text, start, end)]
    if not sentences:
        return Rejected(record.path, record.line, records.EMPTY_TEXT)
    if len(sentences) > MOST_SENTENCES:
        return Rejected(record.path, record.line, records.TOO_MANY_SENTENCES)
    caseless = not text.isascii() and any(mostly_caseless(text[start:end]) for start, end in sentences)
    where, media, title = source_name(record.path), source_name(record.media), canonical_line(record.title[:TITLE_CHARS])
    places = places_of(text, title, record.headings, record.folder)
    return Document(doc_id, title, text, where, record.line, sentences, caseless, record.links, media, record.media_sum, places)


def _within_reason(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A sentence, or its parts where it is longer than any: of ``SENTENCE_CHARS`` at most, cut between words if it has words."""
    while end - start > SENTENCE_CHARS:
        stop = start + SENTENCE_CHARS
        space = text.rfind(" ", start + SENTENCE_CHARS // 2, stop)
        yield start, stop if space < 0 else space
        start = stop if space < 0 else space + 1
        while start < end and text[start].isspace():
            start += 1
    if start < end:
        yield start, end


def _without_known(chunk: list[Record], taken: _TakenIn, known_ids: Ids, rejected: RejectedList) -> tuple[pa.RecordBatch, list[bool]]:
    """The chunk's documents and which of them have a new id; what is wrong with the others is told to ``rejected``, in order."""
    refused = taken.rejected
    keep = []
    for position, doc_id in zip(taken.positions, taken.documents.column("doc_id").to_pylist(), strict=True):
        keep.append(doc_id not in known_ids)
        if keep[-1]:
            known_ids.add(doc_id)
        else:
            refused.append((position, Rejected(chunk[position].path, chunk[position].line, records.DUPLICATE_ID)))
    for _, record in sorted(refused, key=lambda entry: entry[0]):
        rejected.add(record)
    return taken.documents, keep


def nothing_usable(sources: Sequence[Path], rejected: RejectedList) -> CorpusError:
    counts = [f"{count} {reason}" for reason, count in rejected.by_reason().items()]
    where = ", ".join(str(source) for source in sources) or "no source"
    return CorpusError(f"no usable document in {where} ({'; '.join(counts) or 'nothing found'})", cure="Check the sources")
