"""Question files: rows of any format, the options to read them, the questions that they become; and readers of JSON lines and documents,
and of tables with and without a header."""

import ast
import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from realm.documents.columns import only_one
from realm.documents.records import INVALID_UTF8, Rejected
from realm.documents.sources.tables import rows_of, style_of
from realm.documents.streams import is_utf8
from realm.errors import ConfigError, DataError
from realm.models.types import Question
from realm.storage.files import json_lines, open_text

FORMATS = ("jsonl", "json", "csv", "tsv", "nq-open", "webquestions", "curatedtrec", "squad")


@dataclass(frozen=True)
class QuestionOptions:
    """Options to read question files; empty ones are detected.

    >>> QuestionOptions(format="csv", separator=";").answers_column
    ''
    """

    format: str = ""
    """jsonl, json, csv, tsv, nq-open, webquestions, curatedtrec or squad; empty: detected."""
    question_column: str = ""
    """Column or key with the question; empty: question."""
    answers_column: str = ""
    """Column or key with the answers; empty: answers or answer."""
    id_column: str = ""
    """Column or key with the id; empty: id; questions without one are numbered."""
    separator: str = ""
    """Separator of the answers in a cell of a table; empty: a cell is one answer, or a list in brackets."""
    unanswerable: bool = False
    """Keep the questions whose paragraph does not answer them; otherwise they are counted and skipped."""

    def __post_init__(self) -> None:
        if self.format and self.format not in FORMATS:
            raise ConfigError(f"no question format '{self.format}'", cure=f"Formats are: {', '.join(FORMATS)}.")


QUESTIONS_CURE = 'Each line is {"id": ..., "question": ..., "answers": [...]}.'


@dataclass(frozen=True)
class Row:
    """An unchecked row from a format's reader: any field may be of any type."""

    line: int  # 1-based, where the row begins
    id: Any  # its own, or a number counted by the reader
    question: Any
    answers: Any
    positive_ids: Any = field(default_factory=list)
    answer_type: Any = "string"
    context: Any = ""
    title: Any = ""
    starts: list[Any] = field(default_factory=list)

    @property
    def unanswerable(self) -> bool:
        """True if the row has a paragraph and an empty list of answers."""
        return bool(self.context) and self.answers == []


@dataclass(frozen=True)
class Skipped:
    """A well-formed row that is no usable question, such as one without a short answer."""

    line: int
    reason: str


Rows = Iterator[Row | Skipped]
RowReader = Callable[[Path, QuestionOptions], Rows]


def question_of(row: Row, path: Path) -> Question:
    """Question of a row. Raises DataError: no question, no answers, or a field of the wrong kind; file and line are named."""

    def wrong(problem: str, cure: str = QUESTIONS_CURE) -> DataError:
        return DataError(problem, path=path, line=row.line, cure=cure)

    if not isinstance(row.question, str) or not row.question.strip():
        raise wrong("no question")
    answers = row.answers
    if not isinstance(answers, list) or not all(isinstance(answer, str) and answer.strip() for answer in answers):
        raise wrong("no answers")
    if not answers and not row.context:
        raise wrong("no answers")
    if row.answer_type not in ("string", "regex"):
        raise wrong(f"answer_type '{row.answer_type}' is neither string nor regex")
    if not isinstance(row.positive_ids, list):
        raise wrong("positive_ids is not a list", "Give a list of document ids, or leave it out.")
    if not isinstance(row.context, str) or not isinstance(row.title, str):
        raise wrong("context or title is not a text", "Give the paragraph and its title as strings, or leave them out.")
    named, kind = tuple(map(str, row.positive_ids)), row.answer_type
    if not row.context:
        return Question(str(row.id), row.question.strip(), tuple(distinct(answers)), named, kind)
    places = []
    for start, answer in zip(row.starts, answers, strict=True) if len(row.starts) == len(answers) else ():
        if not isinstance(start, int) or start < 0 or row.context[start : start + len(answer)] != answer:
            cure = "Correct answer_start, in characters from 0, or leave it out: then every occurrence counts."
            raise wrong(f"the paragraph does not have '{answer[:40]}' at {start}", cure)
        places.append((start, start + len(answer)))
    return Question(
        str(row.id), row.question.strip(), tuple(distinct(answers)), named, kind, row.context, row.title, tuple(distinct(places))
    )


