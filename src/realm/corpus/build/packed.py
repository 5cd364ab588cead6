"""A batch of documents to packed blocks, in any process, and packed blocks to a segment file, in one.

What a document becomes depends on nothing but itself; which blocks are duplicates, and their ids, is settled where the batches meet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from realm.corpus.build.packing import SPECIAL_TOKENS_PER_BLOCK, PackingCounts, Pieces, fill_blocks, make_pieces
from realm.corpus.build.rows import BlockRows
from realm.corpus.build.spool import Document, SpoolBatch, redirects_in
from realm.corpus.links import Redirects
from realm.corpus.store import manifest as manifests, segments
from realm.corpus.store.segments import segment_schema, token_dtype
from realm.corpus.tagging.spans import SpanTagger, tag_all
from realm.corpus.tagging.specs import load_tagger
from realm.corpus.workers import in_portions
from realm.text.tokenizer import TextTokenizer


@dataclass(frozen=True)
class PackedBatch:
    """The blocks of a batch of documents.

    Attributes:
        rows: a segment's columns; the block ids mean nothing yet.
        keys: ``block_key`` of every row, one after the other.
        documents: int32 [rows], which document of the batch a row is of.
        counts: what packing did.
    """

    rows: pa.RecordBatch
    keys: bytes
    documents: np.ndarray
    counts: PackingCounts

    def kept(self, keep: np.ndarray) -> pa.RecordBatch:
        """The rows for which ``keep`` (bool [rows]) is true."""
        return self.rows if keep.all() else self.rows.filter(pa.array(keep))


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
    """Packs batches of documents.

    Args:
        tokenizer: counts wordpieces.
        tagger: finds salient spans.
        block_length: most wordpieces of a block, title and special tokens counted in.
    """

    def __init__(self, tokenizer: TextTokenizer, tagger: SpanTagger, block_length: int):
        self._tokenizer = tokenizer
        self._tagger = tagger
        self._redirects: tuple[Path, Redirects] | None = None
        self.block_length = block_length

    def __call__(self, batch: SpoolBatch) -> PackedBatch:
        """Read a batch and pack it; one call of the tokenizer for all sentences of ``PORTION_CHARS``."""
        documents = self._with_targets(batch)
        made, ids, counts = [Pieces() for _ in documents], [np.empty(0, np.uint32)], PackingCounts()
        titles = [title[: self.block_length // 4] for title in self._tokenizer.encode([document.title for document in documents])]
        rooms = [self.block_length - SPECIAL_TOKENS_PER_BLOCK - len(title) for title in titles]
        for portion in in_portions(_stretches(documents), lambda stretch: stretch.chars, PORTION_CHARS):
            texts = [documents[number].text[start:end] for number, ranges, _ in portion for start, end in ranges]
            tokens, position = self._tokenizer.tokenize(texts), 0
            for number, ranges, _ in portion:
                tagged = tag_all(self._tagger, texts[position : position + len(ranges)])
                made[number].extend(make_pieces(documents[number].text, ranges, tokens, position, tagged, rooms[number], counts))
                position += len(ranges)
            ids.append(tokens.ids)
        rows = BlockRows()
        for document, title, pieces, room in zip(documents, titles, made, rooms, strict=True):
            rows.add(document, title, pieces, fill_blocks(pieces.lengths, room))
        columns = rows.to_arrow(np.concatenate(ids), token_dtype(self._tokenizer.vocab_size))
        return PackedBatch(columns, b"".join(rows.keys), np.array(rows.documents, np.int32), counts)

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


class SegmentFile:
    """Joins packed rows to a segment file with record batches of ``segments.BATCH_ROWS``. A context manager; the caller publishes the file.

    Attributes:
        rows, spans, tokens: written so far.
        next_block_id: the id that the next row gets.
    """

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
    """Number of list elements in a list column."""
    return sum(len(chunk.flatten()) for chunk in column.chunks)
