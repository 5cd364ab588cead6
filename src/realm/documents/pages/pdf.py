"""PDF files (extra ``pdf``): pages as documents, with pdfium. It runs in the limited child and says what stands where on each page."""

import base64
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, cast, create_string_buffer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from realm.documents import records, streams
from realm.documents.detect import stem
from realm.documents.limited import BYTES_OF_TIME, Beyond, read_limited, read_parts
from realm.documents.pages.layout import Piece, read_page
from realm.documents.pages.paragraphs import carried, continued, words_of_lines
from realm.documents.pages.pictures import Told, looked_at, pictures_of_page
from realm.documents.pages.recognition import recognised, recognises
from realm.documents.pictures import CAPTION, MOST_PICTURES, MOST_PIXELS, inside, picture_type
from realm.documents.records import Record, Rejected, SourceDocument, SourceOptions, document_or_rejected
from realm.errors import require_package

LEAST_SIDE = 48
"""Pixels: what is smaller is an ornament."""
PAGE_SHARE = 0.25
"""Of the time of a document, what one page may take."""
MOST_UNKNOWN = 0.3
"""Share of a page's characters that its fonts do not name, up to which it counts as text."""
COMMON_LETTERS = 0.45
"""Share of the letters e, t, a, o, i, n, s and r below which such text is none: words of languages in Latin letters have more."""
HEAD_ROWS = 3
"""Rows at the upper and at the lower edge of a page among which running heads and page numbers are looked for."""
DOTS_PER_POINT = 2.0
"""Of a page that is read as a picture: 144 per inch."""
LYING, SLANTED = 1.2, 0.1
"""Height of all words by their width from which a page lies on its side; rise of a line by its run, from which it goes across the page."""
MOST_FIELDS = 2_000
"""Of one page; the rest is left out."""
_SPELT = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st", 2: "-", 0xFFFE: "-"}
"""Ligatures, and what pdfium gives for a hyphen at the end of a line."""
_FIGURES = {ord(figure): (ord(up), ord(down)) for figure, up, down in zip("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉", strict=True)}
_RAISED, _LOWERED, _SMALL = 0.25, -0.05, 0.9
"""Of the height of a word's first character: how far the foot of a figure is above or below its foot, and how high it is at most."""
_WHITE = frozenset((0, 9, 10, 11, 12, 13, 32, 0xA0, *range(0x2000, 0x200C), 0x202F, 0x3000))
_ENDS_WORD = _WHITE | {2, 0xFFFE}
_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ufffd\ue000-\uf8ff]")
SET_APART = 1.5
"""Of a line's height, the distance to the next one from which white parts them."""
_KIDS, _REFERENCE = re.compile(rb"/Kids\s*\[([^\]]*)\]"), re.compile(rb"\d+\s+\d+\s+R")
_NOTE = re.compile(r"(?:\d{1,3}|[*†‡§¹²³⁰⁴-⁹]+)[.)]?\s*[^\W\d]")
_NUMBER = re.compile(r"\d+")
_ROMAN = re.compile(r"^[ivxlc]{1,7}$")
Key = tuple[int, str, str]
"""Height, distance of a number in the line to that of the page, and the text around it."""


class PageLine(NamedTuple):
    """Text, whether it begins a paragraph, its height; of a line at an edge of the page, whether white parts it from the rest."""

    text: str
    begins: bool
    place: int
    apart: bool | None


class Page(NamedTuple):
    """Facts of one page, as the child gives them.

    Attributes:
        pictures: how many it shows.
        undecodable: whether its fonts do not say which characters they show."""

    lines: list[PageLine]
    pictures: int
    undecodable: bool


