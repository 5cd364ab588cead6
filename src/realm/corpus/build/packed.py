"""A batch of documents to packed blocks, in any process, and packed blocks to a segment file, in one.

What a document becomes depends on nothing but itself; which blocks are duplicates, and their ids, is settled where the batches meet.
"""

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from realm.corpus.build.packing import SPECIAL_TOKENS_PER_BLOCK, PackingCounts, fill_blocks, make_pieces
from realm.corpus.build.rows import BlockRows
from realm.corpus.build.spool import SpoolBatch
from realm.corpus.store import manifest as manifests, segments
from realm.corpus.store.segments import segment_schema, token_dtype
from realm.corpus.tagging.spans import SpanTagger, tag_all
from realm.corpus.tagging.specs import load_tagger
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
        self.block_length = block_length

    def __call__(self, batch: SpoolBatch) -> PackedBatch:
        """Read a batch and pack it; one call of the tokenizer for all sentences."""
        documents = batch.documents()
        titles = self._tokenizer.encode([document.title for document in documents])
        sentences = [document.text[start:end] for document in documents for start, end in document.sentences]
        tokens = self._tokenizer.tokenize(sentences)
        rows, counts, position = BlockRows(), PackingCounts(), 0
        for document, title in zip(documents, titles, strict=True):
            title_ids = title[: self.block_length // 4]
            room = self.block_length - SPECIAL_TOKENS_PER_BLOCK - len(title_ids)
            stop = position + len(document.sentences)
            tagged = tag_all(self._tagger, sentences[position:stop])
            pieces = make_pieces(document.text, document.sentences, tokens, position, tagged, room, counts)
            rows.add(document, title_ids, pieces, fill_blocks(pieces.lengths, room))
            position = stop
        columns = rows.to_arrow(tokens.ids, token_dtype(self._tokenizer.vocab_size))
        return PackedBatch(columns, b"".join(rows.keys), np.array(rows.documents, np.int32), counts)


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
