"""Pictures in a corpus: kinds told by first bytes, sizes, the checksum that a block keeps, and how a picture is named.

``media``, the name, is the path of a file, the path of a PDF or Word file and which of its pictures (``report.pdf#page=3&picture=1``,
``letter.docx#picture=2``), or, of a picture that a page shows and that does not lie beside it, the reference as the page has it."""

import hashlib
import re

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
