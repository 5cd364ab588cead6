"""Reader of MediaWiki XML dumps, schema 0.3 to 0.11: articles as plain prose, one document a page.

expat reads the XML: it is in the standard library, decodes UTF-8 and UTF-16, knows line numbers, gives every page before the place where a
file breaks off, and is several times as fast as bzip2 decompresses. A document type is refused, so entities cannot expand.

Redirects come as such. Left out without a word are other namespaces, other content models than wikitext, disambiguation pages and lists: a
dump is mostly those. What is damaged is rejected with a reason."""

import bz2
import io
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, cast
from xml.parsers import expat

from realm.documents.limited import Beyond, read_limited
from realm.documents.links import title_key
from realm.documents.records import DAMAGED, DOCUMENT_SECONDS, UNREADABLE, Record, Redirect, Rejected, document_or_rejected
from realm.documents.streams import DECOMPRESSION_ERRORS, compression_of, open_bytes, refuse_passing
from realm.documents.wiki.names import Namespaces, is_disambiguation, is_list, is_redirect, redirect_target
from realm.documents.wiki.text import clean_wikitext
from realm.documents.workers import Workers, in_portions
from realm.errors import DataError
from realm.storage.files import is_transient


@dataclass
class WikiPage:
    """One page with its latest revision. ``line`` is that of ``<page>`` in the decompressed XML, 1-based."""

    line: int
    page_id: str = ""
    title: str = ""
    namespace: int = 0
    redirect: bool = False
    model: str = "wikitext"
    text: str = ""


@dataclass
class SiteInfo:
    """Facts of the wiki in its dump: ``dbname`` such as "simplewiki", empty if it is not said."""

    dbname: str = ""
    namespaces: dict[int, str] = field(default_factory=dict)


class BrokenXml(Exception):
    """The XML ends early or is not well-formed from ``line`` on; every page before that has been given."""

    def __init__(self, line: int):
        super().__init__(line)
        self.line = line


class PageReader:
    """Iterates over the pages; ``site`` is filled before the first one. Raises DataError: while iterating, if the XML is no MediaWiki dump
    or declares a document type; BrokenXml: while iterating, where it is truncated or damaged."""

    # Elements whose text is wanted, by the names of the element and the one around it.
    _WANTED = frozenset(
        [
            *[("siteinfo", "dbname"), ("namespaces", "namespace"), ("page", "title"), ("page", "id"), ("page", "ns")],
            *[("revision", "text"), ("revision", "timestamp"), ("revision", "model")],
        ]
    )

    def __init__(self, chunks: Iterable[bytes], path: str):
        self.site = SiteInfo()
        self._chunks = chunks
        self._path = path
        self._begun = False
        self._open: list[str] = []
        self._buffer: list[str] = []
        self._key = ""
        self._page: WikiPage | None = None
        self._explicit_namespace = False
        self._names: Namespaces | None = None
        self._revision: dict[str, str] = {}
        self._latest = ""
        self._ready: list[WikiPage] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.buffer_size = 1 << 16
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._doctype

    def __iter__(self) -> Iterator[WikiPage]:
        try:
            for chunk in self._chunks:
                self._parser.Parse(chunk, False)
                yield from self._take()
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            yield from self._take()
            if not self._begun:
                raise self._no_dump() from None
            raise BrokenXml(error.lineno) from None
        yield from self._take()

    @property
    def line(self) -> int:
        return self._parser.CurrentLineNumber

    def _take(self) -> list[WikiPage]:
        ready, self._ready = self._ready, []
        return ready

    def _no_dump(self) -> DataError:
        cure = "Name a pages-articles dump, or convert the file to JSONL"
        return DataError("this is not a MediaWiki XML dump", path=self._path, line=self._parser.CurrentLineNumber, cure=cure)

    def _doctype(self, *_: object) -> None:
        cure = "MediaWiki dumps have none: take the declaration out"
        raise DataError("a document type declaration", path=self._path, line=self._parser.CurrentLineNumber, cure=cure)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        around = self._open[-1] if self._open else ""
        if not around and name != "mediawiki":
            raise self._no_dump()
        self._begun = True
        self._open.append(name)
        if name == "page":
            self._page = WikiPage(self._parser.CurrentLineNumber)
            self._explicit_namespace, self._latest = False, ""
        elif name == "redirect" and self._page:
            self._page.redirect = True
        elif name == "revision":
            self._revision = {}
        elif (around, name) in self._WANTED:
            self._buffer = []
            self._key = attributes.get("key", "")
            self._parser.CharacterDataHandler = self._buffer.append

    def _end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        self._open.pop()
        around = self._open[-1] if self._open else ""
        if (around, name) in self._WANTED:
            self._parser.CharacterDataHandler = None
            self._store(around, name, "".join(self._buffer))
            self._buffer = []
        elif name == "revision" and self._page:
            self._keep_if_latest(self._page)
        elif name == "page" and self._page:
            self._finish(self._page)
            self._page = None

    def _store(self, around: str, name: str, value: str) -> None:
        if around == "revision":
            self._revision[name] = value
        elif around == "siteinfo":
            self.site.dbname = value.strip()
        elif around == "namespaces":
            if self._key.lstrip("-").isdigit():
                self.site.namespaces[int(self._key)] = value.strip()
        elif self._page and name == "title":
            self._page.title = value
        elif self._page and name == "id":
            self._page.page_id = value.strip()
        elif self._page and value.strip().lstrip("-").isdigit():
            self._page.namespace, self._explicit_namespace = int(value), True

    def _keep_if_latest(self, page: WikiPage) -> None:
        """Timestamps are ISO 8601 in UTC, so they compare as text; of equal ones the later in the file counts."""
        timestamp = self._revision.get("timestamp", "").strip()
        if timestamp >= self._latest:
            self._latest = timestamp
            page.text = self._revision.get("text", "")
            page.model = self._revision.get("model", "wikitext").strip()

    def _finish(self, page: WikiPage) -> None:
        """Say what old schemas leave out: the namespace before 0.6, redirects before 0.4."""
        if not self._explicit_namespace:
            self._names = self._names or Namespaces(self.site.namespaces)
            page.namespace = self._names.number_of(page.title)
        page.redirect = page.redirect or is_redirect(page.text)
        self._ready.append(page)


