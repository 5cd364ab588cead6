"""One Arrow IPC file of blocks: its columns, and how it is written. (views.py reads it.)

Any tool that reads Arrow reads these files. Row numbers are positions in a segment and mean nothing outside corpus/ and index/.
"""

from array import array
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from realm.corpus.packing import PackedBlock, hash64
from realm.corpus.spool import Document

# Rows of one record batch: about 50 MB while it is written, and 815 batches for the 13.35 million blocks of English Wikipedia.
BATCH_ROWS = 16_384
# Blocks of one segment: about 250 MB, and the most that an interrupted build loses.
SEGMENT_ROWS = 131_072

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
