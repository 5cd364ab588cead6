"""The words that a picture shows (extra ``ocr``): decoded and recognised in the limited child, put into lines here, kept in a cache.

What was recognised is kept by the checksum of the picture, so that a sync recognises only what is new. ``realm cache clear`` removes it."""

import io
import itertools
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from realm.documents.limited import Beyond, read_limited
from realm.documents.pages.layout import Piece, rows_of
from realm.documents.pages.paragraphs import unwrapped
from realm.documents.pictures import MOST_PIXELS
from realm.documents.records import DAMAGED_PICTURE, TOO_MANY_PIXELS
from realm.storage.files import write_atomic

_LAYOUT = 1
"""Counts up with every change of how lines are made of what is recognised."""
_DECODERS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
APART = 1.2
"""Gap between pieces of a row, in heights, from which they are cells and not words."""


SHORT_SIDE, LONG_SIDE = 736, 1440
"""Pixels of the picture in which words are looked for: a small one is enlarged until its shorter side has so many, unless the longer one
would have more than that; of a large one the longer side is so many, which takes 600 MB."""
PARTED = 0.9
"""Gap between rows, in heights, from which they are two paragraphs."""


def recognition_directory() -> Path:
    return user_cache_path("realm") / "recognised"


def recognises() -> bool:
    return find_spec("rapidocr") is not None


def recognition_state() -> str:
    """Version of the recognition, to tell its words from those of another; empty: none is installed."""
    if not recognises():
        return ""
    from importlib.metadata import version

    return f"rapidocr {version('rapidocr')}/{_LAYOUT}"


def recognised(data: bytes, seconds: float) -> str | Beyond:
    """The words of a picture, given by its bytes, in lines, none where the extra is not installed; or why it cannot be used."""
    if find_spec("PIL") is None:
        return ""  # nothing here can look into a picture
    engine = recognition_state()
    kept = recognition_directory() / f"{sha256(engine.encode() + b' ' + data).hexdigest()}.txt"
    if engine:
        with suppress(OSError, UnicodeDecodeError):
            return kept.read_text("utf-8")
    found = read_limited("picture", data, seconds, DAMAGED_PICTURE)
    if isinstance(found, Beyond) or found == TOO_MANY_PIXELS:
        return found if isinstance(found, Beyond) else Beyond(found)
    text = lines_of([Piece(*piece) for piece in found])
    if engine:
        with suppress(OSError):  # a home that cannot be written to
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(kept, text.encode("utf-8"))
    return text


def picture_text(data: bytes) -> list[tuple[str, float, float, float, float]] | str:
    """Pieces recognised in a picture: of each its words, and left, top, right and bottom in pixels; or ``TOO_MANY_PIXELS``.

    An animated picture is its first one. Without the engine the picture is only decoded. Raises ValueError: it is damaged."""
    engine = _engine()
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # our own limit holds
    try:
        with Image.open(io.BytesIO(data), formats=_DECODERS) as image:
            if image.width * image.height > MOST_PIXELS:
                return TOO_MANY_PIXELS
            pixels = _pixels(image)
    except MemoryError:
        raise
    except Exception as error:  # each decoder lets out errors of its own
        raise ValueError("damaged") from error
    if engine is None:
        return []
    sides = pixels.shape[:2]
    enlarged = max(sides) * max(1.0, SHORT_SIDE / min(sides)) <= LONG_SIDE
    detector = engine.text_det  # words are looked for in a smaller picture than they are read in
    detector.limit_type, detector.limit_side_len = ("min", SHORT_SIDE) if enlarged else ("max", LONG_SIDE)
    try:
        found = engine(pixels)
    except Exception as error:  # it has refused no picture that was decoded; what it cannot allocate has an error of its own
        raise MemoryError from error
    if found.boxes is None:
        return []
    edges = [(box.min(0), box.max(0)) for box in found.boxes]
    return [(text, *map(float, low), *map(float, high)) for text, (low, high) in zip(found.txts, edges, strict=True)]


@cache
def _engine() -> Any:
    """RapidOCR with the models of its wheel, on one thread so that the same picture gives the same words; None: not installed."""
    if not recognises():
        return None
    from PIL import Image, ImageDraw, ImageFont
    from rapidocr import RapidOCR

    threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    engine = RapidOCR(params={"Global.log_level": "critical", **threads})
    page = Image.new("RGB", (240, 80), "white")
    ImageDraw.Draw(page).text((20, 20), "Words", fill="black", font=ImageFont.load_default(32))
    engine(_pixels(page))  # it loads each model when it needs it first, which is no picture's time and memory
    return engine


