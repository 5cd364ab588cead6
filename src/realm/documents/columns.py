"""The columns of id, title and text in a table, and one row as a record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realm.documents import streams
from realm.documents.options import SourceOptions
from realm.documents.records import TOO_LONG, Record, Rejected, document_or_rejected
from realm.errors import DataError

ID_NAMES = ("id", "_id")
TITLE_NAMES = ("title",)
TEXT_NAMES = ("text", "contents")
ROLES_OF_TRIPLES = {
    "subject": ("subject", "head"),
    "relation": ("relation", "predicate", "property"),
    "object": ("object", "value", "tail"),
}
"""Names of the columns of a triple, in any letter case."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns. Without an id column rows are named by file and row, without a title column titles are empty."""

    id: str | None
    title: str | None
    text: str

    @property
    def wanted(self) -> list[str]:
        """The columns that are read, in the order of the table's roles: text first."""
        return list(dict.fromkeys(name for name in (self.text, self.id, self.title) if name is not None))

    def record(self, row: Mapping[str, Any], source: str, name: str, number: int, line: int) -> Record:
        """One row as a document, or why it is none.

        Args:
            name: what the file is called in ids that are made here.
            number: 1-based row, for such an id.
        """
        doc_id = f"{name}#{number}" if self.id is None else row.get(self.id)
        text = row.get(self.text)
        if isinstance(text, str) and len(text) > streams.LINE_LIMIT:
            return Rejected(source, line, TOO_LONG)
        return document_or_rejected(doc_id, row.get(self.title) if self.title else None, text, source, line)


def triple_columns(names: Sequence[str]) -> dict[str, str] | None:
    """The column of each role of a triple; None where one is missing."""
    by_name = {name.strip().lower(): name for name in reversed(names)}
    found = {role: next((by_name[usual] for usual in known if usual in by_name), None) for role, known in ROLES_OF_TRIPLES.items()}
    columns = {role: name for role, name in found.items() if name is not None}
    return columns if len(columns) == len(ROLES_OF_TRIPLES) else None


def find_columns(options: SourceOptions, names: Sequence[str], source: Path) -> Columns:
    """Columns by the user's names, else by the usual ones.

    Raises:
        DataError: a column that was asked for is not there, or none is known to hold the text. The message lists what is there.
    """
    there = f"Columns are: {', '.join(map(str, names)) or 'none'}"

    def find(asked: str | None, role: str, usual: tuple[str, ...]) -> str | None:
        if asked is None:
            return next((name for name in usual if name in names), None)
        if asked not in names:
            raise DataError(f"no column '{asked}', which --column {role}={asked} names", path=source, cure=there)
        return asked

    text = find(options.text_column, "text", TEXT_NAMES)
    if text is None:
        raise DataError("no column 'text'", path=source, cure=f"Name the column of the text: --column text=NAME. {there}")
    return Columns(find(options.id_column, "id", ID_NAMES), find(options.title_column, "title", TITLE_NAMES), text)
