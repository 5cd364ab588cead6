"""Records that a reader yields: documents as their source has them, redirects, and those that cannot be used, with the reason. Every format
of a source in one table: how it is told and what reads it; a new one is a row here and a reader. Statements of the user about sources, in
place of the readers' looking."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from realm.documents.links import Links, bounded
from realm.documents.outline import Marked
from realm.documents.pictures import PICTURE_ENDINGS, PICTURE_OPENINGS
from realm.errors import ConfigError

KEY_BYTES = 16
_KEY = np.dtype(f"S{KEY_BYTES}")
# Keys that wait in an ordinary set, which takes about 100 bytes for each.
RECENT = 262_144


@dataclass(frozen=True)
class SourceDocument:
    """A document as its source has it. ``line`` is 1-based, 0 where a file is one document. ``links_cut``: it had more links than these.

    ``media`` is the picture that the document is (pictures.py), with the checksum of its bytes; both empty of a text.
    ``structured``: every line end of its text ends something, which its source told; else it may only wrap a paragraph.
    ``headings`` are those that its source marks; None where it marks none and they are looked for.
    ``folder`` is what the folders that its file lies in say of it; ``inside`` the name of the file in an archive or a message."""

    doc_id: str
    title: str
    text: str
    path: str
    line: int
    links: Links = ()
    links_cut: bool = False
    media: str = ""
    media_sum: str = ""
    structured: bool = field(default=False, compare=False)
    headings: Marked | None = None
    folder: str = ""
    inside: str = field(default="", compare=False)

    def linked(self, links: Iterable[tuple[str, int]]) -> "SourceDocument":
        """The document with its links: of each the words that carry it and the key of its target."""
        kept, cut = bounded(links)
        return replace(self, links=kept, links_cut=cut)


@dataclass(frozen=True)
class Redirect:
    """A name that stands for another: keys of both."""

    path: str
    line: int
    name: int
    target: int


@dataclass(frozen=True)
class Rejected:
    """A record that cannot be used. ``reason`` is one of a small set, so that it can be counted."""

    path: str
    line: int
    reason: str


Record = SourceDocument | Redirect | Rejected

BAD_JSON = "bad json"
REPEATED_KEY = "a key is there twice"
NOT_AN_OBJECT = "not an object"
MISSING_ID = "missing id"
EMPTY_ID = "empty id"
DUPLICATE_ID = "duplicate id"
BAD_FIELD = "id, title or text is not a string"
EMPTY_TEXT = "empty text"
INVALID_UTF8 = "invalid utf-8"
INVALID_UTF16 = "invalid utf-16"
BINARY = "binary data"
TOO_LONG = "line or document too long"
TOO_MANY_SENTENCES = "too many sentences"
TOO_SLOW = "takes too long to read"
TOO_MUCH_MEMORY = "takes too much memory to read"
TOO_MANY_EMPTY = "too many empty lines"
UNREADABLE = "unreadable file"
EMPTY_FILE = "empty file"
NO_DOCUMENTS = "file without documents"
NOT_YET, GONE = "not read yet", "deleted or moved"
DAMAGED = "damaged compressed data"
DAMAGED_FILE = "damaged file"
BAD_ROW = "bad row of a table"
REPEATED_PAGE = "page that the file has already"
BAD_HTML = "html that cannot be parsed"
ENCRYPTED = "needs a password"
UNDECODABLE = "text that cannot be decoded"
LINK_OUT = "link out of the folder"
TOO_MANY_LINKS = "more links than are kept"
MISSING_CELL = "no subject, relation or object"
REPEATED_TRIPLE = "repeated triple"
NOT_A_PICTURE = "no picture of a known kind"
DAMAGED_PICTURE = "damaged picture"
TOO_MANY_PIXELS = "picture with too many pixels"
NO_WORDS = "picture without words"
UNREAD_PICTURE = "text in pictures (pip install 'realm-qa[ocr]' reads it)"
DELETED_TEXT = "text that a tracked change deleted"
COMMENT = "comment beside the text"
ATTACHMENT = "attachment of a message"
PARTLY_USED = frozenset({TOO_MANY_LINKS, REPEATED_TRIPLE, UNREAD_PICTURE, NO_WORDS, ATTACHMENT, DELETED_TEXT, COMMENT})
"""Reasons under which something of a document is left out, and not the document; a picture that says nothing is no fault of a source."""
LINK_TO_FOLDER = "link to a folder"
UNKNOWN_KIND = "no text and of no known kind"
HIDDEN = "hidden file or folder"
CACHE = "cache or version store"
BACKUP = "editor backup"
PAGE_PART = "script or style of a saved page"
OTHER_FORMAT = "not of the format asked for"
ILLUSTRATION = "picture beside data files"
LEFT_OUT = frozenset({UNKNOWN_KIND, HIDDEN, CACHE, BACKUP, PAGE_PART, OTHER_FORMAT, ILLUSTRATION})
"""Reasons under which files of a folder are left out on purpose."""


def document_or_rejected(
    doc_id: object, title: object, text: object, path: str, line: int, *, structured: bool = False, headings: Iterable[Any] | None = None
) -> SourceDocument | Rejected:
    """Check one record's fields. An integer id is taken as its digits; a missing title is empty; headings are pairs as in ``Marked``."""
    if doc_id is None:
        return Rejected(path, line, MISSING_ID)
    if isinstance(doc_id, int) and not isinstance(doc_id, bool):
        doc_id = str(doc_id)
    title, text = title or "", "" if text is None else text
    if not (isinstance(doc_id, str) and isinstance(title, str) and isinstance(text, str)):
        return Rejected(path, line, BAD_FIELD)
    if not doc_id.strip():
        return Rejected(path, line, EMPTY_ID)
    if not text.strip():
        return Rejected(path, line, EMPTY_TEXT)
    marked = None if headings is None else tuple((level, words) for level, words in headings)
    return SourceDocument(doc_id, title, text, path, line, structured=structured, headings=marked)


