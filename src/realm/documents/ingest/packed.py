"""A batch of documents to packed blocks, in any process, and packed blocks to a segment file, in one.

What a document becomes depends on nothing but itself; the ids of its blocks are settled where the batches meet."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from realm.documents.ingest.intake import canonical_document
from realm.documents.ingest.packing import SPECIAL_TOKENS_PER_BLOCK, PackingCounts, Pieces, borders_of, fill_blocks, hash64, make_pieces
from realm.documents.ingest.spool import Document, SpoolBatch, redirects_in
from realm.documents.links import Redirects
from realm.documents.outline import BETWEEN, path_at, paths_within
from realm.documents.records import Rejected, SourceDocument
from realm.documents.spans.collocations import CollocationCounts
from realm.documents.spans.spans import SpanTagger, tag_all
from realm.documents.spans.specs import TaggerPlan, load_tagger
from realm.documents.spans.truecase import CasingCounts
from realm.documents.store import manifest as manifests, segments
from realm.documents.store.segments import HEADING, LANGUAGE, LINKS, MEDIA, MEDIA_SUM, segment_schema, token_dtype
from realm.documents.workers import in_portions
from realm.text.tokenizer import RELEASED, TextTokenizer
from realm.text.wordpieces import MAX_TITLE_LENGTH
from realm.text.words import DETECTION_CHARS, language_of


class BlockRows:
    """The blocks of a batch of documents; ``documents`` are the numbers of each block's document in the batch."""

    def __init__(self) -> None:
        self.documents: list[int] = []
        self._documents: list[Document] = []
        self._heads: list[Sequence[int]] = []
        self._headings: list[str] = []
        self._texts: list[str] = []
        self._sizes: list[int] = []
        self._pieces = Pieces()
        self._hashes: list[int] = []
        self._span_hashes: list[int] = []
        self._links: list[list[int]] = []

    def add(self, document: Document, heads: Sequence[Sequence[int]], pieces: Pieces, blocks: Sequence[tuple[int, int]]) -> None:
        """Append the blocks of the batch's next document: the wordpieces of their heads, and (first piece, piece after the last) of each,
        which are all pieces in order, or none if they have no token."""
        number, text, mine = len(self._documents), document.text, self._pieces
        ranges = [(pieces.starts[first], pieces.ends[last - 1]) for first, last in blocks]
        self._documents.append(document)
        self._heads += heads
        self._headings += [paths_within(document.places, start, end) for start, end in ranges]
        self._texts += [text[start:end] for start, end in ranges]
        self._sizes += [last - first for first, last in blocks]
        self.documents += [number] * len(blocks)
        self._links += links_of_blocks(document, ranges)
        if blocks:
            self._hashes += [hash64(text[start:end]) for start, end in zip(pieces.starts, pieces.ends, strict=True)]
            self._span_hashes += [hash64(text[span.char_start : span.char_end]) for span in pieces.spans]
            mine.spans += [span._replace(piece=span.piece + len(mine)) for span in pieces.spans]
            mine.starts += pieces.starts
            mine.ends += pieces.ends
            mine.lengths += pieces.lengths

    def to_arrow(self, ids: np.ndarray, dtype: np.dtype[np.unsignedinteger]) -> pa.RecordBatch:
        """All rows, under the block id 0, which means nothing yet; ``ids`` are the wordpieces of all pieces, one after the other."""
        piece = np.cumsum([0, *self._sizes], dtype=np.int32)  # first piece of each block
        token = np.cumsum([0, *self._pieces.lengths], dtype=np.int32)  # first token of each piece
        chars = np.array([self._pieces.starts, self._pieces.ends], np.int64).T
        starts = chars[piece[:-1], 0]  # of each block, in its document
        sentence_chars = chars - np.repeat(starts, np.diff(piece))[:, None]
        sentence_tokens = np.stack([token[:-1], token[1:]], axis=1) - np.repeat(token[piece[:-1]], np.diff(piece))[:, None]
        columns = (
            self._document_columns()
            | self._heads_columns(dtype)
            | {
                "block_id": pa.array(np.zeros(len(starts), np.int64)),
                "text": pa.array(self._texts, pa.string()),
                "char_start": pa.array(starts),
                "token_ids": _lists(token[piece], ids.astype(dtype)),
                "sentence_chars": _lists(piece, sentence_chars),
                "sentence_tokens": _lists(piece, sentence_tokens),
                "sentence_hashes": _lists(piece, np.array(self._hashes, np.uint64)),
                **self._span_columns(piece, token, starts),
                LINKS: pa.array(self._links, pa.list_(pa.uint64())),
            }
        )
        schema = segment_schema(dtype)
        return pa.RecordBatch.from_arrays([columns[entry.name].cast(entry.type) for entry in schema], schema=schema)

    def _document_columns(self) -> dict[str, pa.Array]:
        rows = pa.array(self.documents, pa.int32())
        strings = ("doc_id", "title", "source", MEDIA, MEDIA_SUM)
        columns = {name: pa.array([getattr(one, name) for one in self._documents], pa.string()) for name in strings}
        columns["line"] = pa.array([document.line for document in self._documents], pa.int64())
        columns[LANGUAGE] = pa.array([language_of(f"{one.title}\n{one.text[:DETECTION_CHARS]}") for one in self._documents], pa.string())
        return {name: column.take(rows) for name, column in columns.items()}

    def _heads_columns(self, dtype: np.dtype[np.unsignedinteger]) -> dict[str, pa.Array]:
        flat = np.fromiter(chain.from_iterable(self._heads), dtype)
        ids = _lists(np.cumsum([0, *map(len, self._heads)], dtype=np.int32), flat)
        return {HEADING: pa.array(self._headings, pa.string()), "title_ids": ids}

    def _span_columns(self, piece: np.ndarray, token: np.ndarray, starts: np.ndarray) -> dict[str, pa.Array]:
        spans = np.fromiter(chain.from_iterable(self._pieces.spans), np.int64, count=5 * len(self._pieces.spans)).reshape(-1, 5)
        offsets = np.searchsorted(spans[:, 0], piece).astype(np.int32)
        block = np.repeat(np.arange(len(starts)), np.diff(offsets))
        sentence = spans[:, 0] - piece[block]
        first_token = token[spans[:, 0]] - token[piece[block]]
        return {
            "span_chars": _lists(offsets, spans[:, 1:3] - starts[block][:, None]),
            "span_tokens": _lists(offsets, spans[:, 3:5] + first_token[:, None]),
            "span_sentence": _lists(offsets, sentence.astype(np.int32)),
            "span_hashes": _lists(offsets, np.array(self._span_hashes, np.uint64)),
        }


