"""One Arrow IPC file of blocks: its columns, sizes and checksums. (packed.py makes and writes the rows, views.py reads them.)

Beside it lies its look-up file, ``NNNNNN.documents.npy``: uint64 [2, d], the 64-bit hash of each document id in ascending order and the
document's first row. Made from the finished segment, mapped if large, found by binary search.

Any tool that reads Arrow reads these files. Row numbers are positions in a segment and mean nothing outside corpus/ and index/.
Checksums are of the parts that are read at a time, so that no byte is used unchecked and opening does not read the file: a column of a
record batch is one part; what lies between the columns of two batches is another: there Arrow says what it wrote where."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from realm.documents.links import document_key
from realm.documents.store.manifest import SegmentInfo, SegmentSums, damage
from realm.storage import files
from realm.storage.arrays import load_array, read_array, worth_mapping, write_array
from realm.storage.files import array_sum, bytes_sum
from realm.storage.generations import FULL_FILE_ROWS

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


def flat_view(column: pa.Array) -> np.ndarray:
    """A column of numbers without nulls, not copied. (``to_numpy`` would import pandas first, where that is installed.)"""
    data = column.buffers()[1]
    dtype = np.dtype(column.type.to_pandas_dtype())
    if data is None or not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype, count=len(column), offset=column.offset * dtype.itemsize)


def lookup_of(segment: Path) -> Path:
    return segment.with_suffix(".documents.npy")


def finish_segment(path: Path, tokens: int) -> SegmentInfo:
    """Write the look-up file of a finished segment, of so many wordpieces without titles. Returns what the manifest says of it; the caller
    makes both files durable and publishes them."""
    whole = read_whole(path)
    reader = pa.ipc.open_file(pa.BufferReader(whole))
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    write_lookup(path, batches)
    ids = [flat_view(batch.column("block_id")) for batch in batches if len(batch)]
    first, last = (int(ids[0][0]), int(ids[-1][-1])) if ids else (-1, -1)
    rows = tuple(len(batch) for batch in batches)
    sums = segment_sums(whole, batches, lookup_of(path))
    return SegmentInfo(path.name, sum(rows), path.stat().st_size, files.sha256_file(path), tokens, first, last, rows, sums)


def write_lookup(path: Path, batches: Sequence[pa.RecordBatch]) -> None:
    """Write the look-up file that comes beside a segment, from all its record batches."""
    columns = np.array(list(_document_starts(batches)), np.uint64).reshape(-1, 2).T
    with open(lookup_of(path), "wb") as file:
        write_array(file, columns[:, np.argsort(columns[0], kind="stable")])


def _document_starts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int]]:
    """(hash of the id, first row) of each document; a document's rows stand together, and may continue in the next batch."""
    previous, start = None, 0
    for batch in batches:
        ids = batch.column("doc_id")
        for row in _first_rows(ids):
            doc_id = ids[row].as_py()
            if doc_id != previous:
                yield document_key(doc_id.encode("utf-8")), start + row
            previous = doc_id
        start += len(batch)


def _first_rows(ids: pa.Array) -> list[int]:
    """Rows of a batch whose document is not that of the row before; a document's rows stand together."""
    if not len(ids):
        return []
    from pyarrow import compute as pc

    return [0, *(flat_view(pc.indices_nonzero(pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)))) + 1).tolist()]


class SegmentLookup:
    """The look-up file of one segment, mapped at once, so that it stays readable when another process deletes it; compared with its
    checksum when it is used first. Raises CorpusError: it is missing or damaged."""

    def __init__(self, segment: Path, info: SegmentInfo):
        self._path, self._sum = lookup_of(segment), info.sums.documents
        self._mapped = _open(self._path)

    @cached_property
    def _documents(self) -> np.ndarray:
        return _checked(self._mapped, self._sum, self._path)

    def first_rows_of_key(self, key: int) -> list[int]:
        """Rows at which a document with the key (``links.document_key``) starts; the caller compares the ids."""
        hashes, firsts = self._documents
        wanted = np.uint64(key)
        position, found = int(np.searchsorted(hashes, wanted)), []
        while position < len(hashes) and hashes[position] == wanted:
            found.append(int(firsts[position]))
            position += 1
        return found  # ascending: equal hashes are in order of their rows

    @cached_property
    def starts(self) -> np.ndarray:
        """int64 [d], ascending: the rows at which documents start."""
        return np.sort(self._documents[1]).astype(np.int64)


def _checked(columns: np.ndarray, expected: str, path: Path) -> np.ndarray:
    if array_sum(columns) != expected:
        raise damage("look-up file").damaged("changed since it was published (checksum differs)", path=path)
    return columns


def _open(path: Path) -> np.ndarray:
    columns = read_array(path, (2, None), np.dtype(np.uint64), damage("look-up file"), mode="r")
    return columns.view(np.ndarray)  # the same mapping; slices of numpy's memmap class are slow


def check_lookup(path: Path, expected: str) -> None:
    """Read a look-up file. Raises CorpusError: it is missing or damaged."""
    _checked(_open(path), expected, path)
