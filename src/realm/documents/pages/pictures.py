"""Pictures as documents: what is said of one, and what it shows in words (extra ``ocr``). The document knows its picture.

A picture that a page of a folder shows is read with what the page says of it, and not once more by itself."""

import base64
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import regex

from realm.documents import records, streams
from realm.documents.detect import stem
from realm.documents.limited import Beyond, read_limited
from realm.documents.pages.recognition import recognised, recognises
from realm.documents.pictures import MOST_BYTES, PICTURE_ENDINGS, Figure, parted, picture_sum, picture_type
from realm.documents.records import Record, Rejected, SourceDocument, SourceOptions
from realm.text.lines import canonical_line

CAPTION_BYTES = 2**16
"""Of a file with a caption; what is longer is none."""
SAYS_ENOUGH = 3
"""Words of an alternative text with which a picture stands although it shows no words itself."""
_WORDS = regex.compile(r"[\p{L}\p{M}]+|\p{N}+")
_CAMERA = frozenset(("img", "image", "dsc", "dscn", "dscf", "pict", "picture", "photo", "foto", "scan", "screenshot", "untitled", "pxl"))
"""Names that cameras and scanners give."""


@dataclass(frozen=True)
class Told:
    """Facts of a picture before it is read: its document, what is said of it, if that alone makes a document, and its name."""

    doc_id: str
    title: str
    path: str
    line: int
    said: Sequence[str]
    stands: bool
    media: str

    def document(self, shows: str, checksum: str = "") -> SourceDocument | None:
        """The document, with the words that the picture shows; None: there is nothing to say of it."""
        text = "\n\n".join(dict.fromkeys(part for part in map(str.strip, (*self.said, shows)) if part))
        if not text or not (shows or self.stands):
            return None
        return SourceDocument(self.doc_id, self.title, text, self.path, self.line, media=self.media, media_sum=checksum, structured=True)


