"""Questions in tables: CSV and TSV with a header, DPR's and CuratedTrec's TSV without one."""

import ast
import csv
import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from realm.errors import DataError
from realm.evaluation.questions.rows import QuestionOptions, Row, Rows
from realm.text.files import open_text

DELIMITERS = ",;\t|"
LONGEST_CELL = 2**24
PATTERN_COLUMNS = 4
_UNLISTED = (ValueError, SyntaxError, RecursionError, MemoryError)


def read_dpr(path: Path, options: QuestionOptions) -> Rows:
    """DPR's test files: the question, a tab, a list of answers as Python writes it; no header."""
    for number, (line, cells) in enumerate(_cells(path, "\t", quoted=True), 1):
        _require_width(cells, 2, path, line)
        if not cells[1].lstrip().startswith("["):
            raise DataError("not a list of answers", path=path, line=line, cure="The second column is a list, such as ['A', 'B'].")
        yield Row(line, number, cells[0], _answers(cells[1], options.separator, path, line))


def read_curatedtrec(path: Path, options: QuestionOptions) -> Rows:
    """CuratedTrec's files: id, kind, question, pattern, tabs between them; no header, no quoting."""
    for line, cells in _cells(path, "\t", quoted=False):
        _require_width(cells, PATTERN_COLUMNS, path, line)
        yield Row(line, cells[0], cells[2], [cells[3]], answer_type="regex")


def best_delimiter(line: str) -> str:
    """Of the usual delimiters the one that a header holds most often."""
    return max(DELIMITERS, key=line.count)


def read_named(path: Path, options: QuestionOptions, delimiter: str | None = None) -> Rows:
    """Rows under a header that names the columns; without a ``delimiter`` the one that gives it the most.

    Raises:
        DataError: a column is missing (the message lists what is there), or a row has more or fewer cells than the header.
    """
    header: list[str] = []
    names: dict[str, int] = {}
    for number, (line, cells) in enumerate(_cells(path, delimiter, quoted=True)):
        if not header:
            header = [cell.strip() for cell in cells]
            names = _columns(header, options, path, line)
            continue
        _require_width(cells, len(header), path, line)
        gold = _answers(cells[names["positive_ids"]], options.separator, path, line) if "positive_ids" in names else []
        yield Row(
            line,
            cells[names["id"]] if "id" in names else number,
            cells[names["question"]],
            _answers(cells[names["answers"]], options.separator, path, line),
            gold,
            (cells[names["answer_type"]] or "string") if "answer_type" in names else "string",
        )


def _columns(header: list[str], options: QuestionOptions, path: Path, line: int) -> dict[str, int]:
    """Where each field stands: by the user's names, else by the usual ones, in any case."""
    lower = [name.lower() for name in header]
    wanted = {
        "question": (options.question_column, ("question",)),
        "answers": (options.answers_column, ("answers", "answer")),
        "id": (options.id_column, ("id",)),
        "positive_ids": ("", ("positive_ids",)),
        "answer_type": ("", ("answer_type",)),
    }
    found: dict[str, int] = {}
    for field, (asked, usual) in wanted.items():
        if asked and asked not in header:
            cure = f"Columns are: {', '.join(header)}."
            raise DataError(f"no column '{asked}', which --column {field}={asked} names", path=path, line=line, cure=cure)
        place = header.index(asked) if asked else next((lower.index(name) for name in usual if name in lower), None)
        if place is not None:
            found[field] = place
        elif field in ("question", "answers"):
            cure = f"Name it with --column {field}=NAME. Columns are: {', '.join(header)}."
            raise DataError(f"no column '{field}'", path=path, line=line, cure=cure)
    return found


def _cells(path: Path, delimiter: str | None, *, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """(line where it begins, cells) of each row that is not blank.

    Raises:
        DataError: a row that the quoting breaks, or a cell of more than ``LONGEST_CELL`` characters.
    """
    csv.field_size_limit(LONGEST_CELL)
    with open_text(path) as lines:
        first = next(lines, "")
        style: dict[str, Any] = {"delimiter": delimiter or best_delimiter(first), "strict": quoted}
        reader = csv.reader(chain([first], lines), quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, **style)
        while True:
            begin = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise DataError(f"not a row of a table ({error})", path=path, line=begin, cure="Check its quotes.") from error
            if any(cell.strip() for cell in cells):
                yield begin, cells


def _require_width(cells: list[str], width: int, path: Path, line: int) -> None:
    if len(cells) != width:
        raise DataError(
            f"{len(cells)} columns where {width} are expected", path=path, line=line, cure="Check the delimiters and quotes of the row."
        )


def _answers(cell: str, separator: str, path: Path, line: int) -> list[Any]:
    """The answers of a cell: parts between separators, a list in brackets (JSON's or Python's), or the one that it is."""
    cell = cell.strip()
    if separator:
        return [part.strip() for part in cell.split(separator) if part.strip()]
    if not cell.startswith("["):
        return [cell] if cell else []
    parsers: tuple[Callable[[str], Any], ...] = (json.loads, ast.literal_eval)
    for parse in parsers:
        try:
            value = parse(cell)
        except _UNLISTED:
            continue
        if isinstance(value, list):
            return value
    raise DataError("the answers begin with [ and are not a list", path=path, line=line, cure="Write them as JSON, or give a --separator.")