class Ids(Protocol):
    """Ids that are taken: a set, ``TextKeys``, or a look-up in the corpus."""

    def __contains__(self, doc_id: str, /) -> bool: ...

    def add(self, doc_id: str, /) -> None: ...


class TextKeys:
    """A growing set of strings in 16 bytes each: sorted runs of their hashes, 32 while runs are merged, besides ``RECENT`` newest ones. Two
    strings share a hash with a chance of 2^-128 a pair."""

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._runs: list[np.ndarray] = []  # each at least twice as long as the next one

    def __contains__(self, text: str) -> bool:
        key = _text_key(text)
        return key in self._recent or any(_holds(run, key) for run in self._runs)

    def __len__(self) -> int:
        return len(self._recent) + sum(map(len, self._runs))

    def add(self, text: str) -> None:
        """Take in a string that is not in the set yet."""
        self._recent.add(_text_key(text))
        self._settle()

    def add_all(self, other: "TextKeys") -> None:
        """Take in another set, which has no string of this one."""
        self._recent |= other._recent
        for run in other._runs:
            self._put(run)
        self._settle()

    def _settle(self) -> None:
        if len(self._recent) >= RECENT:
            self._put(np.sort(np.array(list(self._recent), _KEY)))
            self._recent = set()

    def _put(self, run: np.ndarray) -> None:
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)


def _holds(run: np.ndarray, key: bytes) -> bool:
    wanted = np.array(key, _KEY)
    position = int(np.searchsorted(run, wanted))
    return position < len(run) and run[position] == wanted


def _text_key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


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
    "docx": Format("pages.word.read_docx", (".docx", ".docm", ".dotx", ".dotm"), one_document=True),
    "picture": Format("pages.pictures.read_picture", PICTURE_ENDINGS, PICTURE_OPENINGS, one_document=True),
    "mediawiki": Format("wiki.dump.read_wikidump", openings=(b"<mediawiki",)),
    "xml": Format("pages.markup.read_xml", (".xml", ".fodt", ".fods", ".fodp", ".fb2"), (b"<?xml",), one_document=True),
    "notebook": Format("pages.markup.read_notebook", (".ipynb",), one_document=True),
    "epub": Format("pages.markup.read_epub", (".epub",), one_document=True),
    "odt": Format("pages.markup.read_odt", (".odt", ".odp", ".odg", ".ott", ".otp"), one_document=True),
    "slides": Format("pages.office.read_slides", (".pptx", ".pptm", ".ppsx", ".potx"), one_document=True),
    "sheets": Format("pages.office.read_sheets", (".xlsx", ".xlsm", ".xls", ".xlsb", ".xltx", ".ods"), one_document=True),
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
