"""The look-up file beside a segment, ``NNNNNN.documents.npy``: uint64 [2, d], the 64-bit hash of each document id in ascending order and
the document's first row. Made from the finished segment, mapped if large, found by binary search."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from realm.documents.links import document_key
from realm.documents.store.manifest import SegmentInfo, damage
from realm.documents.store.segments import read_whole, segment_sums
from realm.storage import files
from realm.storage.arrays import read_array, write_array
from realm.storage.files import array_sum


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

    changes = pc.indices_nonzero(pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)))
    return [0, *(flat_view(changes) + 1).tolist()]


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
