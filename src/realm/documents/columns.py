"""The columns of a table for id, title and text; and one row as a record."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realm.documents import streams
from realm.documents.records import TOO_LONG, Record, Rejected, SourceOptions, document_or_rejected
from realm.errors import DataError
from realm.text.lines import joined_lines

ID_NAMES = ("id", "_id")
TITLE_NAMES = ("title",)
TEXT_NAMES = ("text", "contents")
ROLES_OF_TRIPLES = {
    "subject": ("subject", "head"),
    "relation": ("relation", "predicate", "property"),
    "object": ("object", "value", "tail"),
}
"""The parts of a triple, and the names that each column may have, in any letter case."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns. Without an id column rows are named by file and row, without a title column titles are empty; without a text
    column the whole row is the text, each value behind the name of its column; with ``others`` the other columns follow the text so."""

    id: str | None
    title: str | None
    text: str | None
    others: bool = False

    @property
    def wanted(self) -> list[str]:
        """The columns that are read, in the order of the table's roles, text first; empty: all."""
        names = () if self.others else (self.text, self.id, self.title)
        return list(dict.fromkeys(name for name in names if name is not None))

    def record(self, row: Mapping[str, Any], source: str, name: str, number: int, line: int) -> Record:
        """One row as a document, or why it is none. An id that is made here has ``name``, the file's, and the row's 1-based ``number``."""
        doc_id = f"{name}#{number}" if self.id is None else row.get(self.id)
        text = "\n".join(_named_values("", row)) if self.text is None else row.get(self.text)
        if self.others and isinstance(text, str):
            others = {name: value for name, value in row.items() if name not in (self.text, self.id, self.title)}
            text = "\n".join([text, *_named_values("", others)])
        if isinstance(text, str) and len(text) > streams.LINE_LIMIT:
            return Rejected(source, line, TOO_LONG)
        title, whole = row.get(self.title) if self.title else None, self.text is None
        return document_or_rejected(doc_id, title, text, source, line, structured=whole, headings=() if whole else None)


def _named_values(name: str, value: Any) -> Iterator[str]:
    """Every value of a row in a line of its own, behind its name; of what is nested, behind all names."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _named_values(f"{name} {key}".strip(), inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named_values(name, inner)
    elif value is not None and (said := joined_lines(str(value).strip())):
        yield f"{name}: {said}" if name else said


def triple_columns(names: Sequence[str]) -> dict[str, str] | None:
    """The column of each role of a triple; None where one is missing."""
    by_name = {name.strip().lower(): name for name in reversed(names)}
    found = {role: next((by_name[usual] for usual in known if usual in by_name), None) for role, known in ROLES_OF_TRIPLES.items()}
    columns = {role: name for role, name in found.items() if name is not None}
    return columns if len(columns) == len(ROLES_OF_TRIPLES) else None


def only_one(name: str, names: Sequence[str], source: Path) -> str:
    """The name of a column, if it is that of one. Raises DataError: it is that of two."""
    if [str(other).strip() for other in names].count(name.strip()) > 1:
        raise DataError(f"two columns are called '{name.strip()}'", path=source, cure="Give each column a name of its own")
    return name


def find_columns(options: SourceOptions, names: Sequence[str], source: Path) -> Columns:
    """Columns by the user's names, else by the usual ones; white space around a name does not count. Raises DataError: a column that was
    asked for is not there, or there twice, or none is known to hold the text. Lists what is there."""
    there = f"Columns are: {', '.join(map(str, names)) or 'none'}"
    by_name = {str(name).strip().lower(): name for name in reversed(names)} | {str(name).strip(): name for name in names}

    def find(asked: str | None, role: str, usual: tuple[str, ...]) -> str | None:
        found = next((by_name[name.strip()] for name in (usual if asked is None else (asked,)) if name.strip() in by_name), None)
        if found is None and asked is not None:
            raise DataError(f"no column '{asked}', which --column {role}={asked} names", path=source, cure=there)
        return found if found is None else only_one(found, names, source)

    text = find(options.text_column, "text", TEXT_NAMES)
    if text is None and options.whole_rows:
        return Columns(None, None, None)
    if text is None:
        raise DataError("no column 'text'", path=source, cure=f"Name the column of the text: --column text=NAME. {there}")
    return Columns(find(options.id_column, "id", ID_NAMES), find(options.title_column, "title", TITLE_NAMES), text)
