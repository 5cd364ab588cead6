"""Pages of a MediaWiki XML export, schema 0.3 to 0.11, one at a time, from a stream of bytes.

expat reads it: it is in the standard library, decodes UTF-8 and UTF-16, knows line numbers, gives every page before the place where a
file breaks off, and is several times as fast as bzip2 decompresses. A document type is refused, so entities cannot expand.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from realm.corpus.wiki.names import Namespaces, is_redirect
from realm.errors import DataError


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
    """What the dump says of its wiki: ``dbname`` such as "simplewiki", empty if it is not said."""

    dbname: str = ""
    namespaces: dict[int, str] = field(default_factory=dict)


class BrokenXml(Exception):
    """The XML ends early or is not well-formed from ``line`` on; every page before that has been given."""

    def __init__(self, line: int):
        super().__init__(line)
        self.line = line


class PageReader:
    """Iterates over the pages; ``site`` is filled before the first one.

    Raises:
        DataError: while iterating, if the XML is no MediaWiki dump or declares a document type.
        BrokenXml: while iterating, where it is truncated or damaged.
    """

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