def bounded_head(title: Sequence[int], parts: Sequence[Sequence[int]], most: int) -> list[int]:
    """Wordpieces of a title and of the headings below it, at most so many: outer headings go first, then title and innermost are cut."""
    outer, inner = list(parts[:-1]), list(parts[-1])
    while outer and len(title) + sum(map(len, outer)) + len(inner) > most:
        outer.pop(0)
    inner = inner[: max(most // 2, most - len(title))]
    return [*title[: most - len(inner)], *chain.from_iterable(outer), *inner]


def links_of_blocks(document: Document, ranges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The keys of the targets of each block's links. A link is the block's in which its words begin, looked for behind the one before;
    those whose words do not occur are left out. ``ranges`` are the chars of each block, ascending."""
    found: list[list[int]] = [[] for _ in ranges]
    starts, behind = [start for start, _ in ranges], 0
    for words, key in document.links if ranges else ():
        at = document.text.find(words, behind)
        if at < 0:
            at = document.text.find(words, 0, behind + len(words))
        if at < 0:
            continue
        behind = max(behind, at)
        found[max(bisect_right(starts, at) - 1, 0)].append(key)
    return found


def _lists(offsets: np.ndarray, values: np.ndarray) -> pa.Array:
    """A list column: row i holds ``values[offsets[i]:offsets[i + 1]]``; values [n, 2] are pairs of int32."""
    if values.ndim == 2:
        flat = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values, np.int32).reshape(-1)), 2)
    else:
        flat = pa.array(values)
    return pa.ListArray.from_arrays(pa.array(offsets), flat)


@dataclass(frozen=True)
class PackedBatch:
    """The blocks of a batch of documents: a segment's columns, under block ids that mean nothing yet; int32 [rows], the document of the
    batch that a row is of; and counts of packing."""

    rows: pa.RecordBatch
    documents: np.ndarray
    counts: PackingCounts


PORTION_CHARS = 1_000_000
"""Characters whose wordpieces are made at once. A document of nothing but wordpieces of one character takes some hundred bytes for each."""


class _Stretch(NamedTuple):
    """Sentences of one document that stand together: its number in the batch, their chars in it, and how many chars they have."""

    document: int
    ranges: list[tuple[int, int]]
    chars: int


def _stretches(documents: Sequence[Document]) -> Iterator[_Stretch]:
    """All sentences in order, a document's together where it is no longer than a portion."""
    for number, document in enumerate(documents):
        for ranges in in_portions(document.sentences, lambda found: found[1] - found[0], PORTION_CHARS):
            yield _Stretch(number, ranges, ranges[-1][1] - ranges[0][0])


class Packer:
    """Packs batches of documents into blocks of at most ``block_length`` wordpieces, title and special tokens counted in."""

    def __init__(self, tokenizer: TextTokenizer, tagger: SpanTagger, block_length: int):
        self._tokenizer = tokenizer
        self._tagger = tagger
        self._redirects: tuple[Path, Redirects] | None = None
        self.block_length = block_length

    def __call__(self, batch: SpoolBatch) -> PackedBatch:
        """Read a batch and pack it; one call of the tokenizer for all sentences of ``PORTION_CHARS``."""
        documents = self._with_targets(batch)
        made, ids, counts = [Pieces() for _ in documents], [np.empty(0, np.uint32)], PackingCounts()
        heads = [self._heads(document) for document in documents]
        whole = self.block_length - SPECIAL_TOKENS_PER_BLOCK
        rooms = [whole - max(map(len, found.values())) for found in heads]
        for portion in in_portions(_stretches(documents), lambda stretch: stretch.chars, PORTION_CHARS):
            texts = [documents[number].text[start:end] for number, ranges, _ in portion for start, end in ranges]
            tokens, position = self._tokenizer.tokenize(texts), 0
            for number, ranges, _ in portion:
                tagged = tag_all(self._tagger, texts[position : position + len(ranges)])
                made[number].extend(make_pieces(documents[number].text, ranges, tokens, position, tagged, rooms[number], counts))
                position += len(ranges)
            ids.append(tokens.ids)
        rows = BlockRows()
        for document, found, pieces in zip(documents, heads, made, strict=True):
            at = [found[path_at(document.places, start)] for start in pieces.starts]
            borders = borders_of(document, pieces.starts, pieces.ends)
            blocks = fill_blocks(pieces.lengths, [whole - len(head) for head in at], borders)
            rows.add(document, [at[first] for first, _ in blocks], pieces, blocks)
        columns = rows.to_arrow(np.concatenate(ids), token_dtype(self._tokenizer.vocab_size))
        return PackedBatch(columns, np.array(rows.documents, np.int32), counts)

    def _heads(self, document: Document) -> dict[tuple[str, ...], list[int]]:
        """The wordpieces of title and headings, of each path in a document; where they are too many, title and innermost heading stay."""
        paths = list(dict.fromkeys([(), *(path for _, path in document.places)]))
        words = list(dict.fromkeys([document.title, *(f"{BETWEEN}{heading}" for path in paths for heading in path)]))
        ids = dict(zip(words, self._tokenizer.encode(words), strict=True))
        most = self.block_length // 4
        heads: dict[tuple[str, ...], list[int]] = {(): ids[document.title][:most]}
        for path in filter(None, paths):
            parts = [ids[f"{BETWEEN}{heading}"] for heading in path]
            heads[path] = bounded_head(ids[document.title], parts, min(most, MAX_TITLE_LENGTH))
        return heads

    def _with_targets(self, batch: SpoolBatch) -> list[Document]:
        """The documents of a batch, their links led through the redirects of the whole spool, which is complete."""
        spool = batch.path.parent
        if self._redirects is None or self._redirects[0] != spool:
            self._redirects = spool, Redirects(redirects_in(spool))
        documents = batch.documents()
        keys = self._redirects[1].resolve(np.array([key for document in documents for _, key in document.links], np.uint64)).tolist()
        targets = iter(keys)
        return [replace(one, links=tuple((words, next(targets)) for words, _ in one.links)) if one.links else one for one in documents]


def packer_elsewhere(corpus: str, block_length: int) -> Packer:
    """A ``Packer`` in another process, of the tokenizer and the tagger that are saved in a corpus directory."""
    directory = Path(corpus)
    tokenizer = TextTokenizer.load(directory / manifests.TOKENIZER_DIRECTORY)
    return Packer(tokenizer, load_tagger(directory / manifests.TAGGER_FILE), block_length)


def stages(data: bytes) -> Iterator[None]:
    """For the limited child: cut a document in UTF-8 into sentences and wordpieces, tag them and pack them, and keep nothing of it."""
    tokenizer, tagger = TextTokenizer.load(RELEASED), TaggerPlan().tagger(CasingCounts(), CollocationCounts())
    document = canonical_document(SourceDocument("-", "", data.decode("utf-8"), "", 0))
    yield
    if isinstance(document, Rejected):
        return
    for ranges in in_portions(document.sentences, lambda found: found[1] - found[0], PORTION_CHARS):
        texts = [document.text[start:end] for start, end in ranges]
        CasingCounts().add(texts)
        make_pieces(document.text, ranges, tokenizer.tokenize(texts), 0, tag_all(tagger, texts), 256, PackingCounts())
        yield


class SegmentFile:
    """Joins packed rows to a segment file with record batches of ``segments.BATCH_ROWS``, and counts rows, spans, tokens and block ids. A
    context manager; the caller publishes the file."""

    def __init__(self, path: Path, dtype: np.dtype[Any], first_block_id: int):
        self._schema = segment_schema(dtype)
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self.next_block_id = first_block_id
        self.rows = self.spans = self.tokens = 0

    def __enter__(self) -> "SegmentFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            while self._pending_rows:
                self._write()
            self._writer.close()
        self._sink.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows, and give them their block ids."""
        table = pa.Table.from_batches([rows])
        ids = np.arange(self.next_block_id, self.next_block_id + table.num_rows)
        self.next_block_id += table.num_rows
        self._pending.append(table.set_column(0, self._schema.field("block_id"), pa.array(ids)))
        self._pending_rows += table.num_rows
        self.rows += table.num_rows
        self.tokens += _elements(table.column("token_ids"))
        self.spans += _elements(table.column("span_sentence"))
        while self._pending_rows >= segments.BATCH_ROWS:
            self._write()

    def _write(self) -> None:
        """Write one record batch: the next ``segments.BATCH_ROWS`` rows, or what there is."""
        table = pa.concat_tables(self._pending)
        # Copied into one piece, so that the bytes do not show how the rows came.
        self._writer.write_batch(table.slice(0, segments.BATCH_ROWS).combine_chunks().to_batches()[0])
        rest = table.slice(segments.BATCH_ROWS)
        self._pending, self._pending_rows = [rest], rest.num_rows


def _elements(column: pa.ChunkedArray) -> int:
    return sum(len(chunk.flatten()) for chunk in column.chunks)
