"""One Arrow IPC file of blocks: its columns, how it is written, and zero-copy views of it.

Any tool that reads Arrow reads these files. Row numbers are positions in a segment and mean nothing outside corpus/ and index/.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from realm.corpus.packing import PackedBlock, hash64
from realm.errors import CorpusError

# Rows of one record batch: about 50 MB while it is written, and 815 batches for the 13.35 million blocks of English Wikipedia.
BATCH_ROWS = 16_384

_TEXT_COLUMNS = ("doc_id", "title", "text")
_PAIR_COLUMNS = ("sentence_chars", "sentence_tokens", "span_chars", "span_tokens")
_HASH_COLUMNS = ("sentence_hashes", "span_hashes")
_PAIR = pa.list_(pa.int32(), 2)


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """uint16 as long as every id fits, else uint32."""
    return np.dtype(np.uint16 if vocab_size <= 65_535 else np.uint32)


def segment_schema(dtype: np.dtype[Any]) -> pa.Schema:
    """Columns of a segment. Chars count code points of ``text``, tokens count wordpieces of ``token_ids``."""
    tokens = pa.list_(pa.from_numpy_dtype(dtype))
    return pa.schema(
        [
            ("block_id", pa.int64()),
            *((name, pa.string()) for name in _TEXT_COLUMNS),
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
    """Writes blocks to a new Arrow file; the same blocks give the same bytes. A context manager; the caller publishes the file.

    Args:
        path: the file, or a sink in memory.
    """

    def __init__(self, path: Path | pa.NativeFile, dtype: np.dtype[Any], first_block_id: int):
        self._schema = segment_schema(dtype)
        self._token_type = pa.from_numpy_dtype(dtype)
        self._sink = path if isinstance(path, pa.NativeFile) else pa.OSFile(str(path), "wb")
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

    def add(self, doc_id: str, title: str, title_ids: Sequence[int], text: str, block: PackedBlock) -> None:
        """Append one block of the document whose canonical text is ``text``."""
        start = block.start
        for name, value in zip(_TEXT_COLUMNS, (doc_id, title, text[start : block.end]), strict=True):
            self._text[name].append(value)
        self._ids.append(self._next)
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
        self._ids, self._starts = array("q"), array("q")
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
        self._lists: dict[str, ListView] = {}

    @cached_property
    def block_ids(self) -> np.ndarray:
        """int64 [rows]."""
        return self._batch.column("block_id").to_numpy(zero_copy_only=True)

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
            if pa.types.is_fixed_size_list(values.type):
                flat = values.values.to_numpy(zero_copy_only=True).reshape(-1, 2)
            else:
                flat = values.to_numpy(zero_copy_only=True)
            view = self._lists[name] = ListView(flat, column.offsets.to_numpy(zero_copy_only=True))
        return view


class Segment:
    """A memory-mapped segment. Batches are opened when they are first asked for.

    Raises:
        CorpusError: the file is missing, truncated, or has other columns.
    """

    def __init__(self, path: Path, rows: int):
        self.rows = rows
        try:
            self._file = pa.ipc.open_file(pa.memory_map(str(path), "r"))
            missing = set(segment_schema(np.dtype(np.uint16)).names) - set(self._file.schema.names)
        except (OSError, pa.ArrowInvalid) as error:
            raise CorpusError(f"missing or damaged segment: {error}", path=path, cure="Build the corpus again") from error
        if missing:
            raise CorpusError(f"the segment lacks columns: {', '.join(sorted(missing))}", path=path, cure="Build the corpus again")
        self._views: list[BatchView | None] = [None] * self._file.num_record_batches
        # Every batch but the last is full, so positions need no table.
        self._starts = list(range(0, max(rows, 1), BATCH_ROWS))

    def batches(self) -> list[BatchView]:
        """All batches in order."""
        return [self._view(number) for number in range(len(self._views))]

    def locate(self, row: int) -> tuple[BatchView, int]:
        """The batch that holds ``row`` and the position in it."""
        number = bisect_right(self._starts, row) - 1
        return self._view(number), row - self._starts[number]

    def _view(self, number: int) -> BatchView:
        view = self._views[number]
        if view is None:
            view = self._views[number] = BatchView(self._file.get_batch(number))
        return view


def segment_span_hashes(segment: Segment, first_row: int) -> tuple[np.ndarray, np.ndarray]:
    """(uint64 [t], int64 [t]): hash of the normalised text and block of every span occurrence; blocks are numbered from ``first_row``."""
    views = [view.lists("span_hashes") for view in segment.batches()]
    if not views:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    counts = np.concatenate([np.diff(view.offsets) for view in views])
    return np.concatenate([view.values for view in views]), np.repeat(np.arange(first_row, first_row + segment.rows), counts)
