"""Reader of MediaWiki XML dumps: articles as plain prose, one document a page.

Left out without a word are redirects, other namespaces, other content models than wikitext, disambiguation pages and lists: a dump
is mostly those. What is damaged is rejected with a reason.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from realm.corpus.records import DAMAGED, UNREADABLE, Record, Rejected, document_or_rejected
from realm.corpus.wiki.decompress import DamagedData, read_pieces
from realm.corpus.wiki.names import Namespaces, is_disambiguation, is_list
from realm.corpus.wiki.pages import BrokenXml, PageReader, SiteInfo, WikiPage
from realm.corpus.wiki.text import clean_wikitext
from realm.corpus.workers import Workers, in_portions

BROKEN_XML = "broken or truncated xml"

REDIRECT, NAMESPACE, MODEL, DISAMBIGUATION, LIST = "redirect", "other namespace", "not wikitext", "disambiguation", "list"

# Characters of wikitext in one chunk: some tenths of a second of work for a worker.
CHUNK_CHARS = 1_000_000

Chunk = tuple[SiteInfo, list[WikiPage | Rejected]]


def read_wikidump(path: Path, workers: Workers | None = None) -> Iterator[Record]:
    """The articles of a dump (.xml, .xml.bz2, .xml.gz, .xml.xz) in its order, cleaned; the latest revision of each.

    The id is ``simplewiki:1234``, database name and page id, so that several wikis fit into one corpus; the page id alone where the
    dump has no database name. ``line`` counts in the decompressed XML. An article without prose is rejected as empty.
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
    except OSError:
        yield reader.site, Rejected(str(path), 0, UNREADABLE)


def _read(path: Path, workers: int) -> Iterator[tuple[SiteInfo, WikiPage | Rejected]]:
    """What is worth cleaning: the cheap reasons to leave a page out come first."""
    for site, page in iter_pages(path, workers):
        if isinstance(page, Rejected) or (page.namespace == 0 and not page.redirect and page.model == "wikitext"):
            yield site, page


def _clean_chunk(path: str, chunk: Chunk) -> list[Record]:
    site, pages = chunk
    namespaces = Namespaces(site.namespaces)
    records: list[Record] = []
    for page in pages:
        if isinstance(page, Rejected):
            records.append(page)
        elif why_left_out(page, namespaces) is None:
            doc_id = f"{site.dbname}:{page.page_id}" if site.dbname and page.page_id else page.page_id
            records.append(document_or_rejected(doc_id, page.title, clean_wikitext(page.text, namespaces, page.title), path, page.line))
    return records
