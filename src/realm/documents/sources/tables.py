"""CSV and TSV with a header, DPR's passages among them; Parquet, a batch of rows at a time."""

import csv
import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import accumulate, count
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from realm.documents import records, streams
from realm.documents.columns import Columns, find_columns, only_one
from realm.documents.limited import BYTES_OF_TIME, read_parts
from realm.documents.records import Record, Rejected, SourceDocument, SourceOptions
from realm.errors import DataError

Style = dict[str, Any]
"""Arguments of ``csv.reader``."""

_STYLES: tuple[Style, ...] = ({"strict": True, "quoting": csv.QUOTE_MINIMAL}, {"strict": True, "quoting": csv.QUOTE_NONE})
"""Fields in quotes where they need it, or quotes that are part of the text."""

MOST_TITLES, MOST_COLUMNS = 20, 2**17
_AMOUNT = re.compile(r"(?!(?:19|20)\d\d$)[-+]?\d[\d.,]*%?")


def read_table(path: Path, name: str, options: SourceOptions, delimiters: str = ",;\t|") -> Iterator[Record]:
    """Rows of a table whose first line names the columns, cut by that of ``delimiters`` which fits the start of the file best.

    ``line`` is the physical line where a row starts, the number in a made id counts rows; a first row with amounts names none.
    Raises DataError: a column is not there once."""
    columns: Columns | None = None
    for row in named_rows(path, delimiters, short=options.whole_rows):
        if isinstance(row, Rejected):
            yield row
            continue
        if columns is None:
            columns = find_columns(options, list(row.values.values()), path)
            columns = replace(columns, others=options.whole_rows and not (columns.text is None or options.text_column))
            headed = columns.text is not None or _are_names(row.values.values())
            if headed:
                continue
        values = row.values if headed else {"": " | ".join(row.values.values()).strip(" |")}
        if all(streams.is_utf8(values.get(column, "")) for column in columns.wanted or values):
            yield columns.record(values, str(path), name, row.number, row.line)
        else:
            yield Rejected(str(path), row.line, records.INVALID_UTF8)


def _are_names(row: Iterable[str]) -> bool:
    """Return whether a first row names columns: no amounts stand in it, but for numbers that count, such as the lessons of a day."""
    amounts = [value for value in row if _AMOUNT.fullmatch(value)]
    first = int(amounts[0]) if amounts and amounts[0].isdecimal() else 0
    return not amounts or (len(amounts) > 1 and amounts == [str(first + at) for at in range(len(amounts))])


read_tsv = partial(read_table, delimiters="\t")


class Row(NamedTuple):
    """A row of a table: its number from 1 on, 0 for the header; the physical line where it starts; its values by column."""

    number: int
    line: int
    values: dict[str, str]


def named_rows(path: Path, delimiters: str = ",;\t|", *, short: bool = False) -> Iterator[Row | Rejected]:
    """The header of a table, each name under itself, and its rows; those that are broken or, unless ``short``, too short are rejected, and
    numbered too. If ``short``, titles above the header are part of each row.

    The second of two columns of one name is found under ``name (2)``. Raises DataError: the first line is not a header."""
    header, titles, number, (style, above) = list[str](), dict[str, str](), 0, style_of(path, delimiters)
    above = above if short else 0
    for found in rows_of(path, style, short=short, above=above):
        if isinstance(found, Rejected):
            yield found
            continue
        line, row = found
        if above:
            above, titles = above - 1, {" ": " ".join((*titles.values(), *row)).strip()}
            continue
        if not header:
            if isinstance(row, str):
                cure = "It must name the columns, such as id,title,text, and end as lines do"
                raise DataError(f"the first line is not a header: {row}", path=path, line=line, cure=cure)
            names = [name.strip() for name in row]
            numbers: dict[str, Iterator[int]] = defaultdict(lambda: count(1))
            counted = [(name, next(numbers[name])) for name in names]
            blank = str.maketrans("01", " \t")  # names of white space, no two alike
            header = [name if nth == 1 else f"{name} ({nth})" if name else f"{nth:b}".translate(blank) for name, nth in counted]
            yield Row(0, line, dict(zip(header, names, strict=True)))
            continue
        number += 1
        yield Rejected(str(path), line, row) if isinstance(row, str) else Row(number, line, titles | dict(zip(header, row, strict=False)))


