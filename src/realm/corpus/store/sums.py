"""Checksums of a segment by the parts that are read at a time, so that no byte of it is used unchecked and opening does not read it.

A column of a record batch is one part. What lies between the columns of two batches is another: there Arrow says what it wrote where.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from realm.corpus.store.manifest import SegmentSums
from realm.storage.arrays import load_array, worth_mapping
from realm.storage.sums import array_sum, bytes_sum

DIGITS = 16


def read_whole(path: Path) -> pa.Buffer:
    """The bytes of a file, mapped if there are many. Raises OSError."""
    if worth_mapping(path.stat().st_size):
        with pa.memory_map(str(path), "r") as file:
            return file.read_buffer()
    return pa.py_buffer(path.read_bytes())


def segment_sums(whole: pa.Buffer, batches: Sequence[pa.RecordBatch], documents: Path, blocks: Path) -> SegmentSums:
    """The checksums of a finished segment.

    Args:
        whole: its bytes.
        batches: that were read from ``whole``, not copied.
        documents, blocks: its look-up files.
    """
    frames, columns, position = [], [], 0
    for batch in batches:
        first, last = _extent(batch, whole.address, position)
        frames.append((position, first, frame_sum(whole, position, first)))
        columns.append("".join(column_sum(column) for column in batch.columns))
        position = last
    frames.append((position, whole.size, frame_sum(whole, position, whole.size)))
    return SegmentSums(tuple(frames), tuple(columns), array_sum(load_array(documents)), array_sum(load_array(blocks)))


def _extent(batch: pa.RecordBatch, base: int, position: int) -> tuple[int, int]:
    """Where the columns of a batch begin and end in the file; an empty batch has them at ``position``."""
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size]
    if not buffers:
        return position, position
    return min(buffer.address for buffer in buffers) - base, max(buffer.address + buffer.size for buffer in buffers) - base


def frame_sum(whole: pa.Buffer, start: int, end: int) -> str:
    """The checksum of some of a file's bytes."""
    return bytes_sum(whole.slice(start, max(end - start, 0)))


def column_sum(column: pa.Array) -> str:
    """The checksum of a column of one record batch: of its buffers, in order."""
    return bytes_sum(*(buffer for buffer in column.buffers() if buffer is not None))
