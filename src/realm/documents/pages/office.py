"""PDF and Word files. Both are made to be looked at: their lines are put together to paragraphs again."""

import base64
import io
import logging
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from realm.documents import streams
from realm.documents.detect import stem
from realm.documents.options import SourceOptions
from realm.documents.pages.figures import CAPTION, around
from realm.documents.pages.limited import Beyond, another_document, read_limited
from realm.documents.pages.paragraphs import unwrapped
from realm.documents.pages.pictures import Told, looked_at, pictures_of_page
from realm.documents.pictures import MOST_BYTES, MOST_PIXELS, inside, picture_type
from realm.documents.records import DAMAGED_FILE, ENCRYPTED, UNREAD_PICTURE, Record, Rejected, SourceDocument, document_or_rejected
from realm.errors import MissingExtra

MOST_PICTURES = 200
"""Of one page of a PDF, or of one Word file; the rest is left out."""
LEAST_SIDE = 48
"""Pixels: what is smaller is an ornament."""


def read_pdf(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The pages of a PDF, each a document: the id is NAME#page=N, as browsers open it, and the record's number is the page's.

    A picture on a page is a document of its own, NAME#page=N&picture=M, with its caption. The title of all is the file's own, or its name.
    A page without text is rejected, if its pictures show none either.

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
    title, pages, trouble, pictures = found
    title = title.strip() or stem(path)
    for number, text in enumerate(pages, 1):
        page = document_or_rejected(f"{name}#page={number}", title, text, str(path), number)
        shown = list(_page_pictures(data, title, text, path, name, number, options)) if pictures[number - 1] else []
        if isinstance(page, SourceDocument) or not any(isinstance(record, SourceDocument) for record in shown):
            yield page
        yield from shown
    if trouble:
        yield Rejected(str(path), len(pages) if trouble == DAMAGED_FILE else 0, trouble)


def _page_pictures(
    data: bytes, title: str, text: str, path: Path, name: str, page: int, options: SourceOptions
) -> Iterator[SourceDocument | Rejected]:
    """The pictures of one page: each with the caption that is its turn's, or with all of them where their numbers differ."""
    captions = [paragraph for paragraph in text.split("\n\n") if CAPTION.match(paragraph)]
    if find_spec("PIL") is None:
        yield Rejected(str(path), page, UNREAD_PICTURE)
        return
    try:
        found = pictures_of_page(data, page, options.document_seconds)
    except ValueError:
        return
    if isinstance(found, Beyond):
        yield Rejected(str(path), page, found.reason)
        return
    for number, picture in enumerate(found, 1):
        if picture:
            said = [captions[number - 1]] if len(captions) == len(found) else captions
            media = inside(str(path), number, page)
            told = Told(f"{name}#page={page}&picture={number}", title, str(path), page, said, bool(said), media)
            yield from looked_at(picture, told, options.document_seconds)


def _read(kind: str, data: bytes, options: SourceOptions) -> Any:
    """Result of the reader of a kind, or the reason why there is none."""
    try:
        found = read_limited(kind, data, options.document_seconds)
    except ValueError:
        return DAMAGED_FILE
    return found.reason if isinstance(found, Beyond) else found


def pdf_pages(data: bytes) -> tuple[str, list[str], str, list[int]]:
    """Title, text of each page, what ended them before their time, if anything did, and how many pictures each page has."""
    from pypdf import PdfReader
    from pypdf.errors import FileNotDecryptedError, PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it logs whatever in a file is against the standard
    title, pages, pictures = "", list[str](), list[int]()
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            return title, pages, ENCRYPTED, pictures
        title = str((reader.metadata and reader.metadata.title) or "")
        for page in reader.pages:
            another_document()
            pages.append(unwrapped(page.extract_text()))
            pictures.append(_number_of_pictures(page))
    except FileNotDecryptedError:
        return title, pages, ENCRYPTED, pictures
    except (PyPdfError, ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, RecursionError, ArithmeticError):
        return title, pages, DAMAGED_FILE, pictures  # pypdf checks little of what a file says of itself
    return title, pages, "", pictures


def _number_of_pictures(page: Any) -> int:
    """None where the page says of itself what cannot be: it is read for its text."""
    try:
        return min(len(page.images), MOST_PICTURES)
    except MemoryError:
        raise
    except Exception:
        return 0


def pdf_pictures(data: bytes) -> list[str]:
    """The pictures of a page of a PDF, base64, empty where one is an ornament or damaged. Raises ValueError: there is no such page.

    Args:
        data: the number of the page and a line end, and then the file.
    """
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    number, _, file = data.partition(b"\n")
    try:
        reader = PdfReader(io.BytesIO(file))
        if reader.is_encrypted:
            reader.decrypt("")
        page = reader.pages[int(number) - 1]
        images, placed = page.images, _placements(page)
        return [_picture_of_pdf(images, at, placed.get(str(key), ())) for at, key in enumerate(images.keys()[:MOST_PICTURES])]
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError("damaged") from error


def _placements(page: Any) -> dict[str, tuple[int, ...]]:
    """Turn and mirroring of each picture of a page (``PIL.Image.Transpose``) to look as it does there, by its name on the page.

    Its matrix (a, b, c, d) takes the right edge to (a, b) and the upper one to (c, d); the page may be turned as well.
    """
    from PIL.Image import Transpose

    turned = {90: (Transpose.ROTATE_270,), 180: (Transpose.ROTATE_180,), 270: (Transpose.ROTATE_90,)}.get(int(page.rotation) % 360, ())
    found: dict[str, tuple[int, ...]] = {}

    def note(operator: bytes, operands: Any, matrix: Any, _: Any) -> None:
        if operator != b"Do" or not operands:
            return
        a, b, c, d = matrix[:4]
        if abs(a) + abs(d) >= abs(b) + abs(c):
            placed = (Transpose.FLIP_LEFT_RIGHT,) * (a < 0) + (Transpose.FLIP_TOP_BOTTOM,) * (d < 0)
        elif b * c < 0:
            placed = (Transpose.ROTATE_90 if b > 0 else Transpose.ROTATE_270,)
        else:
            placed = (Transpose.TRANSVERSE if b > 0 else Transpose.TRANSPOSE,)
        found[str(operands[0])] = (*placed, *turned)

    page.extract_text(visitor_operand_before=note)
    return found


def _picture_of_pdf(images: Any, at: int, placed: Sequence[int]) -> str:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    try:
        found = images[at]
        with Image.open(io.BytesIO(found.data)) as image:
            if min(image.size) < LEAST_SIDE:
                return ""
            if placed or picture_type(found.data) is None:  # such as JPEG 2000, which no browser shows
                return _as_png(image, placed)
        return base64.b64encode(found.data).decode()
    except MemoryError:
        raise
    except Exception:  # whatever the decoders let out
        return ""


def _as_png(image: Any, placed: Sequence[int]) -> str:
    file = io.BytesIO()
    image = image.convert("RGB")
    for step in placed:
        image = image.transpose(step)
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


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
    found = _read("docx", data, options)
    if isinstance(found, str):
        yield Rejected(str(path), 0, found)
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