def style_of(path: Path, delimiters: str) -> tuple[Style, int]:
    """Delimiter and quoting under which the start of the file has several columns and the fewest bad rows; and the rows of one value at
    most above the first with several, which names the columns: titles, none if there are more than ``MOST_TITLES``."""
    head = streams.head_of(path)
    lines = [line.decode("utf-8", "replace") + "\n" for line in head.split(b"\n")]
    if len(head) >= streams.HEAD_BYTES and len(lines) > 1:
        del lines[-1]  # cut off
    lines = lines[1:] if len(lines) > 1 and lines[0][:4] == "sep=" else lines
    spaced = {delimiter: all(name[:1] == " " for name in lines[0].split(delimiter)[1:]) for delimiter in delimiters}
    styles = [style | {"delimiter": one, "skipinitialspace": skips} for one, skips in spaced.items() for style in _STYLES]
    (single, *_, titles), style = min(((_misfit(lines, style), style) for style in styles), key=lambda found: found[0][:-1])
    return style, 0 if single or titles > MOST_TITLES else titles


def _misfit(lines: list[str], style: Style) -> tuple[bool, bool, int, int, int]:
    """Order of styles: several columns, none cut within quotes; few bad rows; many columns; and then the titles, which may precede good
    rows. Rows are bad that are broken, have not as many fields as the first with several, or keep both quotes of a field; a quote that the
    end cuts costs one."""
    reader = csv.reader(lines, **style)
    header, titles, rows, bad = list[str](), 0, 0, 0
    while True:
        try:
            row = next(reader)
            header = header or (row if sum(map(bool, row)) > 1 else [])
            titles, rows = titles + (bool(row) and not header), rows + bool(row)
            kept = style["quoting"] == csv.QUOTE_NONE and any(len(field) > 1 and field[0] == field[-1] == '"' for field in row)
            bad += kept or bool(header and len(row) not in (0, len(header)))
        except StopIteration:
            cut, many = any(name.count('"') % 2 for name in header), 2 * bad >= max(rows - titles, 2)
            return len(header) < 2 or cut or (titles > 0 and (many or rows < titles + 2)), many, -len(header), bad, titles
        except csv.Error:
            if not header:
                return True, True, 0, 0, 0
            bad, rows = bad + 1, rows + 1


class _Lines:
    """The lines of a table for ``csv.reader``, with numbers and texts of those ``taken`` since the last row, and of those ``rejected``; the
    lines of a row that was none can be given back. A byte that is not UTF-8 becomes a lone surrogate."""

    def __init__(self, path: Path):
        self._found = streams.numbered_lines(path, encoding=streams.guessed_encoding(streams.head_of(path)))
        self._back: deque[tuple[int, str]] = deque()
        self.taken: list[tuple[int, str]] = []
        self.rejected: list[Rejected] = []

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        while not self._back:
            found = next(self._found)
            if isinstance(found, Rejected):
                self.rejected.append(found)
            else:
                self._back.append((found[0], found[1].decode("utf-8", "surrogateescape")))
        self.taken.append(self._back.popleft())
        return self.taken[-1][1]

    def give_back(self) -> None:
        """Read the lines after the first of the last row once more."""
        self._back.extendleft(reversed(self.taken[1:]))


def rows_of(path: Path, style: Style, *, short: bool = False, above: int = 0) -> Iterator[tuple[int, list[str] | str] | Rejected]:
    """(line, fields) of each row that is not empty, or (line, reason) of a broken one; before it, the lines that cannot be had. The first
    ``above`` rows may be of any width.

    A quote that is never closed costs the line in which it stands, and not those that follow."""
    csv.field_size_limit(streams.LINE_LIMIT)
    lines, width = _Lines(path), 0
    reader = csv.reader(lines, **style)
    while True:
        lines.taken.clear()
        row: list[str] | str | None
        try:
            row = next(reader, None)
        except csv.Error as error:
            row = records.TOO_LONG if "field limit" in str(error) else records.BAD_ROW
            if row == records.BAD_ROW:
                lines.give_back()
        yield from lines.rejected
        lines.rejected.clear()
        if row is None:
            return
        if not row or (not width and row == ["sep=", ""]):  # the line in which Excel names the delimiter
            continue
        row = records.TOO_LONG if len(row) > MOST_COLUMNS else row
        width, above = width or (len(row) if above < 1 else 0), above - 1
        wrong = not isinstance(row, str) and ((len(row) < width and not short) or (width and any(row[width:])))
        yield lines.taken[0][0], records.BAD_ROW if wrong else row


