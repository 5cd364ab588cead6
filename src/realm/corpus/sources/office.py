"""PDF and Word files. Both are made to be looked at: their lines are put together to paragraphs again."""

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm.corpus import streams
from realm.corpus.records import DAMAGED_FILE, ENCRYPTED, Record, Rejected, document_or_rejected
from realm.corpus.sources.options import SourceOptions
from realm.corpus.sources.texts import stem
from realm.errors import MissingExtra

FULL = 0.75
"""A line this long, in parts of its page's longest, goes on in the next one, unless it ends a sentence or the next begins a point."""
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u00ad]$")
_POINT = re.compile(r"[•‣▪–—*-] |\(?[0-9a-z]{1,2}[.)] ")
_ENDS = tuple(".!?:;。！？")


def read_pdf(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The pages of a PDF, each a document: the id is NAME#page=N, as browsers open it, and the record's number is the page's.

    Their title is the file's own, or its name. A page without text, as a scan is, is rejected.

    Raises:
        MissingExtra: pypdf is not installed.
    """
    try:
        from pypdf import PdfReader
        from pypdf.errors import FileNotDecryptedError, PyPdfError
    except ImportError:
        raise MissingExtra("reading PDF", "pdf") from None
    data = streams.read_document(path)
    if isinstance(data, Rejected):
        yield data
        return
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs whatever in a file is against the standard
    number = 0
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            yield Rejected(str(path), 0, ENCRYPTED)
            return
        title = str((reader.metadata and reader.metadata.title) or "").strip() or stem(path)
        for number, page in enumerate(reader.pages, 1):
            yield document_or_rejected(f"{name}#page={number}", title, unwrapped(page.extract_text()), str(path), number)
    except FileNotDecryptedError:
        yield Rejected(str(path), 0, ENCRYPTED)
    except (PyPdfError, ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, RecursionError, ArithmeticError):
        yield Rejected(str(path), number, DAMAGED_FILE)  # pypdf checks little of what a file says of itself


def read_docx(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The paragraphs of a Word file (.docx) and the rows of its tables, in order, as one document; titled as a PDF is.

    Raises:
        MissingExtra: python-docx is not installed.
    """
    try:
        from docx import Document
    except ImportError:
        raise MissingExtra("reading Word files", "docx") from None
    data = streams.read_document(path)
    if isinstance(data, Rejected):
        yield data
        return
    try:
        document: Any = Document(io.BytesIO(data))
        title, text = str(document.core_properties.title or "").strip(), "\n\n".join(_blocks(document))
    except Exception:  # the library lets out whatever zip, XML and its own look-ups raise
        yield Rejected(str(path), 0, DAMAGED_FILE)
        return
    yield document_or_rejected(name, title or stem(path), text, str(path), 0)


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
