"""Statements of the user about sources, in place of the readers' looking."""

from dataclasses import asdict, dataclass
from typing import Any

from realm.documents.formats import FORMATS
from realm.errors import ConfigError

DOCUMENT_BYTES, DOCUMENT_SECONDS = 2**24, 20.0


@dataclass(frozen=True)
class SourceOptions:
    """The reading of the sources of one build; None lets the reader look.

    Args:
        format: one of ``FORMATS``, for every source. Of a folder, only the files that look like this format are read.
        id_column: column (or JSON key) with the id.
        templates: file with the sentences that triples are put into.
        document_bytes: of a document's text in UTF-8; a longer one is left out.
        document_seconds: of computing that others' code (HTML, PDF, Word) may take for one document; one that takes longer is left out.
        whole_rows: whether of tables and JSON without a text column the whole row is the text, as in folders of documents.

    Raises:
        ConfigError: an unknown format."""

    format: str | None = None
    id_column: str | None = None
    title_column: str | None = None
    text_column: str | None = None
    templates: str | None = None
    document_bytes: int = DOCUMENT_BYTES
    document_seconds: float = DOCUMENT_SECONDS
    whole_rows: bool = False

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise ConfigError(f"unknown format of sources '{self.format}'", cure=f"It is one of: {', '.join(FORMATS)}")

    @classmethod
    def of(cls, format: str, id_column: str, title_column: str, text_column: str, templates: str = "", **limits: Any) -> "SourceOptions":
        """From flags and recipes, where an empty string lets the reader look; ``limits`` are fields of documents."""
        return cls(format or None, id_column or None, title_column or None, text_column or None, templates or None, **limits)

    def said(self) -> dict[str, str]:
        """Options that a reader must know to find a record again, and is not left to look for."""
        return {name: value for name, value in asdict(self).items() if isinstance(value, str)}


LOOK = SourceOptions()
"""Everything is detected."""
