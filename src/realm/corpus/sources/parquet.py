"""Parquet, a batch of rows at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from realm.corpus.records import DAMAGED_FILE, INVALID_UTF8, UNREADABLE, Record, Rejected
from realm.corpus.sources.columns import Columns, find_columns
from realm.corpus.sources.options import SourceOptions

# Rows decoded at a time; the file's own pages, and not its size, bound the rest of the memory.
BATCH_ROWS = 256


def read_parquet(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Rows of a Parquet file; ``line`` is the 1-based row. Raises DataError: a column is missing."""
    number = 0
    try:
        with open(path, "rb") as raw, pq.ParquetFile(raw) as file:
            columns = find_columns(options, file.schema_arrow.names, path)
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns.wanted):
                for values in zip(*(_values(batch.column(column)) for column in columns.wanted), strict=True):
                    number += 1
                    yield _record(dict(zip(columns.wanted, values, strict=True)), columns, str(path), name, number)
    except PermissionError:
        yield Rejected(str(path), 0, UNREADABLE)
    except (pa.ArrowException, OSError):
        # What was read before the damage stays.
        yield Rejected(str(path), number + 1, DAMAGED_FILE)


def _values(column: pa.Array) -> list[Any]:
    """A column's values; strings as bytes, because writers do not check that they are UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return column.to_pylist()


def _record(row: dict[str, Any], columns: Columns, path: str, name: str, number: int) -> Record:
    try:
        row = {column: value.decode("utf-8") if isinstance(value, bytes) else value for column, value in row.items()}
    except UnicodeDecodeError:
        return Rejected(path, number, INVALID_UTF8)
    return columns.record(row, path, name, number, number)
