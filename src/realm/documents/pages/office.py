"""Slides, sheets and rich text, each by the library kept for it: python-pptx, calamine, striprtf."""

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import regex

from realm.documents.detect import stem
from realm.documents.formats import SourceOptions
from realm.documents.pages.hypertext import lowered, raised
from realm.documents.pages.markup import Parts, read_as_parts
from realm.documents.records import COMMENT, Record, SourceDocument
from realm.errors import require_package
from realm.text.lines import joined_lines

_CELLS = " | "
_LINE = re.compile(r"\\line(?![a-z]) ?")
_FOOTNOTE = regex.compile(r"\{\\footnote(?![a-z]) ?(?P<words>(?:[^{}\\]++|\\.|\{(?&words)\})*+)\}", regex.DOTALL)
_SHIFTED = regex.compile(
    r"(\{)?\\(?P<how>super|sub|strike)(?![a-z0-9]) ?(?P<words>[^\\{}]*+)(?(1)\}|\\(?:nosupersub|strike0)(?![a-z0-9]) ?)"
)
_YEAR = re.compile("(19|20)[0-9]{2}")


def _read(kind: str, library: str, part: str, path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Documents of a file. Raises MissingExtra: its library is not installed."""
    require_package(library, f"reading {path.suffix.lower()} files", "office")
    for record in read_as_parts(kind, part, path, name, options):
        if isinstance(record, SourceDocument) and record.title != stem(path):
            record = replace(record, title=f"{stem(path)}: {record.title}")
        yield record


# Each slide is a document, NAME#slide=2: its text in order of the page, its tables row by row, and the speaker's notes.
read_slides = partial(_read, "slides", "pptx", "slide")
# Each sheet is a document, NAME#sheet=2: each row on a line, every value behind the head of its column.
read_sheets = partial(_read, "sheets", "python_calamine", "sheet")
read_rtf = partial(_read, "rtf", "striprtf", "")


def slides(data: bytes) -> Parts:
    """Title and text of each slide. Raises ValueError: the file is damaged."""
    from pptx import Presentation

    try:
        deck: Any = Presentation(io.BytesIO(data))
        beside = any(part.reltype.endswith("/comments") for slide in deck.slides for part in slide.part.rels.values())
        return [*map(_slide, deck.slides), *([(COMMENT, "")] if beside else [])]
    except Exception as error:  # what python-pptx and zipfile raise over a damaged file is theirs
        raise ValueError("damaged slides") from error


def _slide(slide: Any) -> tuple[str, str]:
    title = slide.shapes.title
    notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    head = " ".join(" ".join(_texts(title)).split()) if title is not None and title.has_text_frame else ""
    told = [text for shape in slide.shapes for text in _texts(shape)]
    for drawn in (part.target_part for part in slide.part.rels.values() if part.reltype.endswith("/diagramData")):
        told += [_paragraph(one) for one in ElementTree.fromstring(drawn.blob).iter() if one.tag.endswith("}p")]
    return head, "\n\n".join(filter(None, [*told, *(_paragraphs(notes) if notes else ())]))


def _texts(shape: Any) -> Iterator[str]:
    """The paragraphs of a shape, of the shapes it groups, and the rows of its table or chart."""
    for inner in getattr(shape, "shapes", ()):
        yield from _texts(inner)
    if shape.has_text_frame:
        yield from _paragraphs(shape.text_frame)
    if getattr(shape, "has_table", False):
        yield _table([[" ".join(_paragraphs(cell.text_frame)) for cell in row.cells] for row in shape.table.rows])
    if getattr(shape, "has_chart", False):
        series = [[one.name, *map(_value, one.values)] for plot in shape.chart.plots for one in plot.series]
        yield _table([["Series", *map(str, shape.chart.plots[0].categories)], *series])


def _paragraphs(frame: Any) -> list[str]:
    return [_paragraph(paragraph._p) for paragraph in frame.paragraphs]


def _paragraph(paragraph: Any) -> str:
    """The text of a paragraph, raised and lowered as its runs say; what is struck out only where there is nothing else."""
    text = struck = ""
    for part in paragraph:
        words = "".join(one.text or "" for one in part if one.tag.endswith("}t"))
        form: Any = next((one for one in part if one.tag.endswith("}rPr")), {})
        shift = form.get("baseline", "0")
        if form.get("strike", "noStrike") != "noStrike":
            struck += words
        else:
            words = "\n" if part.tag.endswith("}br") else words
            text += lowered(words, text) if shift[0] == "-" else raised(words, text) if shift != "0" else words
    return joined_lines(text.strip()) or (f"~~{struck.strip()}~~" if struck.strip() else "")


def sheets(data: bytes) -> Parts:
    """Name and rows of each sheet that has any. Raises ValueError: the file is damaged or needs a password."""
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
        found = [(name, [list(map(_value, row)) for row in book.get_sheet_by_name(name).to_python()]) for name in book.sheet_names]
    except CalamineError as error:
        raise ValueError("damaged sheets") from error
    return [(name, text) for name, rows in found if (text := _table(rows)).strip(" |\n")]


def _table(rows: list[list[str]]) -> str:
    """Rows, each value behind the head of its column: the first row as wide as the widest, or without its corner, if it holds names and
    years alone."""
    filled = [sum(map(bool, row)) for row in rows]
    widest = max(filled, default=0)
    at = next((number for number, count in enumerate(filled) if count >= max(2, widest - 1)), 0)
    if widest < 2 or any(value[:1].isdigit() and not _YEAR.fullmatch(value) for value in rows[at]):
        return "\n".join(_row(row) for row in rows if any(row))
    told = [[f"{name}: {value}" if name else value for name, value in zip(rows[at], row, strict=False) if value] for row in rows[at + 1 :]]
    return "\n".join(_row(row) for row in [*rows[: at + 1], *told] if any(row))


def _row(values: list[str]) -> str:
    return _CELLS.join(" ".join(value.split()) for value in values).rstrip(" |")


def _value(value: object) -> str:
    """A cell as people write it: whole numbers without a point, dates as 2024-03-14, times of day only where there is one."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).removesuffix(" 00:00:00")


def _shifted(match: "regex.Match[str]") -> str:
    """Raised or lowered text of a rich text file as it is written in plain text; nothing of what is struck out."""
    how, words, before = match["how"], match["words"], match.string[max(0, match.start() - 4) : match.start()]
    text = "" if how == "strike" else raised(words, before) if how == "super" else lowered(words, before)
    return "".join(letter if letter.isascii() else f"\\u{ord(letter)}?" for letter in text)


def rtf(data: bytes) -> Parts:
    """The text of a rich text file. Raises ValueError: it is none."""
    from striprtf.striprtf import rtf_to_text

    if not data.lstrip().startswith(b"{\\rtf"):
        raise ValueError("no rich text")
    source = _LINE.sub(r"\\'0b", _FOOTNOTE.sub(r"{ (\g<words>)}", _SHIFTED.sub(_shifted, data.decode("cp1252", "replace"))))
    text = rtf_to_text(source, encoding="cp1252", errors="replace")
    return [("", "\n\n".join(joined_lines(line.strip(" |").replace("\v", "\n")) for line in text.split("\n") if line.strip(" |")))]
