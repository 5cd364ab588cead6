"""CSV and TSV with a header, DPR's passages among them; Parquet, a batch of rows at a time."""

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from realm.documents import streams
from realm.documents.columns import Columns, find_columns
from realm.documents.options import SourceOptions
from realm.documents.records import BAD_ROW, DAMAGED_FILE, INVALID_UTF8, TOO_LONG, UNREADABLE, Record, Rejected
from realm.errors import DataError

Style = dict[str, Any]
"""Arguments of ``csv.reader``."""

_STYLES: tuple[Style, ...] = ({"strict": True, "quoting": csv.QUOTE_MINIMAL}, {"strict": True, "quoting": csv.QUOTE_NONE})
"""Fields in quotes where they need it, or quotes that are part of the text."""


def read_table(path: Path, name: str, options: SourceOptions, delimiters: str = ",;\t|") -> Iterator[Record]:
    """Rows of a table whose first line names the columns; of ``delimiters`` that counts which gives this line the most columns.

    ``line`` is the physical line where a row starts, the number in a made id counts rows after the header.

    Raises:
        DataError: a column is missing.
    """
    columns: Columns | None = None
    for row in named_rows(path, delimiters):
        if isinstance(row, Rejected):
            yield row
        elif columns is None:
            columns = find_columns(options, list(row.values), path)
        elif all(streams.is_utf8(row.values[column]) for column in columns.wanted):
            yield columns.record(row.values, str(path), name, row.number, row.line)
        else:
            yield Rejected(str(path), row.line, INVALID_UTF8)


read_tsv = partial(read_table, delimiters="\t")


class Row(NamedTuple):
    """A row of a table: its number from 1 on, 0 for the header; the physical line where it starts; its values by column."""

    number: int
    line: int
    values: dict[str, str]


def named_rows(path: Path, delimiters: str = ",;\t|") -> Iterator[Row | Rejected]:
    """The header of a table, each name under itself, and its rows; those that are broken or too short are rejected, and numbered too.

    Raises:
        DataError: the first line is not a header.
    """
    header: list[str] = []
    number = 0
    for found in rows_of(path, style_of(path, delimiters)):
        if isinstance(found, Rejected) or found[1] == []:
            yield from [found] if isinstance(found, Rejected) else ()
            continue
        line, row = found
        if not header:
            if isinstance(row, str):
                cure = "It must name the columns, such as id,title,text, and end as lines do"
                raise DataError("the first line is not a header", path=path, line=line, cure=cure)
            header = row
            yield Row(0, line, dict(zip(header, header, strict=True)))
            continue
        number += 1
        if isinstance(row, str):
            yield Rejected(str(path), line, row)
        elif len(row) < len(header) or any(row[len(header) :]):
            yield Rejected(str(path), line, BAD_ROW)
        else:
            yield Row(number, line, dict(zip(header, row, strict=False)))


def style_of(path: Path, delimiters: str) -> Style:
    """Delimiter and quoting under which the start of the file has the fewest bad rows."""
    try:
        head = streams.read_head(path)
    except OSError:
        return _STYLES[0] | {"delimiter": delimiters[0]}  # the reader says why
    lines = [line.decode("utf-8", "replace") + "\n" for line in head.split(b"\n")]
    if len(head) >= streams.HEAD_BYTES and len(lines) > 1:
        del lines[-1]  # cut off
    delimiter = max(delimiters, key=lines[0].count)
    return min((style | {"delimiter": delimiter} for style in _STYLES), key=lambda style: _bad_rows(lines, style))


def _bad_rows(lines: list[str], style: Style) -> int:
    """Rows that are broken, have not as many fields as the first, or keep both quotes of a field. A quote that the end cuts costs one."""
    reader = csv.reader(lines, **style)
    width, bad = 0, 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return bad
        except csv.Error:
            bad += 1
            continue
        width = width or len(row)
        kept = style["quoting"] == csv.QUOTE_NONE and any(len(field) > 1 and field[0] == field[-1] == '"' for field in row)
        bad += kept or len(row) not in (0, width)


def rows_of(path: Path, style: Style) -> Iterator[tuple[int, list[str] | str] | Rejected]:
    """(line, fields) of each row, or (line, reason) of a broken one; before it, the lines that cannot be had.

    A byte that is not UTF-8 becomes a lone surrogate.
    """
    csv.field_size_limit(streams.LINE_LIMIT)
    rejected: list[Rejected] = []
    first = 0  # line where a row starts

    def lines() -> Iterator[str]:
        nonlocal first
        for found in streams.numbered_lines(path):
            if isinstance(found, Rejected):
                rejected.append(found)
                continue
            first = first or found[0]
            yield found[1].decode("utf-8", "surrogateescape")

    reader = csv.reader(lines(), **style)
    while True:
        first = 0
        row: list[str] | str | None
        try:
            row = next(reader, None)
        except csv.Error as error:
            row = TOO_LONG if "field limit" in str(error) else BAD_ROW
        yield from rejected
        rejected.clear()
        if row is None:
            return
        yield first, row


# Rows decoded at a time; the file's own pages, and not its size, bound the rest of the memory.
BATCH_ROWS = 256


def read_parquet(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Rows of a Parquet file; ``line`` is the 1-based row. Raises DataError: a column is missing."""
    number = 0
    try:
        with open(path, "rb") as raw, pq.ParquetFile(raw) as file:
            columns = find_columns(options, file.schema_arrow.names, path)
            strings = [name for name in columns.wanted if _is_text(file.schema_arrow.field(name).type)]
        # Strings stay coded by a dictionary: a few bytes a row may each name one of many megabytes.
        with open(path, "rb") as raw, pq.ParquetFile(raw, read_dictionary=strings) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns.wanted):
                for values in zip(*(_values(batch.column(column)) for column in columns.wanted), strict=True):
                    number += 1
                    yield _decoded(dict(zip(columns.wanted, values, strict=True)), columns, str(path), name, number)
    except PermissionError:
        yield Rejected(str(path), 0, UNREADABLE)
    except (pa.ArrowException, OSError) as error:
        streams.refuse_passing(error, path)
        # What was read before the damage stays.
        yield Rejected(str(path), number + 1, DAMAGED_FILE)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _values(column: pa.Array) -> list[Any]:
    """A column's values; strings as bytes, because writers do not check that they are UTF-8. Equal strings of a dictionary are one."""
    if pa.types.is_dictionary(column.type):
        values = _values(column.dictionary)
        return [None if number is None else values[number] for number in column.indices.to_pylist()]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return column.to_pylist()


def _decoded(row: dict[str, Any], columns: Columns, path: str, name: str, number: int) -> Record:
    if any(isinstance(value, bytes) and len(value) > streams.LINE_LIMIT for value in row.values()):
        return Rejected(path, number, TOO_LONG)
    try:
        row = {column: value.decode("utf-8") if isinstance(value, bytes) else value for column, value in row.items()}
    except UnicodeDecodeError:
        return Rejected(path, number, INVALID_UTF8)
    return columns.record(row, path, name, number, number)
