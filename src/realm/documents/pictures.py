"""Pictures in a corpus: kinds told by first bytes, sizes, the checksum that a block keeps, and how a picture is named; and as pages show
them: which file, what the page says of it, and the paragraph around it.

``media``, the name, is the path of a file, the path of a PDF or Word file and which of its pictures (``report.pdf#page=3&picture=1``,
``letter.docx#picture=2``), or, of a picture that a page shows and that does not lie beside it, the reference as the page has it."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import regex

TYPES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    "image/bmp": (b"BM",),
    "image/tiff": (b"II*\0", b"MM\0*"),
}
"""Media types that are read, and with what their files begin."""
SHOWN = frozenset(TYPES) - {"image/tiff"}
"""Those that browsers show."""
PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".gif", ".bmp")
PICTURE_OPENINGS = (b"\x89png", b"\xff\xd8\xff", b"gif87a", b"gif89a", b"ii*\0", b"mm\0*")
"""First bytes that tell a picture from any text, in lower case."""
MOST_BYTES = 2**25
"""Of one picture."""
MOST_PIXELS = 50_000_000
"""Of one picture: a page of A4 at 600 dots an inch has 35 million."""
_INSIDE = re.compile(r"(?s)(?P<path>.+)#(?:page=(?P<page>\d{1,6})&)?picture=(?P<number>\d{1,6})\Z")


def picture_type(data: bytes) -> str | None:
    """The media type that the first bytes show; None of what is none of ``TYPES``."""
    found = next((kind for kind, openings in TYPES.items() if data.startswith(openings)), None)
    return None if found == "image/webp" and data[8:12] != b"WEBP" else found


def picture_sum(data: bytes) -> str:
    """The checksum of a picture's bytes, 32 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def inside(path: str, number: int, page: int | None = None) -> str:
    """``media`` of a picture inside a file: its number from 1, on its page if the file has pages."""
    return f"{path}#{'' if page is None else f'page={page}&'}picture={number}"


def parted(media: str) -> tuple[str, int | None, int] | None:
    """(path, page, number) of a picture inside a file; None of another."""
    found = _INSIDE.match(media)
    return found and (found["path"], int(found["page"]) if found["page"] else None, int(found["number"]))


MOST_PICTURES = 200
"""Of one page; the rest is left out."""
LEAST_SIDE = 33
"""Pixels: what a page shows smaller is an icon."""
CAPTION = regex.compile(r"(?i)(fig(ure|\.)|table|chart|plate|photo(graph)?|abb(ildung|\.)|tabelle|图|圖|表|그림|표)\s*\d")
"""Beginning of a paragraph that is the caption of a picture beside it."""
_UNREAD = ("data:", "javascript:", "blob:")


class Figure(NamedTuple):
    """A picture on a page: its reference, its alternative text, title and caption (some empty), and the paragraph around it."""

    reference: str
    said: list[str]
    around: str


def markdown_figures(tokens: Sequence[Any], words: Sequence[str]) -> list[Figure]:
    """The pictures of a Markdown document in its order, each reference once, ``MOST_PICTURES`` at most; no vector graphics. ``words``: of
    each token of the kind "inline", its words without the pictures."""
    found: dict[str, Figure] = {}
    for at, token in enumerate(token for token in tokens if token.type == "inline"):
        for image in (child for child in token.children or () if child.type == "image"):
            reference = str(image.attrs.get("src", "")).strip()
            if may_be_read(reference) and reference not in found and len(found) < MOST_PICTURES:
                found[reference] = Figure(reference, [image.content, str(image.attrs.get("title", ""))], around(words, at))
    return list(found.values())


def may_be_read(reference: str) -> bool:
    """Tell the reference of a picture from none, and from one of vector graphics or inside the page."""
    bare = regex.split(r"[?#]", reference.lower(), maxsplit=1)[0]
    return bool(bare) and not bare.startswith(_UNREAD) and not bare.endswith((".svg", ".svgz"))


def told_in_text(alternative: str) -> str:
    """The alternative text of a picture that is never read, if it says more than a name."""
    return f" {alternative} " if len(alternative.split()) > 2 else ""


def around(paragraphs: Sequence[str], at: int) -> str:
    """Text around a picture in paragraph ``at``: that paragraph, else the next if a caption, else the last that is none, else the next."""
    own = paragraphs[at] if at < len(paragraphs) else ""
    before = next((text for text in reversed(paragraphs[:at]) if text and not CAPTION.match(text)), "")
    after = next(filter(None, paragraphs[at + 1 :]), "")
    return own or (after if CAPTION.match(after) else before or after)
