"""Word files."""

import base64
import io
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from realm.documents import streams
from realm.documents.detect import stem
from realm.documents.options import SourceOptions
from realm.documents.pages.figures import CAPTION, around
from realm.documents.pages.limited import Beyond, read_limited
from realm.documents.pages.pictures import Told, looked_at
from realm.documents.pictures import MOST_BYTES, inside, picture_type
from realm.documents.records import DAMAGED_FILE, Record, Rejected, document_or_rejected
from realm.errors import MissingExtra


def read_docx(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The paragraphs of a Word file (.docx) and the rows of its tables, in order, as one document; titled as a PDF is. Its pictures are
    documents of their own, NAME#picture=N.

    Raises:
        MissingExtra: python-docx is not installed.
    """
    if find_spec("docx") is None:
        raise MissingExtra("reading Word files", "docx")
    data = streams.read_document(path)
    if isinstance(data, Rejected):
        yield data
        return
    try:
        found = read_limited("docx", data, options.document_seconds)
    except ValueError:
        found = Beyond(DAMAGED_FILE)
    if isinstance(found, Beyond):
        yield Rejected(str(path), 0, found.reason)
        return
    title, text, pictures = found
    title = title or stem(path)
    yield document_or_rejected(name, title, text, str(path), 0)
    for number, (picture, alternative, beside) in enumerate(pictures, 1):
        said, told_at = [alternative, beside], inside(str(path), number)
        told = Told(f"{name}#picture={number}", title, str(path), number, said, bool(CAPTION.match(beside)), told_at)
        yield from looked_at(base64.b64decode(picture), told, options.document_seconds)


def docx_text(data: bytes) -> tuple[str, str, list[tuple[str, str, str]]]:
    """Title and text; and of each picture its bytes in base64, its alternative text, and the paragraph around it.

    Raises:
        ValueError: it is no Word file.
    """
    from docx import Document

    try:
        document: Any = Document(io.BytesIO(data))
        return str(document.core_properties.title or "").strip(), "\n\n".join(_blocks(document)), list(_pictures_of_docx(document))
    except MemoryError:
        raise
    except Exception as error:  # the library lets out whatever zip, XML and its own look-ups raise
        raise ValueError("damaged") from error


def _pictures_of_docx(document: Any) -> Iterator[tuple[str, str, str]]:
    """Pictures in paragraphs, in order; those of kinds that are not read are left out."""
    from docx.oxml.ns import qn

    paragraphs = document.paragraphs
    texts, room = [" ".join(paragraph.text.split()) for paragraph in paragraphs], MOST_BYTES
    for at, paragraph in enumerate(paragraphs):
        for drawing in paragraph._p.iter(qn("w:drawing")):
            names = [str(part.get("descr") or "") for part in drawing.iter(qn("wp:docPr"))]
            for blip in drawing.iter(qn("a:blip")):
                part = document.part.related_parts.get(blip.get(qn("r:embed")))
                picture = getattr(part, "blob", b"")
                room -= len(picture)
                if room < 0:
                    return
                if picture_type(picture) is not None:
                    yield base64.b64encode(picture).decode(), " ".join(names), around(texts, at)


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
