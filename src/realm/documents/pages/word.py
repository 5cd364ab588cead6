"""Word files as they read with all tracked changes accepted: every container is visited, written as HTML and read as that."""

import base64
import html
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import regex

from realm.documents.detect import stem
from realm.documents.limited import read_file
from realm.documents.pages.hypertext import MOST_SPANNED, blocks_of, headings_of, numeral, text_of
from realm.documents.pages.office import FORMULA_SIGNS, drawn, signs_around
from realm.documents.pages.pictures import Told, looked_at
from realm.documents.pictures import CAPTION, MOST_BYTES, around, inside, picture_type
from realm.documents.records import COMMENT, DELETED_TEXT, Record, Rejected, SourceOptions, document_or_rejected
from realm.errors import require_package

_DELETED = frozenset(["del", "moveFrom"])
_NO_TEXT = frozenset(["instrText", "delText", "delInstrText", "rPr", "pPr", "tcPr", "trPr", "sectPr", "sdtPr", "Fallback"])
_SIGNS = {"tab": " ", "cr": "<br>", "noBreakHyphen": "-", "ptab": " "}
_RAISED = {"superscript": "sup", "subscript": "sub"}
_FORMULA = {"sup": "sup", "sub": "sub", "f": "mfrac", "num": "mrow", "den": "mrow", "rad": "msqrt", "ruby": "ruby", "rt": "rt"}
"""Parts of a formula and small readings, and the tags that hypertext.py knows."""
_KINDS = "ms-word.document.macroEnabled", "ms-word.template.macroEnabledTemplate", "openxmlformats-officedocument.wordprocessingml.template"
_FORMS = {"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I"}