PIECE = 1 << 16
# The largest block of bzip2, in bytes.
_BLOCK = 900_000


class DamagedData(Exception):
    """Compressed data that is truncated or damaged; every piece before that has been given."""


def read_pieces(path: Path) -> Iterator[bytes]:
    """The file's content in pieces, decompressed by its first bytes, whatever its name.

    Raises while iterating OSError: it cannot be read; DamagedData: the compressed data breaks off."""
    with open(path, "rb") as file:
        start = file.read(8)
    match compression_of(start):
        case "bz2":
            yield from _checked_pieces(path)
        case None:
            with open(path, "rb") as file:
                while piece := file.read(PIECE):
                    yield piece
        case _:
            yield from _pieces(open_bytes(path))


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Pieces of one read of the layer below, so that nothing decoded before damage is lost."""
    try:
        with file:
            while piece := cast(io.BufferedReader, file).read1(PIECE):
                yield piece
    except DECOMPRESSION_ERRORS as error:
        if is_transient(error):
            raise
        raise DamagedData(str(error)) from error


def _checked_pieces(path: Path) -> Iterator[bytes]:
    """bzip2. A block's checksum is looked at after its bytes have come, so that the last block's worth waits."""
    held: deque[bytes] = deque()
    size = 0
    try:
        for piece in _pieces(cast(IO[bytes], bz2.BZ2File(path))):
            held.append(piece)
            size += len(piece)
            while size - len(held[0]) >= _BLOCK:
                size -= len(held[0])
                yield held.popleft()
    except DamagedData as damage:
        if isinstance(damage.__cause__, EOFError):  # truncated: a block that is not whole gives nothing, those before it are right
            yield from held
        raise
    yield from held


BROKEN_XML = "broken or truncated xml"

REDIRECT, NAMESPACE, MODEL, DISAMBIGUATION, LIST = "redirect", "other namespace", "not wikitext", "disambiguation", "list"

LONG_PAGE = 300_000
"""Characters of wikitext; the longest articles have as many. A longer one is cleaned in the limited child."""
# Characters of wikitext in one chunk: some tenths of a second of work for a worker.
CHUNK_CHARS = 1_000_000

Chunk = tuple[SiteInfo, list[WikiPage | Rejected]]


def read_wikidump(path: Path, workers: Workers | None = None, seconds: float = DOCUMENT_SECONDS) -> Iterator[Record]:
    """The articles of a dump (.xml, .xml.bz2, .xml.gz, .xml.xz) in its order, cleaned; the latest revision of each.

    An article brings the links in its prose, by the titles that they name. The id is ``simplewiki:1234``, database name and page id, so
    that several wikis fit into one corpus. ``line`` counts in the decompressed XML. ``workers`` clean; a page of ``LONG_PAGE`` may compute
    for ``seconds``. Memory: the longest page's revision, and ``CHUNK_CHARS`` a chunk for the workers and two more. Raises DataError: the
    XML is no MediaWiki dump; CorpusError: a worker process died."""
    workers = workers or Workers(1)
    portions = in_portions(_read(path), lambda found: len(getattr(found[1], "text", "")), CHUNK_CHARS)
    chunks = ((portion[-1][0], [page for _, page in portion]) for portion in portions)
    for _, records in workers.in_order(chunks, partial(_clean_chunk, str(path), seconds), partial, (_clean_chunk, str(path), seconds)):
        yield from records


def why_left_out(page: WikiPage, namespaces: Namespaces) -> str | None:
    """The first reason why a page is no article; None for an article."""
    if page.namespace != 0:
        return NAMESPACE
    if page.redirect:
        return REDIRECT
    if page.model != "wikitext":
        return MODEL
    if is_disambiguation(page.title, page.text, namespaces):
        return DISAMBIGUATION
    return LIST if is_list(page.title) else None


def iter_pages(path: Path) -> Iterator[tuple[SiteInfo, WikiPage | Rejected]]:
    """Every page of a dump with its site, whatever its namespace, and what is damaged. Raises DataError: the XML is no MediaWiki dump."""
    reader = PageReader(read_pieces(path), str(path))
    try:
        for page in reader:
            yield reader.site, page
    except DamagedData:
        yield reader.site, Rejected(str(path), reader.line, DAMAGED)
    except BrokenXml as broken:
        yield reader.site, Rejected(str(path), broken.line, BROKEN_XML)
    except OSError as error:
        refuse_passing(error, path)
        yield reader.site, Rejected(str(path), 0, UNREADABLE)


def _read(path: Path) -> Iterator[tuple[SiteInfo, WikiPage | Rejected]]:
    """The pages to clean; cheap reasons to leave a page out are checked first."""
    for site, page in iter_pages(path):
        if isinstance(page, Rejected) or (page.namespace == 0 and page.model == "wikitext"):
            yield site, page


def _clean_chunk(path: str, seconds: float, chunk: Chunk) -> list[Record]:
    site, pages = chunk
    namespaces = Namespaces(site.namespaces)
    records: list[Record] = []
    for page in pages:
        if isinstance(page, Rejected):
            records.append(page)
        elif page.redirect:
            if target := redirect_target(page.text):
                records.append(Redirect(path, page.line, title_key(page.title), title_key(target)))
        elif why_left_out(page, namespaces) is None:
            records.append(_article(page, site, namespaces, path, seconds))
    return records


def _article(page: WikiPage, site: SiteInfo, namespaces: Namespaces, path: str, seconds: float) -> Record:
    doc_id = f"{site.dbname}:{page.page_id}" if site.dbname and page.page_id else page.page_id
    found = _cleaned(page, site, namespaces, seconds)
    if isinstance(found, Beyond):
        return Rejected(path, page.line, found.reason)
    text, links = found
    record = document_or_rejected(doc_id, page.title, text, path, page.line, structured=True, headings=())
    return record if isinstance(record, Rejected) else record.linked((words, title_key(name)) for words, name in links)


def _cleaned(page: WikiPage, site: SiteInfo, namespaces: Namespaces, seconds: float) -> tuple[str, list[tuple[str, str]]] | Beyond:
    """The text and the links of a page; a long one in the limited child."""
    if len(page.text) < LONG_PAGE:
        links: list[tuple[str, str]] = []
        return clean_wikitext(page.text, namespaces, page.title, links), links
    found = read_limited("wikitext", json.dumps([page.text, page.title, list(site.namespaces.items())]).encode(), seconds)
    return found if isinstance(found, Beyond) else (found[0], [(words, name) for words, name in found[1]])
