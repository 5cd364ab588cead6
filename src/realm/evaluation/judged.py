"""Collections with relevance judgements: queries, and for each of them which documents answer it. BEIR folders and the like."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realm.errors import DataError
from realm.text.files import json_lines, open_text

QUERY_IDS = ("query-id", "query_id", "qid")
DOCUMENT_IDS = ("corpus-id", "doc_id", "did")
GRADES = ("score", "relevance")
_CURE = "A collection is a folder with queries.jsonl and qrels/test.tsv, as BEIR has them."
_TREC_COLUMNS = 4
_WORST_CODE = 4


@dataclass(frozen=True)
class Judged:
    """Queries by id, and the grade of each judged document by query and document; every query has a document with a grade above 0."""

    queries: dict[str, str]
    grades: dict[str, dict[str, int]]


def load_judged(folder: Path) -> Judged:
    """Read a folder: ``*queries.jsonl`` and ``qrels/test.tsv`` (else dev, else train), or one file ``*qrels.*`` beside it.

    Judgements are BEIR's tables with a header, TREC's four columns, or JSON lines. Cranfield's codes of relevance count from 1, the best,
    to 4 and become grades 4 to 1; its undocumented -1 is left out. Judgements of queries that the folder does not have are left out, and so
    are queries without a relevant document.

    Raises:
        DataError: a file is missing or malformed, or no query with a relevant document is left; file and line are named.
    """
    queries = dict(_queries(_only(folder, "*queries.jsonl*")))
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in _judgements(_qrels(folder)):
        if query in queries:
            grades.setdefault(query, {})[document] = grade
    grades = {query: found for query, found in grades.items() if any(grade > 0 for grade in found.values())}
    if not grades:
        raise DataError("no query with a relevant document", path=folder, cure=_CURE)
    return Judged({query: queries[query] for query in grades}, grades)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise DataError(f"{len(found)} files {pattern} where one is expected", path=folder, cure=_CURE)
    return found[0]


def _qrels(folder: Path) -> Path:
    for split in ("test", "dev", "train"):
        if (file := folder / "qrels" / f"{split}.tsv").is_file():
            return file
    return _only(folder, "*qrels.*")


def _queries(path: Path) -> Iterator[tuple[str, str]]:
    for number, row in json_lines(path, _CURE):
        name = row.get("_id", row.get("id"))
        text = row.get("text", row.get("query"))
        if name is None or not isinstance(text, str) or not text.strip():
            raise DataError("no query", path=path, line=number, cure='Each line is {"_id": ..., "text": ...}.')
        yield str(name), text.strip()


def _judgements(path: Path) -> Iterator[tuple[str, str, int]]:
    """(query, document, grade) of each row."""
    if ".jsonl" in path.suffixes:
        rows = (_json_row(row, path, number) for number, row in json_lines(path, _CURE))
        yield from filter(None, rows)
        return
    with open_text(path) as lines:
        yield from filter(None, (_table_row(line, path, number) for number, line in enumerate(lines, 1) if line.strip()))


def _table_row(line: str, path: Path, number: int) -> tuple[str, str, int] | None:
    """A row of three columns, or of TREC's four; None for the header."""
    cells = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
    if len(cells) == _TREC_COLUMNS:
        del cells[1]
    if number == 1 and cells[0] in QUERY_IDS:
        return None
    try:
        query, document, grade = cells
        return query, document, int(grade)
    except ValueError:
        raise DataError("no judgement", path=path, line=number, cure="A row is: query id, document id, grade.") from None


def _json_row(row: dict[str, Any], path: Path, number: int) -> tuple[str, str, int] | None:
    def first(names: tuple[str, ...]) -> Any:
        return next((row[name] for name in names if name in row), None)

    query, document, grade = first(QUERY_IDS), first(DOCUMENT_IDS), first(GRADES)
    if grade is None and isinstance(code := row.get("code"), int):
        if code < 1:
            return None
        grade = max(0, _WORST_CODE + 1 - code)
    if query is None or document is None or not isinstance(grade, int):
        raise DataError("no judgement", path=path, line=number, cure="A row has a query id, a document id and a whole number as its grade.")
    return str(query), str(document), grade