def _pixels(image: Any) -> Any:
    """uint8 [height, width, 3], blue first: upright, 16 bits scaled to 8, what is transparent in front of what it can be read on."""
    import numpy as np
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":
        values = np.nan_to_num(np.asarray(image, np.float64))
        low, high = values.min(), values.max()
        image = Image.fromarray(((values - low) * (255.0 / max(high - low, 1.0))).astype(np.uint8))
    if image.mode in ("LA", "PA", "RGBA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        opaque = np.asarray(image)
        drawn = opaque[..., :3][opaque[..., 3] > 127]
        light = len(drawn) > 0 and drawn.mean() > 127
        behind = Image.new("RGBA", image.size, "black" if light and (opaque[..., 3] < 128).mean() > 0.5 else "white")
        image = Image.alpha_composite(behind, image)
    return np.ascontiguousarray(np.asarray(image.convert("RGB"))[..., ::-1])


def lines_of(pieces: Sequence[Piece]) -> str:
    """Text of what was recognised: rows from above, cells of a row with a bar between them, lines of prose joined; then names of bars with
    their values, what is written upwards, and numbers that stand alone.

    Example: a bar chart whose bars "Rye" and "Corn" carry 45 and 120 says "Rye | 45" and "Corn | 120"."""
    flat = [piece for piece in pieces if not piece.upwards]
    pairs = _named_values(flat)
    used = {id(piece) for pair in pairs for piece in pair}
    lines: list[str] = []
    prose: list[str] = []
    alone: list[str] = []
    above: list[Piece] = []
    for row in rows_of([piece for piece in flat if id(piece) not in used]):
        cells = _cells(row)
        if above and row[0].top - above[0].bottom > PARTED * above[0].height:
            prose.append("")
        above = row
        if len(cells) == 1:
            (alone if _is_value(cells[0]) else prose).append(cells[0])
            continue
        lines += [unwrapped("\n".join(prose)), " | ".join(cells)]
        prose = []
    lines.append(unwrapped("\n".join(prose)))
    lines += [f"{name.text} | {value.text}" for name, value in pairs]
    lines += [piece.text for piece in pieces if piece.upwards] + [" | ".join(alone)]
    return "\n\n".join(filter(None, lines))


def _cells(row: Sequence[Piece]) -> list[str]:
    """Texts of a row: what a wide gap parts are two."""
    cells = [row[0].text]
    for before, piece in itertools.pairwise(row):
        if piece.left - before.right > APART * min(before.height, piece.height):
            cells.append(piece.text)
        else:
            cells[-1] += f" {piece.text}"
    return cells


def _is_value(text: str) -> bool:
    return sum(map(str.isdigit, text)) * 2 >= len(text.replace(" ", ""))


def _named_values(pieces: Sequence[Piece]) -> list[tuple[Piece, Piece]]:
    """(name, value) of the bars or points of a chart: names in one row, above each of them one value that no other name is nearer to.

    Names are words, or numbers that ascend, as years below a line do. Numbers in a column are those of an axis. Nothing where a name
    has several values above it (groups of bars, a table), or only one has any."""
    values = [piece for piece in pieces if _is_value(piece.text)]
    free = [value for value in values if sum(abs(value.right - other.right) < 0.5 * value.height for other in values) < 3]
    rows = [row for row in reversed(rows_of([piece for piece in pieces if not _is_value(piece.text)])) if len(row) > 1]
    rows += [row for row in reversed(rows_of(values)) if _ascend(row)][:1]
    for row in rows:
        reach = min(after.middle[0] - before.middle[0] for before, after in itertools.pairwise(row)) / 4
        found = [(name, [v for v in free if v.bottom <= name.top and abs(v.middle[0] - name.middle[0]) < reach]) for name in row]
        if all(len(above) <= 1 for _, above in found) and sum(map(bool, (above for _, above in found))) > 1:
            return [(name, above[0]) for name, above in found if above]
    return []


def _ascend(row: Sequence[Piece]) -> bool:
    """Return whether a row is three whole numbers or more, each larger than the one before."""
    if len(row) < 3 or not all(piece.text.isdecimal() for piece in row):
        return False
    return all(int(before.text) < int(after.text) for before, after in itertools.pairwise(row))
