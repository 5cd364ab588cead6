"""Rows of question files of any format, the options to read them, and the questions that they become."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from realm.errors import ConfigError, DataError
from realm.models.types import Question

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
