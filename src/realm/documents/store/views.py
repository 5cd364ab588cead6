"""Zero-copy views of a memory-mapped segment: numpy arrays over its record batches."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from realm.documents.links import document_key, title_key
from realm.documents.store.manifest import CORPUS_CURE, SegmentInfo, damage
from realm.documents.store.segments import DIGITS, SegmentLookup, column_sum, flat_view, frame_sum, read_whole, segment_schema
from realm.errors import CorpusError
from realm.storage.files import is_transient


@dataclass(frozen=True)
class ListView:
    """A list column of one batch without a copy: ``values[offsets[i]:offsets[i + 1]]`` is row i."""

    values: np.ndarray  # [total] or [total, 2]
    offsets: np.ndarray  # int32 [rows + 1]

    def row(self, index: int) -> np.ndarray:
        """The elements of one row, a view."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]


def check_offsets(column: pa.Array) -> None:
    """Check that every string or list lies within its column and none is shorter than nothing: Arrow trusts that, and ends the process
    where it is not so. Reads the offsets, and no values. Raises ArrowInvalid: it is not so."""
    if not (pa.types.is_string(column.type) or pa.types.is_list(column.type)) or not len(column):
        return
    column.validate()  # sizes of buffers, and the last offset
    if column.null_count:
        raise pa.ArrowInvalid("values are lacking")
    offsets = np.frombuffer(column.buffers()[1], np.int32, count=len(column) + 1, offset=4 * column.offset)
    if offsets[0] < 0 or np.any(offsets[1:] < offsets[:-1]):
        raise pa.ArrowInvalid("its offsets do not ascend")


class BatchView:
    """Columns of one record batch, each compared with its checksum in ``sums`` and made numpy at first use; ``damaged`` makes its error."""

    def __init__(self, batch: pa.RecordBatch, sums: str, damaged: Callable[[str], CorpusError]):
        self._batch, self._sums, self._damaged = batch, sums, damaged
        self.rows = batch.num_rows
        self._lists: dict[str, ListView] = {}
        self._columns: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        """A column that holds what was published, and that Arrow can read. Raises CorpusError: it has changed, or Arrow cannot."""
        column = self._columns.get(name)
        if column is None:
            column, place = self._batch.column(name), self._batch.schema.get_field_index(name) * DIGITS
            if column_sum(column) != self._sums[place : place + DIGITS]:
                raise self._damaged(f"column {name} changed since it was published (checksum differs)")
            try:
                check_offsets(column)  # who can forge a column can forge its checksum
            except pa.ArrowInvalid as error:
                raise self._damaged(f"column {name}: {error}") from error
            self._columns[name] = column
        return column

    @cached_property
    def block_ids(self) -> np.ndarray:
        """int64 [rows]."""
        return flat_view(self.column("block_id"))

    def is_whole(self) -> bool:
        """True where every column holds what was published."""
        try:
            for name in self._batch.schema.names:
                self.column(name)
        except CorpusError:
            return False
        return True

    def select(self, keep: np.ndarray) -> pa.RecordBatch:
        """A copy of the rows for which ``keep`` (bool [rows]) is true."""
        for name in self._batch.schema.names:
            self.column(name)
        return self._batch.filter(pa.array(keep))

    def scalar(self, name: str, index: int) -> Any:
        """One value of a string or integer column. Raises CorpusError: text that is not UTF-8."""
        with self._decoding(name):
            return self.column(name)[index].as_py()

    def strings(self, name: str) -> list[str]:
        """A whole string column. Raises CorpusError: text that is not UTF-8."""
        with self._decoding(name):
            return self.column(name).to_pylist()

    @contextmanager
    def _decoding(self, name: str) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            raise self._damaged(f"'{name}' holds bytes that are not UTF-8") from error

    def lists(self, name: str) -> ListView:
        """A list column."""
        view = self._lists.get(name)
        if view is None:
            column = self.column(name)
            values = column.values
            flat = flat_view(values.values).reshape(-1, 2) if pa.types.is_fixed_size_list(values.type) else flat_view(values)
            view = self._lists[name] = ListView(flat, flat_view(column.offsets))
        return view


