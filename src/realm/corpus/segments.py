"""One Arrow IPC file of blocks: its columns, how it is written, and zero-copy views of it.

Any tool that reads Arrow reads these files. Row numbers are positions in a segment and mean nothing outside corpus/ and index/.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from realm.corpus.intake import Document
from realm.corpus.lookup import SegmentLookup, flat_view
from realm.corpus.manifest import SegmentInfo
from realm.corpus.packing import PackedBlock, hash64
from realm.errors import CorpusError

# Rows of one record batch: about 50 MB while it is written, and 815 batches for the 13.35 million blocks of English Wikipedia.
BATCH_ROWS = 16_384

_TEXT_COLUMNS = ("doc_id", "title", "text", "source")
_PAIR_COLUMNS = ("sentence_chars", "sentence_tokens", "span_chars", "span_tokens")
_HASH_COLUMNS = ("sentence_hashes", "span_hashes")
_PAIR = pa.list_(pa.int32(), 2)


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """uint16 as long as every id fits, else uint32."""
    return np.dtype(np.uint16 if vocab_size <= 65_535 else np.uint32)


def segment_schema(dtype: np.dtype[Any]) -> pa.Schema:
    """Columns of a segment. Chars count code points of ``text``, tokens count wordpieces of ``token_ids``.

    ``source`` and ``line`` say where the document was read: file or name as it was given, and the record in it (0: the whole file).
    """
    tokens = pa.list_(pa.from_numpy_dtype(dtype))
    return pa.schema(
        [
            ("block_id", pa.int64()),
            *((name, pa.string()) for name in _TEXT_COLUMNS),
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
        ]
    )


class _ListColumn:
    """A growing list column: flat values and row offsets. ``width`` values make one element."""

    def __init__(self, typecode: str, width: int = 1):
        self.values = array(typecode)
        self.offsets = array("i", [0])
        self.width = width

    def close_row(self) -> None:
        self.offsets.append(len(self.values) // self.width)

    def to_arrow(self, value_type: pa.DataType) -> pa.Array:
        flat = pa.array(np.array(self.values, dtype=value_type.to_pandas_dtype()), type=value_type)
        if self.width > 1:
            flat = pa.FixedSizeListArray.from_arrays(flat, self.width)
        return pa.ListArray.from_arrays(pa.array(np.array(self.offsets, dtype=np.int32)), flat)


class SegmentWriter:
    """Writes blocks to a new Arrow file; the same blocks give the same bytes. A context manager; the caller publishes the file."""

    def __init__(self, path: Path, dtype: np.dtype[Any], first_block_id: int):
        self._schema = segment_schema(dtype)
        self._token_type = pa.from_numpy_dtype(dtype)
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._first = self._next = first_block_id
        self.spans = 0
        self.tokens = 0
        self._reset()

    def __enter__(self) -> "SegmentWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._flush()
        self._writer.close()
        self._sink.close()

    @property
    def rows(self) -> int:
        """Blocks added so far."""
        return self._next - self._first

    def add(self, document: Document, title_ids: Sequence[int], block: PackedBlock) -> None:
        """Append one block of ``document``."""
        text, start = document.text, block.start
        values = (document.doc_id, document.title, text[start : block.end], document.source)
        for name, value in zip(_TEXT_COLUMNS, values, strict=True):
            self._text[name].append(value)
        self._ids.append(self._next)
        self._lines.append(document.line)
        self._starts.append(start)
        self._lists["title_ids"].values.extend(title_ids)
        token = 0
        for index, sentence in enumerate(block.sentences):
            self._lists["token_ids"].values.extend(sentence.ids)
            self._lists["sentence_chars"].values.extend((sentence.start - start, sentence.end - start))
            self._lists["sentence_tokens"].values.extend((token, token + len(sentence.ids)))
            self._lists["sentence_hashes"].values.append(hash64(text[sentence.start : sentence.end]))
            for span in sentence.spans:
                self._lists["span_chars"].values.extend((span.char_start - start, span.char_end - start))
                self._lists["span_tokens"].values.extend((token + span.token_start, token + span.token_end))
                self._lists["span_sentence"].values.append(index)
                self._lists["span_hashes"].values.append(hash64(text[span.char_start : span.char_end]))
            self.spans += len(sentence.spans)
            token += len(sentence.ids)
        for column in self._lists.values():
            column.close_row()
        self.tokens += token
        self._next += 1
        if len(self._ids) >= BATCH_ROWS:
            self._flush()

    def _reset(self) -> None:
        self._text: dict[str, list[str]] = {name: [] for name in _TEXT_COLUMNS}
        self._ids, self._lines, self._starts = array("q"), array("q"), array("q")
        self._lists = {name: _ListColumn("I") for name in ("title_ids", "token_ids")}
        self._lists |= {name: _ListColumn("i", 2) for name in _PAIR_COLUMNS}
        self._lists |= {name: _ListColumn("Q") for name in _HASH_COLUMNS}
        self._lists["span_sentence"] = _ListColumn("i")

    def _flush(self) -> None:
        if not self._ids:
            return
        value_types = dict.fromkeys(("title_ids", "token_ids"), self._token_type)
        value_types |= {name: pa.uint64() for name in _HASH_COLUMNS}
        columns: dict[str, pa.Array] = {name: pa.array(values, type=pa.string()) for name, values in self._text.items()}
        columns |= {
            "block_id": pa.array(np.array(self._ids, dtype=np.int64)),
            "line": pa.array(np.array(self._lines, dtype=np.int64)),
            "char_start": pa.array(np.array(self._starts, dtype=np.int64)),
        }
        columns |= {name: column.to_arrow(value_types.get(name, pa.int32())) for name, column in self._lists.items()}
        arrays = [columns[entry.name].cast(entry.type) for entry in self._schema]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._reset()


@dataclass(frozen=True)
class ListView:
    """A list column of one batch without a copy: ``values[offsets[i]:offsets[i + 1]]`` is row i."""

    values: np.ndarray  # [total] or [total, 2]
    offsets: np.ndarray  # int32 [rows + 1]

    def row(self, index: int) -> np.ndarray:
        """The elements of one row, a view."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]


