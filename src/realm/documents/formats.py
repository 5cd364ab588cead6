"""Every format of a source in one table: how it is told and what reads it. A new one is a row here and a reader.

Statements of the user about sources, in place of the readers' looking."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from realm.documents.pictures import PICTURE_ENDINGS, PICTURE_OPENINGS
from realm.documents.records import Record
from realm.errors import ConfigError


@dataclass(frozen=True)
class Format:
    """One format: its reader as module below ``realm.documents`` and function, loaded when a source needs it; endings of its files' names,
    openings of their bytes in lower case; whether a file is one document instead of holding documents."""

    reader: str
    endings: tuple[str, ...] = ()
    openings: tuple[bytes, ...] = ()
    one_document: bool = False

    def load(self) -> Callable[..., Iterator[Record]]:
        """The function that reads one file: its path, what it is called in ids, and what the user said of sources."""
        module, function = self.reader.rsplit(".", 1)
        reader: Any = getattr(import_module(f"realm.documents.{module}"), function)
        return reader


FORMATS = {
    "jsonl": Format("sources.jsonl.read_jsonl", (".jsonl", ".ndjson", ".json"), (b"{", b"[")),
    "csv": Format("sources.tables.read_table", (".csv",)),
    "tsv": Format("sources.tables.read_tsv", (".tsv",)),
    "triples": Format("sources.triples.read_triples"),
    "parquet": Format("sources.tables.read_parquet", (".parquet",), (b"par1",)),
    "text": Format("pages.texts.read_text", (".txt", ".srt", ".vtt"), one_document=True),
    "markdown": Format("pages.texts.read_markdown", (".md", ".markdown"), one_document=True),
    "html": Format("pages.texts.read_html", (".html", ".htm", ".xhtml"), (b"<!doctype html", b"<html"), one_document=True),
    "pdf": Format("pages.pdf.read_pdf", (".pdf",), (b"%pdf",), one_document=True),
    "docx": Format("pages.word.read_docx", (".docx",), one_document=True),
    "picture": Format("pages.pictures.read_picture", PICTURE_ENDINGS, PICTURE_OPENINGS, one_document=True),
    "mediawiki": Format("wiki.dump.read_wikidump", openings=(b"<mediawiki",)),
    "xml": Format("pages.markup.read_xml", (".xml",), (b"<?xml",), one_document=True),
    "notebook": Format("pages.markup.read_notebook", (".ipynb",), one_document=True),
    "epub": Format("pages.markup.read_epub", (".epub",), one_document=True),
    "odt": Format("pages.markup.read_odt", (".odt", ".odp"), one_document=True),
    "slides": Format("pages.office.read_slides", (".pptx",), one_document=True),
    "sheets": Format("pages.office.read_sheets", (".xlsx", ".xlsm", ".xls", ".xlsb", ".ods"), one_document=True),
    "rtf": Format("pages.office.read_rtf", (".rtf",), one_document=True),
    "mail": Format("sources.mail.read_mail", (".eml", ".mbox", ".mht", ".mhtml")),
    "outlook": Format("sources.mail.read_outlook", (".msg",), one_document=True),
    "zip": Format("sources.archives.read_zip", (".zip",), one_document=True),
}
ENDINGS = {ending: name for name, format in FORMATS.items() for ending in format.endings}
PICTURES = frozenset({"picture"})
DOCUMENT_FORMATS = frozenset(name for name, format in FORMATS.items() if format.one_document)
TRIPLES_IN = frozenset({"jsonl", "csv", "tsv"})
"""The formats whose files may hold triples."""
DATA_FORMATS = frozenset(ENDINGS.values()) - DOCUMENT_FORMATS


DOCUMENT_BYTES, DOCUMENT_SECONDS = 2**24, 20.0


@dataclass(frozen=True)
class SourceOptions:
    """The reading of the sources of one build; None lets the reader look.

    Args:
        format: one of ``FORMATS``, for every source. Of a folder, only the files that look like this format are read.
        templates: file with the sentences that triples are put into.
        document_bytes, document_seconds: of a document's text in UTF-8, and of computing for it; a document beyond them is left out.
        whole_rows: whether of tables and JSON without a text column the whole row is the text. Raises ConfigError: an unknown format."""

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


LOOK = SourceOptions()
"""Everything is detected."""