class Segment:
    """A segment, mapped if large, with its look-up files. Opening reads the file's footer; a column of a record batch is read, and compared
    with its checksum, when it is asked for. Raises CorpusError: a file is missing, truncated, or has other columns or rows; a part that is
    read has changed since it was published."""

    def __init__(self, directory: Path, info: SegmentInfo):
        self._path = directory / info.name
        self.info = info
        self.rows = info.rows
        self.first_id = info.first_id
        # Sizes are checked, not hashes: opening must not read the corpus.
        if not self._path.is_file() or self._path.stat().st_size != info.bytes:
            raise CorpusError("missing or truncated segment", path=self._path, cure=CORPUS_CURE)
        self.lookup = SegmentLookup(self._path, info)
        try:
            self._whole = read_whole(self._path)
            self._check_frames(0, -1)
            self._reader = pa.ipc.open_file(pa.BufferReader(self._whole))
        except (OSError, pa.ArrowInvalid) as error:
            if isinstance(error, OSError) and is_transient(error):
                raise damage("segment").unreadable(error, self._path) from error
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
            self._check_frames(number)
            try:
                batch = self._reader.get_batch(number)
                batch.validate()  # sizes of buffers, lengths of columns
            except (OSError, pa.ArrowInvalid) as error:
                raise self._damaged(str(error)) from error
            view = self._views[number] = BatchView(batch, self.info.sums.columns[number], self._damaged)
            if view.rows != self.info.batch_rows[number]:
                raise self._damaged(f"{view.rows} rows in record batch {number}, not {self.info.batch_rows[number]}")
        return view

    @property
    def batches(self) -> list[BatchView]:
        """All record batches, in order."""
        return [self.view(number) for number in range(len(self._views))]

    def _damaged(self, problem: str) -> CorpusError:
        return CorpusError(f"damaged segment: {problem}", path=self._path, cure=CORPUS_CURE)

    def _check_frames(self, *numbers: int) -> None:
        """Compare what Arrow says of itself with its checksums, before Arrow reads it."""
        for start, end, found in [self.info.sums.frames[number] for number in numbers]:
            if frame_sum(self._whole, start, end) != found:
                raise self._damaged("changed since it was published (checksum differs)")

    @property
    def _gaps(self) -> bool:
        """True where compaction left gaps between the ids; without, a row is a difference of ids. Ids ascend."""
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
        for row in self.lookup.first_rows_of_key(document_key(doc_id.encode("utf-8", "replace"))):
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

    def has_elements(self, name: str, first: int, last: int) -> bool:
        """True if a list of the rows from ``first`` to before ``last`` has an element."""
        for view, start in zip(self.batches, self._starts, strict=False):
            begin, end = max(first - start, 0), min(last - start, view.rows)
            if begin < end and view.lists(name).offsets[end] > view.lists(name).offsets[begin]:
                return True
        return False

    @cached_property
    def titles(self) -> tuple[np.ndarray, np.ndarray]:
        """(uint64 [d], int64 [d]): the keys of the titles of the documents that have one, ascending, and the first row of each."""
        starts, first = self.lookup.starts, 0
        keys, rows = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for view in self.batches:
            here = starts[(starts >= first) & (starts < first + view.rows)]
            titles = view.column("title").take(pa.array(here - first)).to_pylist()
            here = here[[bool(title) for title in titles]] if len(here) else here
            keys.append(np.array([title_key(title) for title in titles if title], np.uint64))
            rows.append(here)
            first += view.rows
        order = np.argsort(np.concatenate(keys), kind="stable")
        return np.concatenate(keys)[order], np.concatenate(rows)[order]

    def flat(self, name: str, first_row: int) -> tuple[np.ndarray, np.ndarray]:
        """(uint64 [t], int64 [t]): all values of a list column of hashes, and the row of each; rows are numbered from ``first_row``."""
        views = [view.lists(name) for view in self.batches]
        if not views:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        counts = np.concatenate([np.diff(view.offsets) for view in views])
        return np.concatenate([view.values for view in views]), np.repeat(np.arange(first_row, first_row + self.rows), counts)