class BatchView:
    """Columns of one record batch, each turned into numpy at first use."""

    def __init__(self, batch: pa.RecordBatch):
        self._batch = batch
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
        """One value of a string or integer column."""
        return self._batch.column(name)[index].as_py()

    def strings(self, name: str) -> list[str]:
        """A whole string column."""
        return self._batch.column(name).to_pylist()

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
    """A memory-mapped segment with its look-up files. Opening reads the head of every record batch, and no text.

    Raises:
        CorpusError: a file is missing, truncated, or has other columns or rows.
    """

    def __init__(self, path: Path, rows: int):
        self.rows = rows
        self.lookup = SegmentLookup(path, rows)
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path), "r"))
            missing = set(segment_schema(np.dtype(np.uint16)).names) - set(reader.schema.names)
            if missing:
                raise CorpusError(f"the segment lacks columns: {', '.join(sorted(missing))}", path=path, cure="Build the corpus again")
            self.batches = [BatchView(reader.get_batch(number)) for number in range(reader.num_record_batches)]
        except (OSError, pa.ArrowInvalid) as error:
            raise CorpusError(f"missing or damaged segment: {error}", path=path, cure="Build the corpus again") from error
        self._starts = list(accumulate((view.rows for view in self.batches), initial=0))
        if self._starts[-1] != rows:
            raise CorpusError(f"damaged segment: {self._starts[-1]} rows, not {rows}", path=path, cure="Build the corpus again")

    @cached_property
    def first_id(self) -> int:
        """The lowest block id."""
        return int(self.batches[0].block_ids[0])

    @cached_property
    def _gaps(self) -> bool:
        """Whether compaction left gaps between the ids; without, a row is a difference of ids. Ids ascend."""
        return int(self.batches[-1].block_ids[-1]) - self.first_id + 1 != self.rows

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
        return self.batches[number], row - self._starts[number]


def open_segments(directory: Path, infos: Sequence[SegmentInfo]) -> list[Segment]:
    """The segments that a manifest names. Sizes are checked, not hashes: opening must not read the corpus. Raises CorpusError."""
    for info in infos:
        file = directory / info.name
        if not file.is_file() or file.stat().st_size != info.bytes:
            raise CorpusError("missing or truncated segment", path=file, cure="Build the corpus again")
    return [Segment(directory / info.name, info.rows) for info in infos]


def segment_span_hashes(segment: Segment, first_row: int) -> tuple[np.ndarray, np.ndarray]:
    """(uint64 [t], int64 [t]): hash of the normalised text and block of every span occurrence; blocks are numbered from ``first_row``."""
    views = [view.lists("span_hashes") for view in segment.batches]
    if not views:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    counts = np.concatenate([np.diff(view.offsets) for view in views])
    return np.concatenate([view.values for view in views]), np.repeat(np.arange(first_row, first_row + segment.rows), counts)
