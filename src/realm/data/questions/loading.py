"""A question file of any format as checked questions."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from realm.data.questions import json_rows, natural_questions, tables
from realm.data.questions.detect import format_of, head_of
from realm.data.questions.options import QuestionOptions
from realm.data.questions.rows import CURE, Reader, Rows, Skipped, question_of
from realm.data.types import Question
from realm.errors import DataError


@dataclass(frozen=True)
class QuestionFile:
    """What a file holds.

    Attributes:
        lines: where each of them begins.
        raw: each question's text exactly as it stands there: what splits are made of.
        skipped: rows that are no questions of ours, by reason.
    """

    path: Path
    format: str
    questions: list[Question]
    lines: list[int]
    raw: list[str]
    skipped: Counter[str]


def _read_curatedtrec(path: Path, options: QuestionOptions) -> Rows:
    """Published as a table; ORQA wrote it as JSON lines."""
    return (json_rows.read_patterns if head_of(path).startswith("{") else tables.read_curatedtrec)(path, options)


READERS: Mapping[str, Reader] = {
    "jsonl": json_rows.read_own,
    "json": json_rows.read_own_list,
    "csv": tables.read_named,
    "tsv": partial(tables.read_named, delimiter="\t"),
    "nq-open": json_rows.read_own,
    "natural-questions": natural_questions.read_natural_questions,
    "webquestions": json_rows.read_webquestions,
    "curatedtrec": _read_curatedtrec,
    "triviaqa": json_rows.read_triviaqa,
    "squad": json_rows.read_squad,
    "dpr": tables.read_dpr,
}


def read_questions(path: Path, options: QuestionOptions | None = None) -> QuestionFile:
    """Every question of a file, plain or compressed (.gz, .xz).

    Raises:
        DataError: the file is missing or has no question, or a row is malformed or an id stands twice; the message names file and line.
    """
    options = options or QuestionOptions()
    format = options.format or format_of(path)
    found = QuestionFile(path, format, [], [], [], Counter())
    seen: set[str] = set()
    for row in READERS[format](path, options):
        if isinstance(row, Skipped):
            found.skipped[row.reason] += 1
            continue
        question = question_of(row, path)
        if question.id in seen:
            raise DataError(f"the id '{question.id}' stands twice", path=path, line=row.line, cure="Give every question its own id.")
        seen.add(question.id)
        found.questions.append(question)
        found.lines.append(row.line)
        found.raw.append(row.question)
    if not found.questions:
        reasons = ", ".join(f"{count} rows: {reason}" for reason, count in found.skipped.items())
        raise DataError(f"no questions ({reasons})" if reasons else "no questions", path=path, cure=CURE)
    return found


def load_questions(path: Path, options: QuestionOptions | None = None) -> list[Question]:
    """The questions of :func:`read_questions`."""
    return read_questions(path, options).questions
