"""Zero-copy views of a memory-mapped segment: numpy arrays over its record batches."""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from realm.corpus.store.lookup import SegmentLookup, flat_view
from realm.corpus.store.manifest import SegmentInfo
from realm.corpus.store.segments import segment_schema
from realm.errors import CorpusError
from realm.storage.arrays import worth_mapping


@dataclass(frozen=True)
class ListView:
    """A list column of one batch without a copy: ``values[offsets[i]:offsets[i + 1]]`` is row i."""

    values: np.ndarray  # [total] or [total, 2]
    offsets: np.ndarray  # int32 [rows + 1]

    def row(self, index: int) -> np.ndarray:
        """The elements of one row, a view."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]


def damaged_segment(path: Path, problem: str) -> CorpusError:
    """The error for a file of blocks that is not as it was published."""
    return CorpusError(f"damaged segment: {problem}", path=path, cure="Build the corpus again")


def check_offsets(batch: pa.RecordBatch) -> None:
    """See that every string and list lies within its column and none is shorter than nothing: Arrow trusts that, and ends the process
    where it is not so. Reads the offsets, a fiftieth of a batch, and no values.

    Raises:
        ArrowInvalid: it is not so.
    """
    batch.validate()  # sizes of buffers, and the last offset of each column
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not (pa.types.is_string(column.type) or pa.types.is_list(column.type)) or not len(column):
            continue
        if column.null_count:
            raise pa.ArrowInvalid(f"'{name}' lacks values")
        offsets = np.frombuffer(column.buffers()[1], np.int32, count=len(column) + 1, offset=4 * column.offset)
        if offsets[0] < 0 or np.any(offsets[1:] < offsets[:-1]):
            raise pa.ArrowInvalid(f"the offsets of '{name}' do not ascend")


class BatchView:
    """Columns of one record batch, each turned into numpy at first use."""

    def __init__(self, batch: pa.RecordBatch, path: Path):
        self._batch = batch
        self._path = path
        self.rows = batch.num_rows
        self._lists: dict[str, ListView] = {}

    @cached_property
    def block_ids(self) -> np.ndarray:
        """int64 [rows]."""
        return flat_view(self._batch.column("block_id"))

    def select(self, keep: np.ndarray) -> pa.RecordBatch:
        """A copy of the rows for which ``keep`` (bool [rows]) is true."""
        return self._batch.filter(pa.array(keep))

    def scalar(self, name: str, index: int) -> Any:
        """One value of a string or integer column. Raises CorpusError: text that is not UTF-8."""
        with self._decoding(name):
            return self._batch.column(name)[index].as_py()

    def strings(self, name: str) -> list[str]:
        """A whole string column. Raises CorpusError: text that is not UTF-8."""
        with self._decoding(name):
            return self._batch.column(name).to_pylist()

    @contextmanager
    def _decoding(self, name: str) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            raise damaged_segment(self._path, f"'{name}' holds bytes that are not UTF-8") from error

    def lists(self, name: str) -> ListView:
        """A list column."""
        view = self._lists.get(name)
        if view is None:
            column = self._batch.column(name)
            values = column.values
            flat = flat_view(values.values).reshape(-1, 2) if pa.types.is_fixed_size_list(values.type) else flat_view(values)
            view = self._lists[name] = ListView(flat, flat_view(column.offsets))
        return view


class Segment:
    """A segment, mapped if large, with its look-up files. Opening reads the file's footer; a record batch is read when it is asked for.

    Raises:
        CorpusError: a file is missing, truncated, or has other columns or rows.
    """

    def __init__(self, directory: Path, info: SegmentInfo):
        self._path = directory / info.name
        self.info = info
        self.rows = info.rows
        self.first_id = info.first_id
        # Sizes are checked, not hashes: opening must not read the corpus.
        if not self._path.is_file() or self._path.stat().st_size != info.bytes:
            raise CorpusError("missing or truncated segment", path=self._path, cure="Build the corpus again")
        self.lookup = SegmentLookup(self._path, info.rows)
        try:
            mapped = worth_mapping(info.bytes)
            self._reader = pa.ipc.open_file(pa.memory_map(str(self._path), "r") if mapped else pa.BufferReader(self._path.read_bytes()))
        except (OSError, pa.ArrowInvalid) as error:
            raise self._damaged(str(error)) from error
        missing = set(segment_schema(np.dtype(np.uint16)).names) - set(self._reader.schema.names)
        if missing:
            raise self._damaged(f"no column {', '.join(sorted(missing))}")
        if self._reader.num_record_batches != len(info.batch_rows):
            raise self._damaged(f"{self._reader.num_record_batches} record batches, not {len(info.batch_rows)}")
        self._views: list[BatchView | None] = [None] * len(info.batch_rows)
        self._starts = list(accumulate(info.batch_rows, initial=0))

    def view(self, number: int) -> BatchView:
        """A record batch."""
        view = self._views[number]
        if view is None:
            try:
                batch = self._reader.get_batch(number)
                check_offsets(batch)
            except (OSError, pa.ArrowInvalid) as error:
                raise self._damaged(str(error)) from error
            view = self._views[number] = BatchView(batch, self._path)
            if view.rows != self.info.batch_rows[number]:
                raise self._damaged(f"{view.rows} rows in record batch {number}, not {self.info.batch_rows[number]}")
        return view

    @property
    def batches(self) -> list[BatchView]:
        """All record batches, in order."""
        return [self.view(number) for number in range(len(self._views))]

    def _damaged(self, problem: str) -> CorpusError:
        return damaged_segment(self._path, problem)

    @property
    def _gaps(self) -> bool:
        """Whether compaction left gaps between the ids; without, a row is a difference of ids. Ids ascend."""
        return self.info.last_id - self.first_id + 1 != self.rows

    @cached_property
    def block_ids(self) -> np.ndarray:
        """int64 [rows], ascending."""
        if not self._gaps:
            return np.arange(self.first_id, self.first_id + self.rows)
        return np.concatenate([view.block_ids for view in self.batches])

    def rows_of(self, block_ids: np.ndarray) -> np.ndarray:
        """int64 [n]: the row of each id, -1 where the segment does not hold it."""
        if not self._gaps:
            rows = block_ids - self.first_id
            return np.where((rows >= 0) & (rows < self.rows), rows, -1)
        rows = np.minimum(np.searchsorted(self.block_ids, block_ids), self.rows - 1)
        return np.where(self.block_ids[rows] == block_ids, rows, -1)

    def rows_of_document(self, doc_id: str) -> list[int]:
        """Rows of one document, ascending."""
        found: list[int] = []
        for row in self.lookup.first_rows(doc_id):
            while row < self.rows and self.scalar("doc_id", row) == doc_id:
                found.append(row)
                row += 1
        return found

    def scalar(self, name: str, row: int) -> Any:
        """One value of a string or integer column."""
        view, index = self.locate(row)
        return view.scalar(name, index)

    def locate(self, row: int) -> tuple[BatchView, int]:
        """The batch that holds ``row`` and the position in it."""
        number = bisect_right(self._starts, row) - 1
        return self.view(number), row - self._starts[number]

    def flat(self, name: str, first_row: int) -> tuple[np.ndarray, np.ndarray]:
        """(uint64 [t], int64 [t]): all values of a list column of hashes, and the row of each; rows are numbered from ``first_row``."""
        views = [view.lists(name) for view in self.batches]
        if not views:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        counts = np.concatenate([np.diff(view.offsets) for view in views])
        return np.concatenate([view.values for view in views]), np.repeat(np.arange(first_row, first_row + self.rows), counts)
