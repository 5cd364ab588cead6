"""Reader of MediaWiki XML dumps: articles as plain prose, one document a page.

Redirects come as such. Left out without a word are other namespaces, other content models than wikitext, disambiguation pages and lists: a
dump is mostly those. What is damaged is rejected with a reason.
"""

import bz2
import io
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from realm.corpus.links import title_key
from realm.corpus.records import DAMAGED, UNREADABLE, Record, Redirect, Rejected, document_or_rejected
from realm.corpus.streams import DECOMPRESSION_ERRORS, compression_of, open_bytes, refuse_passing
from realm.corpus.wiki.names import Namespaces, is_disambiguation, is_list, redirect_target
from realm.corpus.wiki.pages import BrokenXml, PageReader, SiteInfo, WikiPage
from realm.corpus.wiki.text import clean_wikitext
from realm.corpus.workers import Workers, in_portions
from realm.storage.disk import says_nothing_of_the_file

PIECE = 1 << 16
# The largest block of bzip2, in bytes.
_BLOCK = 900_000


class DamagedData(Exception):
    """Compressed data that is truncated or damaged; every piece before that has been given."""


def read_pieces(path: Path, workers: int) -> Iterator[bytes]:
    """The file's content in pieces, decompressed by its first bytes, whatever its name.

    indexed_bzip2 decodes bzip2 on several cores, multistream files and single streams alike; without it the standard library does on one.

    Args:
        workers: threads that decompress bzip2.

    Raises:
        OSError: while iterating, if it cannot be read.
        DamagedData: while iterating, where the compressed data breaks off.
    """
    with open(path, "rb") as file:
        start = file.read(8)
    match compression_of(start):
        case "bz2":
            yield from _bz2_pieces(path, workers)
        case None:
            with open(path, "rb") as file:
                while piece := file.read(PIECE):
                    yield piece
        case _:
            yield from _pieces(open_bytes(path))


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """What one read of the layer below gives, so that nothing decoded before damage is lost."""
    try:
        with file:
            while piece := cast(io.BufferedReader, file).read1(PIECE):
                yield piece
    except DECOMPRESSION_ERRORS as error:
        if says_nothing_of_the_file(error):
            raise
        raise DamagedData(str(error)) from error


def _checked_pieces(path: Path) -> Iterator[bytes]:
    """bzip2 on one core. A block's checksum is looked at after its bytes have come, so that the last block's worth waits."""
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


def _bz2_pieces(path: Path, workers: int) -> Iterator[bytes]:
    try:
        import indexed_bzip2
    except ImportError:
        yield from _checked_pieces(path)
        return
    given = 0
    try:
        with cast(Any, indexed_bzip2).open(str(path), parallelization=max(1, workers)) as file:
            while piece := file.read(PIECE):
                given += len(piece)
                yield piece
        return
    except (RuntimeError, ValueError, OSError):
        pass  # it reads ahead, so it fails before all that is whole has come: the standard library gives the rest
    for piece in _checked_pieces(path):
        if given < len(piece):
            yield piece[given:]
        given = max(0, given - len(piece))


BROKEN_XML = "broken or truncated xml"

REDIRECT, NAMESPACE, MODEL, DISAMBIGUATION, LIST = "redirect", "other namespace", "not wikitext", "disambiguation", "list"

# Characters of wikitext in one chunk: some tenths of a second of work for a worker.
CHUNK_CHARS = 1_000_000

Chunk = tuple[SiteInfo, list[WikiPage | Rejected]]


def read_wikidump(path: Path, workers: Workers | None = None) -> Iterator[Record]:
    """The articles of a dump (.xml, .xml.bz2, .xml.gz, .xml.xz) in its order, cleaned; the latest revision of each.

    An article brings the links in its prose, by the titles that they name. The id is ``simplewiki:1234``, database name and page id, so
    that several wikis fit into one corpus; the page id alone where the dump has no database name. ``line`` counts in the decompressed XML.
    An article without prose is rejected as empty.
    Memory: the longest page's revision, and ``CHUNK_CHARS`` a chunk for the workers and two more.

    Args:
        workers: processes that clean, and as many threads that decompress; None does it here. The result is the same.

    Raises:
        DataError: the XML is no MediaWiki dump.
        CorpusError: a worker process died.
    """
    workers = workers or Workers(1)
    portions = in_portions(_read(path, workers.count), lambda found: len(getattr(found[1], "text", "")), CHUNK_CHARS)
    chunks = ((portion[-1][0], [page for _, page in portion]) for portion in portions)
    for _, records in workers.in_order(chunks, partial(_clean_chunk, str(path)), partial, (_clean_chunk, str(path))):
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


def iter_pages(path: Path, workers: int = 1) -> Iterator[tuple[SiteInfo, WikiPage | Rejected]]:
    """Every page of a dump with its site, whatever its namespace, and what is damaged. Raises DataError: the XML is no MediaWiki dump."""
    reader = PageReader(read_pieces(path, workers), str(path))
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


def _read(path: Path, workers: int) -> Iterator[tuple[SiteInfo, WikiPage | Rejected]]:
    """The pages to clean; cheap reasons to leave a page out are checked first."""
    for site, page in iter_pages(path, workers):
        if isinstance(page, Rejected) or (page.namespace == 0 and page.model == "wikitext"):
            yield site, page


def _clean_chunk(path: str, chunk: Chunk) -> list[Record]:
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
            records.append(_article(page, site, namespaces, path))
    return records


def _article(page: WikiPage, site: SiteInfo, namespaces: Namespaces, path: str) -> Record:
    doc_id = f"{site.dbname}:{page.page_id}" if site.dbname and page.page_id else page.page_id
    links: list[tuple[str, str]] = []
    record = document_or_rejected(doc_id, page.title, clean_wikitext(page.text, namespaces, page.title, links), path, page.line)
    return record if isinstance(record, Rejected) else record.linked((words, title_key(name)) for words, name in links)
