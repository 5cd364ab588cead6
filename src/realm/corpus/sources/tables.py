"""CSV and TSV with a header, DPR's passages among them."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm.corpus import streams
from realm.corpus.records import BAD_ROW, INVALID_UTF8, TOO_LONG, Record, Rejected
from realm.corpus.sources.columns import Columns, find_columns
from realm.corpus.sources.options import SourceOptions
from realm.errors import DataError

Style = dict[str, Any]
"""Arguments of ``csv.reader``."""

_STYLES: tuple[Style, ...] = ({"strict": True, "quoting": csv.QUOTE_MINIMAL}, {"strict": True, "quoting": csv.QUOTE_NONE})
"""Fields in quotes where they need it, or quotes that are part of the text."""


def read_csv(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Rows of a table whose first line names the columns; the delimiter is the one that gives that line the most columns."""
    yield from _read_table(path, name, options, ",;\t|")


def read_tsv(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Rows of a table with tabs between its columns and a first line that names them."""
    yield from _read_table(path, name, options, "\t")


def _read_table(path: Path, name: str, options: SourceOptions, delimiters: str) -> Iterator[Record]:
    """Records; ``line`` is the physical line where a row starts, the number in a made id counts rows after the header.

    Raises:
        DataError: a column is missing.
    """
    csv.field_size_limit(streams.LINE_LIMIT)
    feed = _Feed(path)
    rows = feed.rows(_style_of(path, delimiters))
    header: list[str] = []
    columns, number = None, 0
    for line, row in rows:
        yield from feed.take_rejected()
        if columns is None:
            if row and isinstance(row, list):
                header = row
                columns = find_columns(options, header, path)
            elif row:
                raise DataError(
                    "the first line is no header",
                    path=path,
                    line=line,
                    cure="It must name the columns, such as id,title,text, and end as lines do",
                )
        elif row != []:
            number += 1
            yield _record(row, header, columns, str(path), name, number, line)
    yield from feed.take_rejected()


def _style_of(path: Path, delimiters: str) -> Style:
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


class _Feed:
    """Lines of a file as a csv reader wants them; knows where each row started and keeps the lines that cannot be had."""

    def __init__(self, path: Path):
        self._path = path
        self._rejected: list[Rejected] = []
        self._first = 0

    def rows(self, style: Style) -> Iterator[tuple[int, list[str] | str]]:
        """(line, fields) of each row, or (line, reason) of a broken one. A byte that is not UTF-8 becomes a lone surrogate."""
        reader = csv.reader(self._lines(), **style)
        while True:
            self._first = 0
            row: list[str] | str
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                row = TOO_LONG if "field limit" in str(error) else BAD_ROW
            yield self._first, row

    def take_rejected(self) -> list[Rejected]:
        """What was rejected since the last call."""
        taken, self._rejected = self._rejected, []
        return taken

    def _lines(self) -> Iterator[str]:
        for found in streams.numbered_lines(self._path):
            if isinstance(found, Rejected):
                self._rejected.append(found)
                continue
            number, line = found
            self._first = self._first or number
            yield line.decode("utf-8", "surrogateescape")


def _record(row: list[str] | str, header: list[str], columns: Columns, path: str, name: str, number: int, line: int) -> Record:
    if isinstance(row, str):
        return Rejected(path, line, row)
    if len(row) < len(header) or any(row[len(header) :]):
        return Rejected(path, line, BAD_ROW)
    values = dict(zip(header, row, strict=False))
    if not all(streams.is_utf8(values[column]) for column in columns.wanted):
        return Rejected(path, line, INVALID_UTF8)
    return columns.record(values, path, name, number, line)