def read_picture(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """A picture: a caption that lies beside it, and what it shows in words. Its title are the words of its name.

    The caption of ``chart.png`` is the text of ``chart.png.txt``, ``chart.png.caption`` or ``chart.caption``. A picture with neither
    caption nor words stands by its name, if that says something ("harbour-in-winter.jpg", not "IMG_0412.jpg")."""
    data = streams.read_document(path)
    if isinstance(data, Rejected):
        yield data
        return
    title, caption = words_of(stem(path)), caption_beside(path)
    tells = any(word.lower() not in _CAMERA and len(word) > 2 and word.isalpha() for word in title.split())
    told = Told(name, title, str(path), 0, [caption or title * tells], bool(caption) or tells, str(path))
    found = list(looked_at(data, told, options.document_seconds))
    yield from found
    if not any(isinstance(record, SourceDocument) or record.reason != records.UNREAD_PICTURE for record in found):
        yield Rejected(str(path), 0, records.NO_WORDS)


def looked_at(data: bytes, told: Told, seconds: float) -> Iterator[SourceDocument | Rejected]:
    """A picture as a document, if there is anything to say of it, or why it is none; and that its words could not be read, if so."""
    if not data or len(data) > MOST_BYTES or picture_type(data) is None:
        reason = records.NOT_A_PICTURE if picture_type(data) is None else records.TOO_LONG
        yield Rejected(told.media, 0, reason if data else records.EMPTY_FILE)
        return
    shows = recognised(data, seconds)
    if isinstance(shows, Beyond):
        yield Rejected(told.media, 0, shows.reason)
        return
    if not recognises():
        yield Rejected(told.media, 0, records.UNREAD_PICTURE)
    if document := told.document(shows, picture_sum(data)):
        yield document


def page_pictures(figures: Iterable[Figure], page: Path, name: str, title: str, options: SourceOptions) -> Iterator[Record]:
    """The pictures of a page, numbered from 1: the id is NAME#picture=2, the record's number the picture's.

    Those that lie below the folder of the source are looked at. Of others nothing is fetched: they stand by what the page says of them, if
    that is a caption or an alternative text of ``SAYS_ENOUGH`` words. ``name``: of ``page`` in ids, its path below the source."""
    for number, figure in enumerate(figures, 1):
        tells = any(map(says_enough, figure.said))
        beside = file_beside(page, name, figure.reference)
        media = canonical_line(figure.reference) if beside is None else str(beside)
        told = Told(f"{name}#picture={number}", title, str(page), number, [*figure.said, figure.around], tells, media)
        if beside is None:
            yield from filter(None, [told.document("")])
            continue
        data = streams.read_document(beside)
        if isinstance(data, Rejected):
            yield data
        else:
            yield from looked_at(data, told, options.document_seconds)


def says_enough(words: str) -> bool:
    """Tell what describes a picture from a name such as "logo"."""
    return len(_WORDS.findall(words)) >= SAYS_ENOUGH


def file_beside(page: Path, name: str, reference: str) -> Path | None:
    """The picture that a page refers to, if it is a file below the folder of the source.

    A page cannot lead out of that folder, through a link neither: whatever it names would be shown to who asks."""
    try:
        parts = urlsplit(reference)
        if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
            return None
        found = Path(os.path.normpath(page.parent / unquote(parts.path)))
        inside_source = found.resolve().is_relative_to(page.parents[name.count("/")].resolve())
        return found if inside_source and found.suffix.lower() in PICTURE_ENDINGS and found.is_file() else None
    except (ValueError, OSError, RuntimeError, IndexError):  # no path at all, or links in a circle
        return None


def words_of(name: str) -> str:
    """A name as words: "harbour-traffic_2019" is "harbour traffic 2019"."""
    return " ".join(_WORDS.findall(name)) or name


def caption_beside(path: Path) -> str:
    """Caption in a file beside a picture; empty where there is none."""
    for beside in (path.with_name(f"{path.name}.txt"), path.with_name(f"{path.name}.caption"), path.with_suffix(".caption")):
        try:
            if beside.is_file() and beside.stat().st_size <= CAPTION_BYTES:
                return beside.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue
    return ""


def is_caption(path: Path) -> bool:
    """True for the caption of a picture that lies beside it, no document of its own: ``chart.png.txt``, ``chart.caption``."""
    picture = path.with_suffix("")
    if path.suffix in (".txt", ".caption") and picture.suffix.lower() in PICTURE_ENDINGS and picture.is_file():
        return True
    return path.suffix == ".caption" and any(path.with_suffix(ending).is_file() for ending in PICTURE_ENDINGS)


def picture_bytes(media: str, checksum: str, seconds: float = records.DOCUMENT_SECONDS) -> bytes | None:
    """The bytes of a picture of the corpus, by the block's media and checksum, as they were when it was read; None where there is no such
    picture, or another one now. One inside a file may take so many seconds of computing."""
    inside = parted(media)
    try:
        if not checksum:
            return None
        data = _bounded(Path(media), MOST_BYTES) if inside is None else _inside(*inside, seconds)
    except (OSError, ValueError):
        return None
    return data if data is not None and picture_sum(data) == checksum else None


def _inside(path: str, page: int | None, number: int, seconds: float) -> bytes | None:
    data = _bounded(Path(path), streams.LINE_LIMIT)
    if data is None:
        return None
    pictures = pictures_of_docx(data, seconds) if page is None else pictures_of_page(data, page, seconds)
    return pictures[number - 1] if not isinstance(pictures, Beyond) and 0 < number <= len(pictures) else None


def _bounded(path: Path, most: int) -> bytes | None:
    """A regular file of at most so many bytes."""
    if not path.is_file() or path.stat().st_size > most:
        return None
    with open(path, "rb") as file:
        data = file.read(most + 1)
    return data if len(data) <= most else None


def pictures_of_page(data: bytes, page: int, seconds: float) -> list[bytes] | Beyond:
    """The pictures of a page of a PDF, from 1, in its order; empty bytes for what cannot be had."""
    found = read_limited("pdf pictures", b"%d\n" % page + data, seconds)
    return found if isinstance(found, Beyond) else [base64.b64decode(one) for one in found]


def pictures_of_docx(data: bytes, seconds: float) -> list[bytes] | Beyond:
    """The pictures of a Word file in its order."""
    found = read_limited("docx", data, seconds)
    return found if isinstance(found, Beyond) else [base64.b64decode(one) for one, _, _ in found[3]]
