"""PDF and Word files. Both are made to be looked at: their lines are put together to paragraphs again."""

import io
import logging
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from realm.corpus import streams
from realm.corpus.records import DAMAGED_FILE, ENCRYPTED, Record, Rejected, document_or_rejected
from realm.corpus.sources.limited import Beyond, another_document, read_limited
from realm.corpus.sources.options import SourceOptions
from realm.corpus.sources.texts import stem
from realm.errors import MissingExtra

FULL = 0.75
"""A line this long, in parts of its page's longest, continues in the next one, unless it ends a sentence or the next begins a point."""
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u00ad]$")
_POINT = re.compile(r"[•‣▪–—*-] |\(?[0-9a-z]{1,2}[.)] ")
_ENDS = tuple(".!?:;。！？")


def read_pdf(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The pages of a PDF, each a document: the id is NAME#page=N, as browsers open it, and the record's number is the page's.

    Their title is the file's own, or its name. A page without text, as a scan is, is rejected.

    Raises:
        MissingExtra: pypdf is not installed.
    """
    if find_spec("pypdf") is None:
        raise MissingExtra("reading PDF", "pdf")
    data = streams.read_document(path)
    if isinstance(data, Rejected):
        yield data
        return
    found = _read("pdf", data, options)
    if isinstance(found, str):
        yield Rejected(str(path), 0, found)
        return
    title, pages, trouble = found
    for number, text in enumerate(pages, 1):
        yield document_or_rejected(f"{name}#page={number}", title.strip() or stem(path), text, str(path), number)
    if trouble:
        yield Rejected(str(path), len(pages) if trouble == DAMAGED_FILE else 0, trouble)


def _read(kind: str, data: bytes, options: SourceOptions) -> Any:
    """What the reader of a kind gives, or why it gives nothing."""
    try:
        found = read_limited(kind, data, options.document_seconds)
    except ValueError:
        return DAMAGED_FILE
    return found.reason if isinstance(found, Beyond) else found


def pdf_pages(data: bytes) -> tuple[str, list[str], str]:
    """Title, text of each page, and what ended them before their time, if anything did."""
    from pypdf import PdfReader
    from pypdf.errors import FileNotDecryptedError, PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs whatever in a file is against the standard
    title, pages = "", list[str]()
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            return title, pages, ENCRYPTED
        title = str((reader.metadata and reader.metadata.title) or "")
        for page in reader.pages:
            another_document()
            pages.append(unwrapped(page.extract_text()))
    except FileNotDecryptedError:
        return title, pages, ENCRYPTED
    except (PyPdfError, ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, RecursionError, ArithmeticError):
        return title, pages, DAMAGED_FILE  # pypdf checks little of what a file says of itself
    return title, pages, ""


def read_docx(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The paragraphs of a Word file (.docx) and the rows of its tables, in order, as one document; titled as a PDF is.

    Raises:
        MissingExtra: python-docx is not installed.
    """
    if find_spec("docx") is None:
        raise MissingExtra("reading Word files", "docx")
    data = streams.read_document(path)
    if isinstance(data, Rejected):
        yield data
        return
    found = _read("docx", data, options)
    if isinstance(found, str):
        yield Rejected(str(path), 0, found)
        return
    title, text = found
    yield document_or_rejected(name, title or stem(path), text, str(path), 0)


def docx_text(data: bytes) -> tuple[str, str]:
    """Title and text. Raises ValueError: it is none."""
    from docx import Document

    try:
        document: Any = Document(io.BytesIO(data))
        return str(document.core_properties.title or "").strip(), "\n\n".join(_blocks(document))
    except MemoryError:
        raise
    except Exception as error:  # the library lets out whatever zip, XML and its own look-ups raise
        raise ValueError("damaged") from error


def _blocks(document: Any) -> Iterator[str]:
    """Paragraphs with words, and rows of tables with their cells on one line (a merged cell once)."""
    from docx.table import Table

    for block in document.iter_inner_content():
        if not isinstance(block, Table):
            yield from filter(None, [block.text.strip()])
            continue
        for row in block.rows:
            cells = {cell._tc: " ".join(cell.text.split()) for cell in row.cells}
            yield from filter(None, [" | ".join(filter(None, cells.values()))])


def unwrapped(text: str) -> str:
    """Lines of a page as paragraphs: what only the width of the page has parted is joined, words parted by a hyphen too.

    Example: "The bridge was re-\\npaired in 1931 by the com-\\npany of Smith." is one line, "The bridge was repaired in 1931 by ...".
    """
    lines = [" ".join(line.split()) for line in text.splitlines()]
    widest = max(map(len, lines), default=0)
    paragraphs: list[str] = []
    going_on = False
    for line in lines:
        if not line:
            going_on = False
            continue
        if going_on and not _POINT.match(line):
            before, parted = paragraphs[-1], line[0].islower() and _HYPHEN.search(paragraphs[-1])
            paragraphs[-1] = before[:-1] + line if parted else f"{before} {line}"
        else:
            paragraphs.append(line)
        going_on = len(line) >= FULL * widest and not (line.endswith(_ENDS) and len(line) < widest * 0.9)
    return "\n\n".join(paragraphs)
