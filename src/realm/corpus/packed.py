"""A batch of documents to packed blocks, in any process, and packed blocks to a segment file, in one.

What a document becomes depends on nothing but itself; which blocks are duplicates, and their ids, is settled where the batches meet.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from realm.corpus import segments
from realm.corpus.lookup import block_key
from realm.corpus.packing import SPECIAL_TOKENS_PER_BLOCK, PackedBlock, PackingCounts, make_sentences, pack
from realm.corpus.segments import SegmentWriter, segment_schema, token_dtype
from realm.corpus.spool import Document, SpoolBatch
from realm.corpus.tagging.saved import tagger_from_state
from realm.corpus.tagging.spans import SpanTagger, tag_all
from realm.text.tokenizer import TextTokenizer


@dataclass(frozen=True)
class PackedBatch:
    """The blocks of a batch of documents.

    Attributes:
        rows: an Arrow file of a segment's columns; its block ids mean nothing yet.
        keys: ``block_key`` of every row, one after the other.
        documents: int32 [rows], which document of the batch a row is of.
        counts: what packing did.
    """

    rows: bytes
    keys: bytes
    documents: np.ndarray
    counts: PackingCounts


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
        self._block_length = block_length

    def __call__(self, batch: SpoolBatch) -> PackedBatch:
        """Read a batch and pack it."""
        counts = PackingCounts()
        keys: list[bytes] = []
        documents: list[int] = []
        sink = pa.BufferOutputStream()
        with SegmentWriter(sink, token_dtype(self._tokenizer.vocab_size), 0) as writer:
            for number, (document, title_ids, blocks) in enumerate(self._pack(batch.documents(), counts)):
                for block in blocks:
                    keys.append(block_key(document.title, document.text[block.start : block.end]))
                    documents.append(number)
                    writer.add(document, title_ids, block)
        return PackedBatch(sink.getvalue().to_pybytes(), b"".join(keys), np.array(documents, np.int32), counts)

    def _pack(self, documents: list[Document], counts: PackingCounts) -> Iterator[tuple[Document, list[int], list[PackedBlock]]]:
        """(document, title ids, blocks) of each document; one call of the tokenizer for all sentences."""
        titles = self._tokenizer.encode([document.title for document in documents])
        sentences = [document.text[start:end] for document in documents for start, end in document.sentences]
        encodings = self._tokenizer.sentence_encodings(sentences)
        position = 0
        for document, title in zip(documents, titles, strict=True):
            title_ids = title[: self._block_length // 4]
            room = self._block_length - SPECIAL_TOKENS_PER_BLOCK - len(title_ids)
            stop = position + len(document.sentences)
            tagged = tag_all(self._tagger, sentences[position:stop])
            made = make_sentences(document.text, document.sentences, encodings[position:stop], tagged, room, counts)
            yield document, title_ids, [block for block in pack(made, room) if block.token_count]
            position = stop


def packer_elsewhere(
    tokenizer: tuple[str, dict[str, str]], tagger: dict[str, Any], block_length: int
) -> Callable[[SpoolBatch], PackedBatch]:
    """A ``Packer`` in another process, of the states of tokenizer and tagger."""
    return Packer(TextTokenizer.from_state(*tokenizer), tagger_from_state(tagger), block_length)


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

    def add(self, rows: bytes, keep: np.ndarray) -> None:
        """Append the rows of a packed batch for which ``keep`` (bool [rows]) is true."""
        table = pa.ipc.open_file(rows).read_all().filter(pa.array(keep))
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
