"""HTML to text: the main text of a page by trafilatura (extra ``html``)."""

import codecs
import logging
from typing import Any

import regex

from realm.corpus import streams
from realm.corpus.records import BAD_HTML, BINARY, INVALID_UTF8, Record, Rejected, document_or_rejected
from realm.errors import MissingExtra

_META_CHARSET = regex.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)""", regex.IGNORECASE)
_META_WITHIN = 4096


def html_record(data: bytes, charset: str | None, doc_id: str, title: str, path: str, line: int) -> Record:
    """A page as a document.

    Args:
        charset: as the server said it, if it did.
        title: for a page that has none.

    Raises:
        MissingExtra: the extractor is not installed.
    """
    html = _decoded(data, charset)
    if html is None:
        return Rejected(path, line, BINARY if b"\0" in data else INVALID_UTF8)
    try:
        found_title, text = _main_text(html)
    except (ValueError, RecursionError, AssertionError):
        return Rejected(path, line, BAD_HTML)
    return document_or_rejected(doc_id, found_title or title, text, path, line)


def _decoded(data: bytes, charset: str | None) -> str | None:
    """Text by byte order mark, then as declared with bad bytes replaced, as browsers do; undeclared must be UTF-8, else None."""
    if marked := streams.encoding_of(data):
        return data.decode("utf-8-sig" if marked == "utf-8" else marked, "replace")
    inside = _META_CHARSET.search(data, endpos=_META_WITHIN)
    for declared in (charset, inside.group(1).decode("ascii", "replace") if inside else None):
        try:
            # A page that a regular expression could read is not UTF-16, whatever it says.
            if declared and codecs.lookup(declared).name not in ("utf-16", "utf-32"):
                return data.decode(declared, "replace")
        except (LookupError, ValueError):
            continue
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _main_text(html: str) -> tuple[str, str]:
    """(title, text); the whole text of a page in which no main part is found."""
    try:
        import trafilatura
    except ImportError:
        raise MissingExtra("reading HTML", "html") from None
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # it logs a line for every page without text; those are counted here
    if "<html" not in html[:_META_WITHIN].lower():
        html = f"<html><body>{html}</body></html>"  # a fragment
    page: Any = trafilatura.bare_extraction(html, with_metadata=True, include_comments=False)
    title, text = ("", "") if page is None else (page.title, page.text)
    return title or "", text or trafilatura.html2txt(html) or ""
