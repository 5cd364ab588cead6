"""Question files of any format as checked questions, one file or several as one set."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from realm.documents.sources.tables import style_of
from realm.documents.streams import read_head
from realm.errors import ConfigError, DataError
from realm.evaluation.questions import rows
from realm.evaluation.questions.rows import QuestionOptions, RowReader, Skipped, question_of
from realm.models.types import Question
from realm.storage.files import json_value, publish_file
from realm.text.matching.answers import normalize_answer


def format_of(path: Path) -> str:
    """Format of a file, of ``FORMATS``. Raises DataError: the file cannot be read, or has none of them."""
    head = head_of(path)
    if head.startswith("["):
        return "webquestions" if '"targetValue"' in head else "json"
    found = _of_object(head, path) if head.startswith("{") else _of_table(head, path)
    if found is None and head:
        cure = f"Name the format: {', '.join(rows.FORMATS)}. docs/data-formats.md describes them."
        raise DataError("not a known format of questions", path=path, line=1, cure=cure)
    return found or "jsonl"


def head_of(path: Path) -> str:
    """Beginning of a file without leading white space. Raises DataError: the file cannot be read."""
    try:
        return read_head(path).decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    except FileNotFoundError:
        raise DataError("no such file", path=path, cure="Check the path.") from None
    except OSError as error:
        raise DataError(f"cannot be read ({error})", path=path, cure="Check the file and its permissions.") from error


def _of_object(head: str, path: Path) -> str:
    """Format of a file that begins with an object, one a line, or one document; the object may exceed ``head``."""
    try:
        first = json_value(head.split("\n", 1)[0])
    except (ValueError, RecursionError):
        first = None
    if isinstance(first, dict) and "data" not in first:
        if "answers" in first or "answer" not in first:
            return "jsonl"
        return "curatedtrec" if "curatedtrec" in path.name.lower() else "nq-open"
    return "squad" if '"paragraphs"' in head else "jsonl"


def _of_table(head: str, path: Path) -> str | None:
    first = head.split("\n", 1)[0].rstrip("\r")
    tabbed = first.split("\t")
    delimiter = style_of(path, rows.DELIMITERS)[0]["delimiter"]
    if "question" in (cell.strip().strip('"').lower() for cell in first.split(delimiter)):
        return "tsv" if delimiter == "\t" else "csv"
    if len(tabbed) == rows.CURATEDTREC_COLUMNS and any(character.isdigit() for character in tabbed[0]):
        return "curatedtrec"
    named = {suffix.lower() for suffix in path.suffixes} & {".csv", ".tsv"}
    return min(named)[1:] if named else None


@dataclass(frozen=True)
class QuestionFile:
    """Contents of a question file.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "questions.csv"
    >>> _ = file.write_text("question,answers" + chr(10) + "Who built it?,Eiffel")
    >>> read_questions(file).questions[0].answers
    ('Eiffel',)
    """

    path: Path
    format: str
    questions: list[Question]
    lines: list[int]  # start of each question
    skipped: Counter[str]  # unusable rows by reason


READERS: Mapping[str, RowReader] = {
    "jsonl": rows.read_own,
    "json": rows.read_own_list,
    "csv": rows.read_named,
    "tsv": partial(rows.read_named, delimiters="\t"),
    "nq-open": rows.read_own,
    "webquestions": rows.read_webquestions,
    "curatedtrec": lambda path, options: (rows.read_patterns if head_of(path)[:1] == "{" else rows.read_curatedtrec)(path, options),
    "squad": rows.read_squad,
}


def read_questions(path: Path, options: QuestionOptions | None = None) -> QuestionFile:
    """Read every question of a file, plain or compressed (.gz, .xz). Raises DataError, with file and line: a malformed row, or none."""
    options = options or QuestionOptions()
    format = options.format or format_of(path)
    found = QuestionFile(path, format, [], [], Counter())
    seen: set[str] = set()
    for row in READERS[format](path, options):
        if isinstance(row, Skipped):
            found.skipped[row.reason] += 1
            continue
        if row.unanswerable and not options.unanswerable:
            found.skipped[rows.UNANSWERABLE] += 1
            continue
        question = question_of(row, path)
        if question.id in seen:
            raise DataError(f"the id '{question.id}' occurs twice", path=path, line=row.line, cure="Give every question its own id.")
        seen.add(question.id)
        found.questions.append(question)
        found.lines.append(row.line)
    if not found.questions:
        reasons = ", ".join(f"{count} rows: {reason}" for reason, count in found.skipped.items())
        raise DataError(f"no questions ({reasons})" if reasons else "no questions", path=path, cure=rows.QUESTIONS_CURE)
    return found


def load_questions(path: Path, options: QuestionOptions | None = None) -> list[Question]:
    """The questions of :func:`read_questions`."""
    return read_questions(path, options).questions


def write_questions(path: Path, questions: Sequence[Question]) -> None:
    """Write questions as JSON lines that :func:`load_questions` reads to the same questions."""
    with publish_file(path) as file:
        for question in questions:
            row: dict[str, Any] = {"id": question.id, "question": question.text, "answers": list(question.answers)}
            row |= {"positive_ids": list(question.positive_ids)} if question.positive_ids else {}
            row |= {"answer_type": question.answer_type} if question.answer_type != "string" else {}
            row |= {"context": question.context} if question.context else {}
            row |= {"title": question.title} if question.title else {}
            if question.places:
                marked = [question.context[start:end] for start, end in question.places]
                row |= {"answers": marked, "starts": [start for start, _ in question.places]}
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"))


Datasets = Mapping[str, list[Question]]  # questions by the name of their dataset


def load_datasets(files: Sequence[str | Path], options: QuestionOptions | None = None) -> dict[str, list[Question]]:
    """Questions of each file under its name. Raises ConfigError: a file is named twice. Raises DataError: one cannot be read."""
    paths = [Path(file) for file in files]
    return {name: load_questions(path, options) for name, path in zip(dataset_names(paths), paths, strict=True)}


def pooled(datasets: Datasets) -> list[Question]:
    """All questions, dataset after dataset."""
    return [question for questions in datasets.values() for question in questions]


def parts(datasets: Datasets) -> dict[str, slice]:
    """Slice of each dataset among the pooled questions."""
    found, start = {}, 0
    for name, questions in datasets.items():
        found[name] = slice(start, start + len(questions))
        start += len(questions)
    return found


def shared(some: Sequence[Question], others: Sequence[Question]) -> list[Question]:
    """Questions of ``some`` with the normalised words or the id of one of ``others``; mere numbers, counted in each file, are no ids."""
    texts = {normalize_answer(question.text) for question in others}
    ids = {question.id for question in others if not question.id.isdigit()}
    return [question for question in some if question.id in ids or normalize_answer(question.text) in texts]


def dataset_names(files: Sequence[Path]) -> list[str]:
    """A short name for each dataset: the file's, with its folder's if two are alike. Raises ConfigError: a file is named twice."""
    resolved = Counter(path.resolve() for path in files)
    if twice := next((path for path, count in resolved.items() if count > 1), None):
        raise ConfigError(f"{twice} is named twice", cure="Name each file once.")
    short = [path.name.split(".")[0] or path.name for path in files]
    longer = [f"{path.resolve().parent.name}-{name}" for path, name in zip(files, short, strict=True)]
    for names in (short, longer):
        if len(set(names)) == len(names):
            return names
    return [f"{name}-{number}" for number, name in enumerate(longer, 1)]