def read_docx(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The text of a Word file (.docx) in its order, rows of tables with their cells on one line, as one document; titled as a PDF is. Its
    pictures are documents of their own, NAME#picture=N. Raises MissingExtra: python-docx is not installed."""
    require_package("docx", "reading Word files", "docx")
    found = read_file("docx", path, options.document_seconds)
    if isinstance(found, Rejected):
        yield found
        return
    title, text, headings, pictures, left_out = found
    title = title or stem(path)
    yield document_or_rejected(name, title, text, str(path), 0, structured=True, headings=headings)
    yield from (Rejected(str(path), 0, reason) for reason in left_out)
    for number, (picture, alternative, beside) in enumerate(pictures, 1):
        said, told_at = [alternative, beside], inside(str(path), number)
        told = Told(f"{name}#picture={number}", title, str(path), number, said, bool(CAPTION.match(beside)), told_at)
        yield from looked_at(base64.b64decode(picture), told, options.document_seconds)


def docx_text(data: bytes) -> tuple[str, str, list[tuple[int, str]], list[tuple[str, str, str]], list[str]]:
    """Title, text, headings; of each picture its bytes in base64, its alternative text, and the paragraph around it; the kinds of
    text that are left out. Raises ValueError: it is no Word file."""
    from docx.opc.part import PartFactory
    from docx.package import Package
    from docx.parts.document import DocumentPart

    PartFactory.part_type_for.update({f"application/vnd.{kind}.main+xml": DocumentPart for kind in _KINDS})  # known: plain .docx alone
    try:
        document: Any = Package.open(io.BytesIO(data)).main_document_part.document
        writer = _Writer(document.part)
        named = any(rel.reltype.endswith("/core-properties") for rel in document.part.package.rels.values())  # else python-docx makes some
        blocks, title = blocks_of(writer.whole(document.element.body)), str(document.core_properties.title or "").strip() if named else ""
        return title, text_of(blocks), headings_of(blocks), list(_pictures(document, writer)), sorted(writer.left_out)
    except MemoryError:
        raise
    except Exception as error:  # the library lets out whatever zip, XML and its own look-ups raise
        raise ValueError("damaged") from error


def _pictures(document: Any, writer: "_Writer") -> Iterator[tuple[str, str, str]]:
    """Pictures in paragraphs, in order; those of kinds that are not read are left out."""
    paragraphs = [element for element in document.element.body.iter() if _name(element) == "p"]
    if not any(_name(element) == "drawing" for element in document.element.body.iter()):
        return
    texts, room = [" ".join(text_of(blocks_of(writer.inline(paragraph))).split()) for paragraph in paragraphs], MOST_BYTES
    for at, paragraph in enumerate(paragraphs):
        for drawing in (element for element in paragraph.iter() if _name(element) == "drawing"):
            for picture in _pictures_in(drawing, document.part):
                room -= len(picture)
                if room < 0:
                    return
                yield base64.b64encode(picture).decode(), _alternative(drawing), around(texts, at)


def _pictures_in(drawing: Any, part: Any) -> Iterator[bytes]:
    """The pictures of a drawing of kinds that are read."""
    for blip in (element for element in drawing.iter() if _name(element) == "blip"):
        inside = part.related_parts.get(next((value for key, value in blip.items() if key.endswith("}embed")), ""))
        if picture_type(picture := getattr(inside, "blob", b"")) is not None:
            yield picture


def _alternative(drawing: Any) -> str:
    """The text that stands for a drawing."""
    return " ".join(str(part.get("descr") or "") for part in drawing.iter() if _name(part) == "docPr")


class _Writer:
    """Writes the body of a Word file as HTML; ``left_out`` has the kinds of text that were met and not read."""

    def __init__(self, part: Any):
        self.left_out = set[str]()
        self._part = part
        self._parts = {
            kind: [rel.target_part for rel in part.rels.values() if not rel.is_external and rel.reltype.endswith(f"/{kind}")]
            for kind in _PARTS
        }
        self._notes = {
            (kind, _value(note, "id")): note
            for kind in ("footnotes", "endnotes")
            for root in self._roots(kind)
            for note in root
            if _value(note, "type") is None
        }
        self._numbers = _Numbers(self._roots("numbering"), self._roots("styles"))
        self._beside: list[str] = []
        self._before = ""

    def whole(self, body: Any) -> str:
        """Headers, body, footers; each header and footer once."""
        heads, feet = (dict.fromkeys(self.blocks(root) for root in self._roots(kind)) for kind in ("header", "footer"))
        return "".join([*heads, self.blocks(body), *feet])

    def blocks(self, parent: Any) -> str:
        """Paragraphs, tables and what holds them."""
        return "".join(self._block(child) for child in parent)

    def _block(self, element: Any) -> str:
        name = _name(element)
        if name == "p":
            outer, self._beside = self._beside, []
            tag, words = self._numbers.tag_of(element), self._before + self.inline(element)
            self._before = words if (joined := self._is_joined(element)) else ""
            text = "" if joined else f"<{tag}>{html.escape(self._numbers.of(element))}{words}</{tag}>"
            text += "".join(self._beside)
            self._beside = outer
            return text
        if name == "tbl":
            return f"<table>{self._rows(element)}</table>"
        if name == "altChunk" and (chunk := self._part.related_parts.get(_value(element, "id"))) is not None:
            text = text_of(blocks_of(chunk.blob.decode("utf-8", "replace"))) if "html" in chunk.content_type else docx_text(chunk.blob)[1]
            return "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in text.split("\n\n"))
        return "" if self._left_out(element) else self.blocks(element)

    def _is_joined(self, paragraph: Any) -> bool:
        """Return whether a tracked change deleted the end of a paragraph, so that the next one continues it."""
        marks, after = _child(_child(paragraph, "pPr"), "rPr"), paragraph.getnext()
        return after is not None and _name(after) == "p" and marks is not None and any(_name(mark) in _DELETED for mark in marks)

    def inline(self, parent: Any) -> str:
        """Runs and what holds them; boxes and notes are kept for behind the paragraph."""
        return "".join(self._inline(child) for child in parent)

    def _inline(self, element: Any) -> str:
        name = _name(element)
        if self._left_out(element):
            return ""
        if name == "t":
            return html.escape(element.text or "")
        if name == "br":
            return "" if _value(element, "type") in ("page", "column") else "<br>"
        if name in _SIGNS:
            return _SIGNS[name]
        if name == "ddList":
            entries = [_value(child, "val") or "" for child in element if _name(child) == "listEntry"]
            return html.escape("".join(entries[(at := _number(element, "result", 0, 10**6)) : at + 1]))
        if name == "sym":
            code = _value(element, "char")
            point = int(code, 16) if code and regex.fullmatch(r"[0-9A-Fa-f]{1,6}", code) else 0
            # symbol fonts write in the private area, where nothing says what a character is
            return "" if point < 0x20 or 0xD800 <= point <= 0xF8FF or point > 0x10FFFF else html.escape(chr(point))
        if name == "txbxContent":
            self._beside += [self.blocks(element)]
            return ""
        if name in ("footnoteReference", "endnoteReference"):
            note = self._notes.get((name.removesuffix("Reference") + "s", _value(element, "id")))
            if note is not None:
                self._beside += [self.blocks(note)]
            return ""
        held = (_value(element, "id") or _value(element, "dm")) if name in ("chart", "relIds") else None
        if (part := self._part.related_parts.get(held)) is not None:
            self._beside += [f"<p>{html.escape(line)}</p>" for line in drawn(part.blob).split("\n")]
        inside = self.inline(element)
        if name in FORMULA_SIGNS and name not in _FORMULA:
            before, behind = signs_around(element)
            inside = f"{html.escape(before)}{inside}{html.escape(behind)}"
        if name == "drawing" and not any(_pictures_in(element, self._part)):  # a chart, say; a picture is a document of its own
            return f"{inside} {html.escape(_alternative(element))} "
        if name == "r":
            return _formatted(element, inside, self._numbers.styles)
        tag = _FORMULA.get(name)
        return f"<{tag}>{inside}</{tag}>" if tag else inside

    def _left_out(self, element: Any) -> bool:
        """Return whether an element is not read: what tracked changes deleted, properties, and what is there a second time."""
        name = _name(element)
        if name in _DELETED and any(_name(part) in ("t", "delText") for part in element.iter()):
            self.left_out.add(DELETED_TEXT)
        elif name == "commentReference":
            self.left_out.add(COMMENT)
        return name in _DELETED or name in _NO_TEXT

    def _rows(self, table: Any) -> str:
        rows, above = [], dict[int, str]()
        for row in _inside(table, "tr"):
            properties = _child(row, "trPr")
            if properties is not None and _child(properties, "del") is not None:
                self.left_out.add(DELETED_TEXT)
                continue
            rows.append(f"<tr>{self._cells(row, above, _number(properties, 'gridBefore', 0))}</tr>")
        return "".join(rows)

    def _cells(self, row: Any, above: dict[int, str], skipped: int) -> str:
        """The cells of a row, behind as many columns that it leaves free; one that is merged with that above says the same."""
        cells, at = ["<td></td>"] * skipped, skipped
        for cell in _inside(row, "tc"):
            properties = _child(cell, "tcPr")
            merged = None if properties is None else _child(properties, "vMerge")
            text = above.get(at, "") if merged is not None and _value(merged, "val") in (None, "continue") else self.blocks(cell)
            span = _number(properties, "gridSpan", 1)
            cells.append(f'<td colspan="{span}">{text}</td>')
            above[at] = text
            at += span
        return "".join(cells)

    def _roots(self, kind: str) -> list[Any]:
        from docx.oxml import parse_xml

        return [part.element if hasattr(part, "element") else parse_xml(part.blob) for part in self._parts[kind]]


_PARTS = ("footnotes", "endnotes", "header", "footer", "numbering", "styles")


class _Numbers:
    """The numbers that Word writes before the items of lists and before headings."""

    def __init__(self, numbering: list[Any], styles: list[Any]):
        levels = {
            _value(one, "abstractNumId"): {_value(level, "ilvl"): level for level in _inside(one, "lvl")}
            for root in numbering
            for one in _inside(root, "abstractNum")
        }
        self._levels = {
            _value(one, "numId"): levels.get(_value(_child(one, "abstractNumId"), "val"), {})
            for root in numbering
            for one in _inside(root, "num")
        }
        self.styles = {_value(style, "styleId"): style for root in styles for style in _inside(root, "style")}
        self._counts: dict[str | None, list[int]] = {}

    def of(self, paragraph: Any) -> str:
        """The number before a paragraph; empty where it is no item, or one with a bullet."""
        number, level = self._place(paragraph)
        levels = self._levels.get(number, {})
        own = levels.get(str(level))
        if own is None or _value(_child(own, "numFmt"), "val") in ("bullet", "none", None):
            return ""
        counts = self._counts.setdefault(number, [])
        first = [_number(levels.get(str(at)), "start", 1, 10**6) for at in range(level + 1)]
        counts[:] = [*counts[: level + 1], *first[len(counts) :]] if len(counts) <= level else [*counts[:level], counts[level] + 1]
        formats = [_value(_child(levels.get(str(at)), "numFmt"), "val") for at in range(level + 1)]
        pattern = _value(_child(own, "lvlText"), "val") or ""
        return regex.sub(r"%([1-9])", lambda match: _written(counts, formats, int(match[1]) - 1), pattern) + " "

    def tag_of(self, paragraph: Any) -> str:
        """The tag of a paragraph: of a heading, by the level in the outline that it or its style has, or p."""
        properties = _child(paragraph, "pPr")
        style = _child(self.styles.get(_value(_child(properties, "pStyle"), "val")), "pPr")
        level = _value(_child(properties, "outlineLvl"), "val") or _value(_child(style, "outlineLvl"), "val")
        return f"h{int(level) + 1}" if level and level in "012345" else "p"

    def _place(self, paragraph: Any) -> tuple[str | None, int]:
        """The list and the level of a paragraph, its own or its style's."""
        holder, seen = paragraph, 0
        number: str | None = None
        level: str | None = None
        while holder is not None and seen < 10 and number is None:
            properties = _child(holder, "pPr")
            listed = None if properties is None else _child(properties, "numPr")
            number, level = _value(_child(listed, "numId"), "val"), level or _value(_child(listed, "ilvl"), "val")
            style = _child(properties, "pStyle") if holder is paragraph else _child(holder, "basedOn")
            holder, seen = self.styles.get(_value(style, "val")), seen + 1
        return number, int(level) if level and level in "012345678" else 0


def _written(counts: list[int], formats: list[str | None], at: int) -> str:
    if at >= len(counts):
        return ""
    return numeral(counts[at], _FORMS.get(formats[at] or "", "1"))


def _formatted(run: Any, text: str, styles: dict[str | None, Any]) -> str:
    """The text of a run, raised, lowered or struck as its format or its style says."""
    own = _child(run, "rPr")
    if own is None or not text:
        return text
    properties = (own, _child(styles.get(_value(_child(own, "rStyle"), "val")), "rPr"))
    said = {part: _value(mark, "val") for of in reversed(properties) if of is not None for mark in of for part in [_name(mark)]}
    tags = [_RAISED.get(said.get("vertAlign") or "")]
    if shift := regex.fullmatch(r"(-?)[1-9]\d*", said.get("position") or ""):
        tags.append("sub" if shift[1] else "sup")
    tags += ["s" for name in ("strike", "dstrike") if said.get(name, "0") not in ("0", "false", "off")]
    for tag in filter(None, tags):
        text = f"<{tag}>{text}</{tag}>"
    return text


def _name(element: Any) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _child(element: Any, name: str) -> Any:
    return None if element is None else next((child for child in element if _name(child) == name), None)


def _inside(element: Any, name: str) -> Iterator[Any]:
    """The children of a name, through the controls and changes that may stand around them."""
    for child in element:
        if _name(child) == name:
            yield child
        elif _name(child) in ("sdt", "sdtContent", "customXml", "ins", "moveTo", "smartTag"):
            yield from _inside(child, name)


def _value(element: Any, name: str) -> str | None:
    """An attribute, whatever its namespace."""
    return None if element is None else next((str(value) for key, value in element.items() if key.rpartition("}")[2] == name), None)


def _number(properties: Any, name: str, least: int, most: int = MOST_SPANNED) -> int:
    """The number that a property of a row, a cell or a list says, within reason."""
    text = _value(_child(properties, name), "val") or ""
    return min(max(int(text), least), most) if text.isascii() and text.isdigit() and len(text) < 9 else least