def distinct(answers: Iterable[Any]) -> list[Any]:
    """Each answer once, in order: several annotators often give the same. Invalid answers stay, for the check to find."""
    found: list[Any] = []
    for answer in answers:
        if answer not in found:
            found.append(answer)
    return found


_SPACE = re.compile(r"[\s,]*")
_DESCRIPTION = re.compile(r'\(description\s+(?:"((?:[^"\\]|\\.)*)"|([^()"]+))\)')
UNANSWERABLE = "the question has no answer in its paragraph"


def listed_objects(path: Path, key: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of a JSON document's list, or of that under its first ``key``. Raises DataError: no list, or a broken member."""
    with open_text(path) as lines:
        text = "".join(lines)
    found = re.search(r"\[" if key is None else rf'"{key}"\s*:\s*\[', text)
    if found is None:
        raise DataError(f"no list '{key}'" if key else "no list", path=path, line=1, cure="See docs/data-formats.md for the formats.")
    decoder, at, line, counted = json.JSONDecoder(), found.end(), 1, 0
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string, too
        line, counted = line + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise DataError(f"not JSON ({error})", path=path, line=line, cure="Fetch the file again.") from error
        yield line, value if isinstance(value, dict) else {}


def read_own(path: Path, options: QuestionOptions) -> Rows:
    """Read our own rows, one a line; also those of NQ-Open and EfficientQA, with answers under "answer"."""
    for line, value in json_lines(path, QUESTIONS_CURE):
        yield _own(line, line, value, options)


def read_own_list(path: Path, options: QuestionOptions) -> Rows:
    """Read the same rows from one JSON list: DPR's, and those of the factoid sets with qId, qText and answers."""
    for number, (line, value) in enumerate(listed_objects(path), 1):
        yield _own(line, number, value, options)


def read_patterns(path: Path, options: QuestionOptions) -> Rows:
    """Read CuratedTrec as ORQA wrote it: rows like NQ-Open's, answers are patterns."""
    for line, value in json_lines(path, QUESTIONS_CURE):
        yield replace(_own(line, line, value, options), answer_type="regex")


def _own(line: int, number: int, value: dict[str, Any], options: QuestionOptions) -> Row:
    def first(asked: str, *usual: str) -> Any:
        return next((value[name] for name in ([asked] if asked else usual) if name in value), None)

    answers: Any = first(options.answers_column, "answers", "answer")
    if isinstance(answers, str) and "answers" not in value:
        answers = [answers]
    starts = value.get("starts")
    if isinstance(answers, dict):  # Hugging Face's columns
        answers, starts = answers.get("text"), answers.get("answer_start")
    name = first(options.id_column, "id", "qId")
    return Row(
        line,
        number if name is None else name,
        first(options.question_column, "question", "qText"),
        answers,
        value.get("positive_ids", []),
        value.get("answer_type", "string"),
        value.get("context") or "",
        value.get("title") or "",
        starts if isinstance(starts, list) else [],
    )


def read_webquestions(path: Path, options: QuestionOptions) -> Rows:
    """Read the official WebQuestions: {"utterance", "targetValue": '(list (description "A B") (description C))', "url"}."""
    for number, (line, value) in enumerate(listed_objects(path), 1):
        target = value.get("targetValue")
        found = _DESCRIPTION.findall(target) if isinstance(target, str) else []
        answers = [re.sub(r"\\(.)", r"\1", quoted) or bare.strip() for quoted, bare in found]
        yield Row(line, number, value.get("utterance"), distinct(answers))


def read_squad(path: Path, options: QuestionOptions) -> Rows:
    """Read SQuAD's official documents, each question with its paragraph; unanswerable ones of version 2 have an empty list."""
    for line, article in listed_objects(path, "data"):
        for paragraph in article.get("paragraphs") or [{}]:
            for qa in paragraph.get("qas") or [{}]:
                answers = [answer for answer in qa.get("answers") or [] if isinstance(answer, dict)]
                context = paragraph.get("context") or ""
                if qa.get("is_impossible") and not context:
                    yield Skipped(line, UNANSWERABLE)
                    continue
                placed: list[dict[str, Any]] = [] if qa.get("is_impossible") else answers
                texts, starts = (
                    [answer.get("text") for answer in placed],
                    [answer["answer_start"] for answer in placed if "answer_start" in answer],
                )
                yield Row(line, qa.get("id"), qa.get("question"), texts, context=context, title=article.get("title") or "", starts=starts)


DELIMITERS = ",;\t|"
CURATEDTREC_COLUMNS = 4
_LIST_ERRORS = (ValueError, SyntaxError, RecursionError, MemoryError)


def read_curatedtrec(path: Path, options: QuestionOptions) -> Rows:
    """Read CuratedTrec's files: id, kind, question, pattern, tabs between them; no header, no quoting."""
    for line, cells in _cells(path, "\t", width=CURATEDTREC_COLUMNS, quoted=False):
        yield Row(line, cells[0], cells[2], [cells[3]], answer_type="regex")


def read_named(path: Path, options: QuestionOptions, delimiters: str = DELIMITERS) -> Rows:
    """Read rows under a header, by the one of ``delimiters`` that fits best. Raises DataError: a column or a cell is missing."""
    names: dict[str, int] = {}
    for number, (line, cells) in enumerate(_cells(path, style_of(path, delimiters)[0]["delimiter"])):
        if not names:
            names = _columns([cell.strip() for cell in cells], options, path, line)
            continue
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
    """Column of each field: by the user's names, else by the usual ones, in any case."""
    lower = [name.lower() for name in header]
    wanted = {
        "question": (options.question_column, ("question",)),
        "answers": (options.answers_column, ("answers", "answer")),
        "id": (options.id_column, ("id",)),
        "positive_ids": ("", ("positive_ids",)),
        "answer_type": ("", ("answer_type",)),
    }
    found: dict[str, int] = {}
    for role, (asked, usual) in wanted.items():
        if asked and asked not in header:
            cure = f"Columns are: {', '.join(header)}."
            raise DataError(f"no column '{asked}', which --column {role}={asked} names", path=path, line=line, cure=cure)
        place = header.index(asked) if asked else next((lower.index(name) for name in usual if name in lower), None)
        if place is not None:
            only_one(header[place], header, path)
            found[role] = place
        elif role in ("question", "answers"):
            cure = f"Name it with --column {role}=NAME. Columns are: {', '.join(header)}."
            raise DataError(f"no column '{role}'", path=path, line=line, cure=cure)
    return found


def _cells(path: Path, delimiter: str, *, width: int | None = None, quoted: bool = True) -> Iterator[tuple[int, list[str]]]:
    """(first line, cells) of each row that is not blank. Raises DataError: a row is broken, or has not ``width`` cells."""
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    for found in rows_of(path, {"delimiter": delimiter, "strict": quoted, "skipinitialspace": quoted, "quoting": quoting}):
        line, cells = (found.line, found.reason) if isinstance(found, Rejected) else found
        if not isinstance(cells, str) and width not in (None, len(cells)):
            cells = f"{len(cells)} columns where {width} are expected"
        elif not isinstance(cells, str) and not all(map(is_utf8, cells)):
            cells = INVALID_UTF8
        if isinstance(cells, str):
            raise DataError(cells, path=path, line=line, cure="Check the delimiters and quotes of the row, and the encoding of the file.")
        if any(cell.strip() for cell in cells):
            yield line, cells


def _answers(cell: str, separator: str, path: Path, line: int) -> list[Any]:
    """Answers in a cell: parts between separators, a list in brackets (JSON's or Python's), or one answer."""
    cell = cell.strip()
    if separator:
        return [part.strip() for part in cell.split(separator) if part.strip()]
    if not cell.startswith("["):
        return [cell] if cell else []
    parsers: tuple[Callable[[str], Any], ...] = (json.loads, ast.literal_eval)
    for parse in parsers:
        try:
            value = parse(cell)
        except _LIST_ERRORS:
            continue
        if isinstance(value, list):
            return value
    raise DataError("the answers begin with [ and are not a list", path=path, line=line, cure="Write them as JSON, or give a --separator.")