def read_pdf(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The pages of a PDF, each a document: the id is NAME#page=N, as browsers open it, and the record's number is the page's.

    A picture on a page is a document of its own, NAME#page=N&picture=M, with its caption. The title of all is the file's own, or its name.
    A page without text is rejected, if its pictures show none either. Heads and page numbers that recur are left out. Raises MissingExtra:
    pypdfium2 is not installed."""
    require_package("pypdfium2", "reading PDF", "pdf")
    data = streams.read_document(path)
    if isinstance(data, Rejected):
        yield data
        return
    title, pages, trouble = _pages_within(data, options.document_seconds)
    title = title.strip() or stem(path)
    for number, text in enumerate(_texts(pages), 1):
        page = pages[number - 1]
        if isinstance(page, str):
            yield Rejected(str(path), number, page)
            continue
        if page.undecodable:
            text = _seen(data, number, options.document_seconds)
        record = document_or_rejected(f"{name}#page={number}", title, text, str(path), number, structured=True)
        if page.undecodable and isinstance(record, Rejected):
            record = Rejected(str(path), number, records.UNDECODABLE)
        shown = list(_page_pictures(data, title, text, path, name, number, options)) if page.pictures else []
        if isinstance(record, SourceDocument) or not any(isinstance(picture, SourceDocument) for picture in shown):
            yield record
        yield from shown
    if trouble:
        yield Rejected(str(path), len(pages) if pages else 0, trouble)


def _pages_within(data: bytes, seconds: float) -> tuple[str, list[Page | str], str]:
    """Title; each page, or why it is left out; and why those after them are, if they are. A page beyond its limits costs only itself."""
    title, count, pages, spent = "", 0, list[Page | str](), 0.0
    most = seconds * (1 + len(data) / BYTES_OF_TIME)
    while True:
        try:
            (*parts,), used, beyond = read_parts("pdf", b"%d\n" % len(pages) + data, PAGE_SHARE * seconds, most - spent)
        except ValueError as error:
            return title, pages, records.ENCRYPTED if records.ENCRYPTED in str(error) else records.DAMAGED_FILE
        if parts:
            title, count = parts.pop(0)
            pages += [part if isinstance(part, str) else Page([PageLine(*line) for line in part[0]], *part[1:]) for part in parts]
        elif beyond is not None:
            return title, pages, beyond.reason
        spent += used
        if beyond is None or spent >= most:
            return title, pages, "" if beyond is None else beyond.reason
        pages.append(beyond.reason)
        if len(pages) >= count:
            return title, pages, ""


def _texts(pages: Sequence[Page | str]) -> Iterator[str]:
    """The paragraphs of each page without what recurs at the edges of pages; of one that is left out nothing. A word that the end of a page
    parts stands whole on the page where it begins."""
    heads = _recurring(pages)
    kept = [_body(page, number, heads) if isinstance(page, Page) else [] for number, page in enumerate(pages)]
    words = set[str]().union(*(words_of_lines([line.text for line in lines]) for lines in kept))
    for before, after in itertools.pairwise(kept):
        firsts = (next((one.text for one in before[at::-1] if one.begins), "") for at in range(len(before)))
        cut = bool(before) and before[-1].text.endswith(("-", "\u2010", "\u00ad"))
        last = -1 if cut else max((at for at, first in enumerate(firsts) if not _NOTE.match(first)), default=-1)  # above footnotes
        if before and after and (whole := carried(before[last].text, after[0].text, words.__contains__)) and (whole[1] or after[1:]):
            before[last], after[:1] = before[last]._replace(text=whole[0]), [after[0]._replace(text=whole[1])] if whole[1] else []
    for lines in kept:
        paragraphs: list[str] = []
        for text, begins, *_ in lines:
            if begins or not paragraphs:
                paragraphs.append(text)
            else:
                paragraphs[-1] = continued(paragraphs[-1], text, words.__contains__)
        yield "\n\n".join(paragraphs)


def _body(page: Page, number: int, heads: set[Key]) -> list[PageLine]:
    """Lines of a page without running heads; all of them where nothing else is there, and no page number."""
    found = [line for line in page.lines if not _keys(line, number) & heads]
    return found or ([] if any(key[1] for line in page.lines for key in _keys(line, number) & heads) else page.lines)


def _recurring(pages: Sequence[Page | str]) -> set[Key]:
    """Keys of lines that stand at one height on three pages, or on both of two, or on two with the page's number in them."""
    each = ((page, number) for number, page in enumerate(pages) if isinstance(page, Page))
    counts = Counter(key for page, number in each for key in {key for line in page.lines for key in _keys(line, number)})
    few = max(3, len(pages) // 10)
    return {key for key, count in counts.items() if count >= (few if not key[2] else 2 if key[1] else min(3, max(2, len(pages))))}


def _keys(line: PageLine, number: int) -> set[Key]:
    """Tell a line at an edge from others: by its text if set apart, by that beside a number that counts pages, by such a number."""
    if line.apart is None:
        return set()
    place, text = line.place, line.text
    found: set[Key] = {(place, "", text)} if line.apart else set()
    for match in _NUMBER.finditer(text[:200]):
        before, after, count = text[: match.start()], text[match.end() :], f"{int(match[0]) - number:+}"
        found |= {(place, count, f"{before}#{after}"), *([] if before and after else [(place, count, "")])}
    return found | {(place, "roman", "#") for _ in _ROMAN.findall(text)}


def _seen(data: bytes, number: int, seconds: float) -> str:
    """The text of a page as its picture shows it; empty where nothing here can read it."""
    if not recognises():
        return ""
    picture = read_limited("pdf page", b"%d\n" % number + data, seconds)
    shows = "" if isinstance(picture, Beyond) else recognised(base64.b64decode(picture), seconds)
    return "" if isinstance(shows, Beyond) or not _like_language(shows) else shows


def _page_pictures(
    data: bytes, title: str, text: str, path: Path, name: str, page: int, options: SourceOptions
) -> Iterator[SourceDocument | Rejected]:
    """The pictures of one page: each with the caption that is its turn's, or with all of them where their numbers differ."""
    captions = [paragraph for paragraph in text.split("\n\n") if CAPTION.match(paragraph)]
    if find_spec("PIL") is None:
        yield Rejected(str(path), page, records.UNREAD_PICTURE)
        return
    found = pictures_of_page(data, page, options.document_seconds)
    if isinstance(found, Beyond):
        yield Rejected(str(path), page, found.reason)
        return
    for number, picture in enumerate(found, 1):
        if picture:
            said = [captions[number - 1]] if len(captions) == len(found) else captions
            media = inside(str(path), number, page)
            told = Told(f"{name}#page={page}&picture={number}", title, str(path), page, said, bool(said), media)
            yield from looked_at(picture, told, options.document_seconds)


def _opened(data: bytes) -> tuple[int, Any]:
    """The number and the file of a request. Raises ValueError: it cannot be opened, and whether for its password."""
    import pypdfium2

    number, _, file = data.partition(b"\n")
    try:
        return int(number), pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        raise ValueError(records.ENCRYPTED if error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD else records.DAMAGED_FILE) from error


def pdf_pages(data: bytes) -> Iterator[Any]:
    """Title and number of pages; and then each ``Page``, or why there is none. ``data`` is the number of pages to leave out and a line
    end, and then the file. Raises ValueError: see ``_opened``."""
    from pypdfium2 import PdfiumError

    done, document = _opened(data)
    kids = _KIDS.findall(data)
    named = _REFERENCE.findall(kids[0]) if len(kids) == 1 else []
    first = {reference: at for at, reference in reversed(list(enumerate(named)))} if len(named) == len(document) else {}
    yield document.get_metadata_value("Title"), len(document)
    for number in range(done, len(document)):
        if first and first[named[number]] < number:
            yield records.REPEATED_PAGE
            continue
        try:
            page = document[number]
            yield _page(page)
            page.close()
        except PdfiumError:
            yield records.DAMAGED_FILE


def _page(page: Any) -> Page:
    words, slanted, unknown = _words(page)
    lines = read_page(words)
    edges = _edge_rows({round(line.box.middle[1]): line.box.height for line, _ in lines}, page.get_height())
    said = [PageLine(line.text, begins, place, edges.get(place)) for line, begins in lines for place in [round(line.box.middle[1])]]
    notes = [PageLine(text, True, 0, None) for text in filter(None, (" ".join(slanted), *_fields(page)))]
    text, pictures = "".join([*(word.text for word in words), *slanted]), sum(1 for _ in itertools.islice(_images(page), MOST_PICTURES))
    return Page([*said, *notes], pictures, _undecodable(text, unknown))


def _edge_rows(heights: dict[int, float], page: float) -> dict[int, bool]:
    """The places of rows at the upper and lower edge of a page, and whether white parts each from what the page is about."""
    found: dict[int, bool] = {}
    for upper in (True, False):
        rows = sorted(heights, reverse=not upper)
        apart = [abs(after - before) > SET_APART * heights[before] for before, after in itertools.pairwise(rows[: HEAD_ROWS + 1])]
        outer = [place for place in rows[:HEAD_ROWS] if (place < page / 8 if upper else place > page * 7 / 8)]
        found |= {place: any(apart[at:]) for at, place in enumerate(outer)}
    return found


def _words(page: Any) -> tuple[list[Piece], list[str], int]:
    """Words between white space, in pdfium's order; those across a page, as of a stamp over it; and the number of characters of fonts that
    do not name them."""
    from pypdfium2 import raw

    shown, turned = page.get_textpage(), page.get_rotation()
    width, height = page.get_size()[:: -1 if turned % 180 else 1]
    code_at, words, unknown, codes, first, box = raw.FPDFText_GetUnicode, list[Piece](), 0, list[int](), 0, raw.FS_RECTF()
    slanted, matrix = list[str](), raw.FS_MATRIX()
    for at in range(count := shown.count_chars()):
        code = code_at(shown, at)
        if code not in _WHITE:
            first = first if codes else at
            codes.append(code if not codes or code not in _FIGURES or turned else _figure(shown, first, at, code))
        if codes and (code in _ENDS_WORD or at == count - 1):
            sides = []
            for end in (first, first + len(codes) - 1):
                raw.FPDFText_GetLooseCharBox(shown, end, byref(box))
                sides.append((box.left, box.bottom, box.right, box.top))
            raw.FPDFText_GetMatrix(shown, first, byref(matrix))
            if min(abs(matrix.a), abs(matrix.b)) > SLANTED * max(abs(matrix.a), abs(matrix.b)):
                slanted.append(_text_of(codes))
            else:
                words.append(_piece(_text_of(codes), sides[0], sides[1], height))
            unknown += len(codes) * (raw.FPDFText_HasUnicodeMapError(shown, first) == 1)
            codes = []
    return _upright(words, turned, width, height), slanted, unknown


def _figure(shown: Any, first: int, at: int, code: int) -> int:
    """A figure in a word as it is placed: raised as in 10⁶, lowered as in CO₂, or level."""
    from pypdfium2 import raw

    base, box = raw.FS_RECTF(), raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(shown, first, byref(base))
    raw.FPDFText_GetLooseCharBox(shown, at, byref(box))
    height, foot = base.top - base.bottom, box.bottom - base.bottom
    if box.top - box.bottom > _SMALL * height:
        return code
    return _FIGURES[code][0] if foot > _RAISED * height else _FIGURES[code][1] if foot < _LOWERED * height else code


def _text_of(codes: Sequence[int]) -> str:
    text = "".join(_SPELT.get(code, chr(code)) for code in codes)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if max(codes) > 0xD7FF else text


def _piece(text: str, first: Sequence[float], last: Sequence[float], height: float) -> Piece:
    """A word from the boxes of its first and last character; its place counts from the upper edge of the page."""
    low, high = min(first[1], last[1]), max(first[3], last[3])
    return Piece(text, min(first[0], last[0]), height - high, max(first[2], last[2]), height - low)


def _upright(words: list[Piece], turned: int, width: float, height: float) -> list[Piece]:
    """Words of a page of that size as it shows them, turned by 90, 180 or 270 degrees; and once more where most stand on their side,
    to the side on which they follow one another."""
    for _ in range(turned // 90):
        words, width, height = _turned(words, height), height, width
    sizes = [(word.height, word.right - word.left) for word in words if len(word.text) > 2]
    if sum(high for high, _ in sizes) <= LYING * sum(wide for _, wide in sizes):
        return words
    right = _turned(words, height)
    onwards = sum(before.left < after.left for before, after in itertools.pairwise(right))
    return right if 2 * onwards > len(right) else _turned(_turned(right, width), height)


def _turned(words: Sequence[Piece], height: float) -> list[Piece]:
    """Words of a page of that height that is turned to the right."""
    return [Piece(text, height - bottom, left, height - top, right) for text, left, top, right, bottom in words]


def _undecodable(text: str, unknown: int) -> bool:
    """Tell text from none: many characters are of fonts that do not name them, or no characters at all."""
    return unknown + len(_NO_TEXT.findall(text)) > MOST_UNKNOWN * len(text) and not _like_language(text)


def _like_language(text: str) -> bool:
    """Tell letters that are as frequent as in languages, or of another script than the Latin one, from others."""
    letters = [letter for letter in text.lower() if letter.isalpha()]
    latin = [letter for letter in letters if letter < "\u0250"]
    return len(letters) > 2 * len(latin) or sum(letter in "etaoinsr" for letter in latin) >= COMMON_LETTERS * max(1, len(latin))


def _fields(page: Any) -> Iterator[str]:
    """Values of the fields of a form, with their names, and the words of notes."""
    from pypdfium2 import raw

    for at in range(min(raw.FPDFPage_GetAnnotCount(page), MOST_FIELDS)):
        note = raw.FPDFPage_GetAnnot(page, at)
        kind = raw.FPDFAnnot_GetSubtype(note)
        if kind == raw.FPDF_ANNOT_WIDGET:
            yield from filter(None, [": ".join(filter(None, (_said(raw, note, b"T"), value))) if (value := _said(raw, note, b"V")) else ""])
        elif kind not in (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP):
            yield from filter(None, [_said(raw, note, b"Contents")])
        raw.FPDFPage_CloseAnnot(note)


def _said(raw: Any, note: Any, key: bytes) -> str:
    """The string of a note under a key, on one line; empty: it has none."""
    size = raw.FPDFAnnot_GetStringValue(note, key, None, 0)
    buffer = create_string_buffer(size)
    raw.FPDFAnnot_GetStringValue(note, key, cast(buffer, POINTER(raw.FPDF_WCHAR)), size)
    return " ".join(buffer.raw.decode("utf-16-le", "replace").rstrip("\0").split())


def _images(page: Any) -> Iterator[Any]:
    from pypdfium2 import raw

    return page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE])


def pdf_pictures(data: bytes) -> list[str]:
    """The pictures of a page of a PDF, base64, empty where one is an ornament or damaged. ``data`` is the number of the page and a line
    end, and then the file. Raises ValueError: there is no such page."""
    page = _numbered(data)
    return [_picture(image, page.get_rotation()) for image in itertools.islice(_images(page), MOST_PICTURES)]


def _numbered(data: bytes) -> Any:
    """The page of a request. Raises ValueError: there is none."""
    from pypdfium2 import PdfiumError

    number, document = _opened(data)
    if not 0 < number <= len(document):
        raise ValueError("no such page")
    try:
        return document[number - 1]
    except PdfiumError as error:
        raise ValueError(records.DAMAGED_FILE) from error


def _picture(image: Any, turned: int) -> str:
    """As it is where a browser shows it and the page does not turn or mirror it, else drawn."""
    try:
        width, height = image.get_px_size()
        if min(width, height) < LEAST_SIDE or width * height > MOST_PIXELS:
            return ""
        placed = _placement(image.get_matrix().get(), turned)
        if not placed and image.get_filters() == ["DCTDecode"]:
            found = bytes(image.get_data())
            if picture_type(found) is not None:
                return base64.b64encode(found).decode()
        return _as_png(image.get_bitmap().to_pil(), placed)
    except MemoryError:
        raise
    except Exception:  # whatever the decoders let out
        return ""


def _placement(matrix: Sequence[float], turned: int) -> tuple[int, ...]:
    """Steps that turn and mirror a picture (``PIL.Image.Transpose``) until it looks as it does on the page.

    Its matrix (a, b, c, d) takes the right edge to (a, b) and the upper one to (c, d); the page may be turned as well."""
    from PIL.Image import Transpose

    a, b, c, d = matrix[:4]
    if abs(a) + abs(d) >= abs(b) + abs(c):
        placed: tuple[int, ...] = (Transpose.FLIP_LEFT_RIGHT,) * (a < 0) + (Transpose.FLIP_TOP_BOTTOM,) * (d < 0)
    elif b * c < 0:
        placed = (Transpose.ROTATE_90 if b > 0 else Transpose.ROTATE_270,)
    else:
        placed = (Transpose.TRANSVERSE if b > 0 else Transpose.TRANSPOSE,)
    return (*placed, *{90: (Transpose.ROTATE_270,), 180: (Transpose.ROTATE_180,), 270: (Transpose.ROTATE_90,)}.get(turned, ()))


def pdf_page_picture(data: bytes) -> str:
    """A page of a PDF as a picture, base64; arguments and errors as of ``pdf_pictures``."""
    page = _numbered(data)
    scale = min(DOTS_PER_POINT, (MOST_PIXELS / max(1.0, page.get_width() * page.get_height())) ** 0.5)
    return _as_png(page.render(scale=scale).to_pil(), ())


def _as_png(image: Any, placed: Sequence[int]) -> str:
    file = io.BytesIO()
    image = image.convert("RGB")
    for step in placed:
        image = image.transpose(step)
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
