"""One Arrow IPC file of blocks: its columns, sizes and checksums. (packed.py makes and writes the rows, views.py reads them.)

Any tool that reads Arrow reads these files. Row numbers are positions in a segment and mean nothing outside corpus/ and index/.
Checksums are of the parts that are read at a time, so that no byte is used unchecked and opening does not read the file: a column of a
record batch is one part; what lies between the columns of two batches is another: there Arrow says what it wrote where."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from realm.documents.store.manifest import SegmentSums
from realm.storage.arrays import load_array, worth_mapping
from realm.storage.files import array_sum, bytes_sum
from realm.storage.generations import FULL_FILE_ROWS
from realm.text.words import DETECTION_CHARS, language_of

# Rows of one record batch: about 50 MB while it is written, and 815 batches for the 13.35 million blocks of English Wikipedia.
BATCH_ROWS = 16_384
# Blocks of one segment: about 250 MB, and the most that an interrupted build loses.
SEGMENT_ROWS = FULL_FILE_ROWS

LANGUAGE = "lang"
"""The column of languages."""
LINKS = "links"
"""The column of links."""
HEADING = "heading"
"""The column of headings: the path that a block begins under, and those within it (``outline.paths_within``)."""
MEDIA, MEDIA_SUM = "media", "media_sum"
"""The columns of pictures: which one a block is of, and the checksum of its bytes; empty of a text."""

_PAIR = pa.list_(pa.int32(), 2)


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """uint16 as long as every id fits, else uint32."""
    return np.dtype(np.uint16 if vocab_size <= 65_535 else np.uint32)


def segment_schema(dtype: np.dtype[Any]) -> pa.Schema:
    """Columns of a segment, as in docs/data-formats.md. Chars count code points of ``text``, tokens wordpieces of ``token_ids``."""
    tokens = pa.list_(pa.from_numpy_dtype(dtype))
    return pa.schema(
        [
            ("block_id", pa.int64()),
            ("doc_id", pa.string()),
            ("title", pa.string()),
            ("text", pa.string()),
            ("source", pa.string()),
            ("line", pa.int64()),
            ("char_start", pa.int64()),
            ("title_ids", tokens),
            ("token_ids", tokens),
            ("sentence_chars", pa.list_(_PAIR)),
            ("sentence_tokens", pa.list_(_PAIR)),
            ("sentence_hashes", pa.list_(pa.uint64())),
            ("span_chars", pa.list_(_PAIR)),
            ("span_tokens", pa.list_(_PAIR)),
            ("span_sentence", pa.list_(pa.int32())),
            ("span_hashes", pa.list_(pa.uint64())),
            (HEADING, pa.string()),
            (LANGUAGE, pa.string()),
            (LINKS, pa.list_(pa.uint64())),
            (MEDIA, pa.string()),
            (MEDIA_SUM, pa.string()),
        ]
    )


def language_of_document(title: str, text: str) -> str:
    return language_of(f"{title}\n{text[:DETECTION_CHARS]}")


DIGITS = 16


def read_whole(path: Path) -> pa.Buffer:
    """The bytes of a file, mapped if there are many. Raises OSError."""
    if worth_mapping(path.stat().st_size):
        with pa.memory_map(str(path), "r") as file:
            return file.read_buffer()
    return pa.py_buffer(path.read_bytes())


def segment_sums(whole: pa.Buffer, batches: Sequence[pa.RecordBatch], documents: Path) -> SegmentSums:
    """The checksums of a finished segment: of its bytes, of the batches read from these, not copied, and of its look-up file."""
    frames, columns, position = [], [], 0
    for batch in batches:
        first, last = _extent(batch, whole.address, position)
        frames.append((position, first, frame_sum(whole, position, first)))
        columns.append("".join(column_sum(column) for column in batch.columns))
        position = last
    frames.append((position, whole.size, frame_sum(whole, position, whole.size)))
    return SegmentSums(tuple(frames), tuple(columns), array_sum(load_array(documents)))


def _extent(batch: pa.RecordBatch, base: int, position: int) -> tuple[int, int]:
    """Begin and end of the columns of a batch in the file; an empty batch has them at ``position``."""
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size]
    if not buffers:
        return position, position
    return min(buffer.address for buffer in buffers) - base, max(buffer.address + buffer.size for buffer in buffers) - base


def frame_sum(whole: pa.Buffer, start: int, end: int) -> str:
    return bytes_sum(whole.slice(start, max(end - start, 0)))


def column_sum(column: pa.Array) -> str:
    """The checksum of a column of one record batch: of its buffers, in order."""
    return bytes_sum(*(buffer for buffer in column.buffers() if buffer is not None))
