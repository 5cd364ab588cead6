"""News and web archives (WARC): the HTML pages that servers answered with (extras ``warc`` and ``html``)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import regex

from realm.documents import streams
from realm.documents.formats import SourceOptions
from realm.documents.pages.texts import html_page
from realm.documents.records import DAMAGED_FILE, EMPTY_ID, TOO_LONG, UNREADABLE, Record, Rejected
from realm.errors import needing

_HTML_TYPES = ("text/html", "application/xhtml+xml")
_CHARSET = regex.compile(r"""charset\s*=\s*["']?([\w.:-]+)""", regex.IGNORECASE)


def read_warc(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Pages answered with status 200, one at a time; the id is the URL, the title the page's, ``line`` the 1-based record. Raises
    MissingExtra: warcio or the HTML extractor is not installed."""
    with needing("reading WARC files", "warc"):
        from warcio.archiveiterator import ArchiveIterator
        from warcio.exceptions import ArchiveLoadFailed
    number = 0
    try:
        with open(path, "rb") as file:
            records = ArchiveIterator(file)
            _bound_lines(records.reader)
            for number, record in enumerate(records, 1):
                if _is_page(record):
                    yield _page_record(record, str(path), number, options.document_seconds)
    except PermissionError:
        yield Rejected(str(path), 0, UNREADABLE)
    except (ArchiveLoadFailed, AttributeError, ValueError, *streams.DECOMPRESSION_ERRORS) as error:
        streams.refuse_passing(error, path)
        # The second and third are how warcio meets headers that a truncated file cuts.
        yield Rejected(str(path), number + 1, DAMAGED_FILE)


HEADER_LINE = 2**20
"""Bytes. warcio joins a line from pieces, in time quadratic in its length."""


def _bound_lines(reader: Any) -> None:
    """Have warcio's reader refuse header lines that are longer than any. Raises ValueError, when it meets one."""
    whole = reader.readline

    def readline(length: int | None = None) -> bytes:
        line: bytes = whole(min(length or HEADER_LINE, HEADER_LINE))
        if len(line) >= HEADER_LINE:
            raise ValueError("a header line without end")
        return line

    reader.readline = readline


def _is_page(record: Any) -> bool:
    if record.rec_type != "response" or record.http_headers is None or record.http_headers.get_statuscode() != "200":
        return False
    kind = record.http_headers.get_header("Content-Type") or ""
    return kind.split(";")[0].strip().lower() in _HTML_TYPES


def _page_record(record: Any, path: str, number: int, seconds: float) -> Record:
    url = record.rec_headers.get_header("WARC-Target-URI")
    if not url:
        return Rejected(path, number, EMPTY_ID)
    # Chunks and compression of the transfer are undone on the way, so that the limit holds for what they unpack to.
    data = _unpacked(record.content_stream().read(streams.LINE_LIMIT + 1), record.http_headers.get_header("Content-Encoding") or "")
    if len(data) > streams.LINE_LIMIT:
        return Rejected(path, number, TOO_LONG)
    record.raw_stream.read()
    if int(getattr(record.raw_stream, "limit", 0)) > 0:  # the file ends before the record does
        return Rejected(path, number, DAMAGED_FILE)
    charset = _CHARSET.search(record.http_headers.get_header("Content-Type") or "")
    return html_page(data, charset.group(1) if charset else None, url.strip("<>"), "", path, number, seconds)[0]


def _unpacked(data: bytes, encoding: str) -> bytes:
    """Unpack data that is compressed after warcio, which knows gzip and deflate; another compression, or a damaged one, stays as it is."""
    kind = streams.compression_of(data) or {"br": "brotli", "zstd": "zst"}.get(encoding.strip().lower())
    codec = {"gz": "gzip", "zst": "zstd"}.get(kind or "", kind)
    if codec not in ("gzip", "zstd", "bz2", "brotli") or len(data) > streams.LINE_LIMIT:
        return data
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            return bytes(stream.read(streams.LINE_LIMIT + 1))
    except streams.DECOMPRESSION_ERRORS:
        return data
