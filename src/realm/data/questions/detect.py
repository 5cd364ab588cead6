"""Which format a question file has, by its first bytes and, where they leave a choice, its name."""

import json
from pathlib import Path

from realm.corpus.streams import read_head
from realm.data.questions.options import FORMATS
from realm.data.questions.tables import PATTERN_COLUMNS, best_delimiter
from realm.errors import DataError

_NATURAL = ('"question_text"', '"document_html"', '"document_text"', '"document_tokens"')


def format_of(path: Path) -> str:
    """One of ``FORMATS``. Raises DataError: the file cannot be read, or looks like none of them."""
    head = head_of(path)
    if head.startswith("["):
        return "webquestions" if '"targetValue"' in head else "json"
    found = _of_object(head, path) if head.startswith("{") else _of_table(head, path)
    if found is None and head:
        cure = f"Name the format: {', '.join(FORMATS)}. docs/data-formats.md describes them."
        raise DataError("no known format of questions", path=path, line=1, cure=cure)
    return found or "jsonl"


def head_of(path: Path) -> str:
    """The beginning of a file without the white space before it. Raises DataError: the file cannot be read."""
    try:
        return read_head(path).decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    except FileNotFoundError:
        raise DataError("no such file", path=path, cure="Check the path.") from None
    except OSError as error:
        raise DataError(f"cannot be read ({error})", path=path, cure="Check the file and its permissions.") from error


def _of_object(head: str, path: Path) -> str:
    """A file that begins with an object: one a line, or one document. The object may be longer than what was read."""
    try:
        first = json.loads(head.split("\n", 1)[0])
    except (ValueError, RecursionError):
        first = None
    if isinstance(first, dict) and "data" not in first and "Data" not in first:
        if "question_text" in first:
            return "natural-questions"
        if "answers" in first or "answer" not in first:
            return "jsonl"
        return "curatedtrec" if "curatedtrec" in path.name.lower() else "nq-open"
    if '"paragraphs"' in head:
        return "squad"
    if '"Data"' in head or '"QuestionId"' in head:
        return "triviaqa"
    return "natural-questions" if any(key in head for key in _NATURAL) else "jsonl"


def _of_table(head: str, path: Path) -> str | None:
    first = head.split("\n", 1)[0].rstrip("\r")
    tabbed = first.split("\t")
    if len(tabbed) == 2 and tabbed[1].lstrip(' "').startswith("["):
        return "dpr"
    delimiter = best_delimiter(first)
    if "question" in (cell.strip().strip('"').lower() for cell in first.split(delimiter)):
        return "tsv" if delimiter == "\t" else "csv"
    if len(tabbed) == PATTERN_COLUMNS and any(character.isdigit() for character in tabbed[0]):
        return "curatedtrec"
    named = {suffix.lower() for suffix in path.suffixes} & {".csv", ".tsv"}
    return min(named)[1:] if named else None