# Rows decoded, and bytes read, at a time; the file's own pages, and not its size, bound the rest of the memory.
BATCH_ROWS, BUFFER = 256, 2**20
EXPANDED, EXPANSION = 2**25, 100
"""Characters that a file may always give, and for each of its bytes: a dictionary may name one long string in every row."""
LEAST, LONG = 2**8, 10**6
"""Characters that a row counts at least, since a few bytes stand for any number of rows; and from which each counts four times, since the
work on so long a text is tried before it is done."""


def read_parquet(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Rows of a Parquet file; ``line`` is the 1-based row. It is decoded in the limited child first; rows beyond the time or memory of a
    file, or the text that one of its size may hold, are left out, which is said of the first. Raises DataError: a column is missing."""
    number = 0
    try:
        with open(path, "rb") as raw, pq.ParquetFile(raw) as file:
            schema = file.schema_arrow
        columns = find_columns(options, schema.names, path)
        wanted = columns.wanted or [only_one(name, schema.names, path) for name in schema.names]
        texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
        strings = [name for name in wanted if any(is_text(schema.field(name).type) for is_text in texts)]
        room = EXPANDED + EXPANSION * (size := path.stat().st_size)
        most, reason = _rows_within(path, wanted, strings, options.document_seconds, size)
        batches = _batches(str(path), wanted, strings)
        while number < most and (batch := next(batches, None)) is not None:
            for values in zip(*(_values(batch.column(column)) for column in wanted), strict=True):
                number += 1
                found = _decoded(dict(zip(wanted, values, strict=True)), columns, str(path), name, number)
                length = len(found.text) if isinstance(found, SourceDocument) else 0
                room -= max(LEAST, length if length < LONG else 4 * length)
                if room < 0:
                    yield Rejected(str(path), number, records.TOO_MUCH_MEMORY)
                    return
                yield found
        if reason:
            yield Rejected(str(path), number + 1, reason)
    except PermissionError:
        yield Rejected(str(path), 0, records.UNREADABLE)
    except (pa.ArrowException, OSError) as error:
        streams.refuse_passing(error, path)
        # What was read before the damage stays.
        yield Rejected(str(path), number + 1, records.DAMAGED_FILE)


def _rows_within(path: Path, wanted: list[str], strings: list[str], seconds: float, size: int) -> tuple[float, str]:
    """The rows of a file that can be had within the limits, and why those after them cannot; of a damaged one its reader says so."""
    asked = json.dumps([str(path), wanted, strings]).encode()
    try:
        parts, _, beyond = read_parts("parquet", asked, seconds, seconds * (1 + size / BYTES_OF_TIME))
    except ValueError:
        return inf, ""
    return (inf, "") if beyond is None else (parts[-1] if parts else 0, beyond.reason)


def parquet_rows(data: bytes) -> Iterator[int]:
    """The number of rows so far after each batch of a file that is decoded."""
    yield from accumulate(len(batch) for batch in _batches(*json.loads(data)))


def _batches(path: str, wanted: list[str], strings: list[str]) -> Iterator[pa.RecordBatch]:
    """Batches of a Parquet file. Strings stay coded by a dictionary: a few bytes a row may each name one of many megabytes."""
    with open(path, "rb") as raw, pq.ParquetFile(raw, read_dictionary=strings, buffer_size=BUFFER) as file:
        yield from file.iter_batches(batch_size=BATCH_ROWS, columns=wanted, use_threads=False)


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
        return Rejected(path, number, records.TOO_LONG)
    try:
        row = {column: value.decode("utf-8") if isinstance(value, bytes) else value for column, value in row.items()}
    except UnicodeDecodeError:
        return Rejected(path, number, records.INVALID_UTF8)
    return columns.record(row, path, name, number, number)
