"""Every format of a source in one table: how it is told and what reads it. A new one is a row here and a reader."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from realm.documents.pictures import PICTURE_ENDINGS, PICTURE_OPENINGS
from realm.documents.records import Record


@dataclass(frozen=True)
class Format:
    """One format: its reader as module below ``realm.documents`` and function, loaded when a source needs it (none of what only a folder
    has); endings of its files' names, openings of their bytes in lower case; whether a file is one document instead of holding
    documents."""

    reader: str = ""
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
    "text": Format("pages.texts.read_text", (".txt",), one_document=True),
    "markdown": Format("pages.texts.read_markdown", (".md", ".markdown"), one_document=True),
    "html": Format("pages.texts.read_html", (".html", ".htm", ".xhtml"), (b"<!doctype html", b"<html"), one_document=True),
    "pdf": Format("pages.pdf.read_pdf", (".pdf",), (b"%pdf",), one_document=True),
    "docx": Format("pages.word.read_docx", (".docx",), one_document=True),
    "picture": Format("pages.pictures.read_picture", PICTURE_ENDINGS, PICTURE_OPENINGS, one_document=True),
    "beir": Format(),
    "datasets": Format(),
    "warc": Format("sources.warc.read_warc", (".warc",), (b"warc/",)),
    "mediawiki": Format("wiki.dump.read_wikidump", openings=(b"<mediawiki",)),
    "xml": Format("pages.markup.read_xml", (".xml",), (b"<?xml",), one_document=True),
    "notebook": Format("pages.markup.read_notebook", (".ipynb",), one_document=True),
    "epub": Format("pages.markup.read_epub", (".epub",), one_document=True),
    "odt": Format("pages.markup.read_odt", (".odt",), one_document=True),
    "mail": Format("pages.mail.read_mail", (".eml", ".mbox")),
}
ENDINGS = {ending: name for name, format in FORMATS.items() for ending in format.endings}
PICTURES = frozenset({"picture"})
DOCUMENT_FORMATS = frozenset(name for name, format in FORMATS.items() if format.one_document)
TRIPLES_IN = frozenset({"jsonl", "csv", "tsv"})
"""The formats whose files may hold triples."""
DATA_FORMATS = frozenset(ENDINGS.values()) - DOCUMENT_FORMATS
