"""Slides, sheets and rich text, each by the library kept for it: python-pptx, calamine (formats of XLS: xlrd), striprtf."""

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial, reduce
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

import regex

from realm.documents.detect import stem
from realm.documents.pages.hypertext import MOST_SPANNED, lowered, raised
from realm.documents.pages.markup import Parts, read_as_parts
from realm.documents.pages.pictures import says_enough
from realm.documents.records import COMMENT, Record, SourceDocument, SourceOptions
from realm.errors import require_package
from realm.text.lines import joined_lines

_CELLS = " | "
_LINE = re.compile(r"\\line(?![a-z]) ?")
_BESIDE = regex.compile(
    r"\{\\(?:(?P<note>footnote)|header[lrf]?|footer[lrf]?)(?![a-z]) ?(?P<words>(?:[^{}\\]++|\\.|\{(?&words)\})*+)\}", regex.DOTALL
)
_CONTROL = r"\\[a-z]+-?\d* ?"
_SHIFTED = regex.compile(
    rf"(\{{(?:{_CONTROL})*?)?\\(?P<how>super|sub|strike|deleted)1?(?![a-z0-9]) ?(?:{_CONTROL})*?(?P<words>(?:[^\\{{}}]|\\'\w\w)*+)"
    r"(?(1)\}|\\(?:nosupersub|strike0|deleted0)(?![a-z0-9]) ?)"
)
_YEAR, _BEGINS_WITH_DIGIT = re.compile("(19|20)[0-9]{2}"), re.compile(r"\W*\d")
_CELL, _STYLE = re.compile(r"<(?:\w+:)?c\s[^>]*"), re.compile(r"""\ss=["'](\d+)["']""")
_PLACE = re.compile(r"""\sr=["']([A-Z]{1,3})(\d{1,7})["']""")
_PERCENT = {"9": "0%", "10": "0.00%"}
"""Formats that every file has under these numbers."""
_LITERAL = re.compile(r'"([^"]*)"|\\(.)|_.|\*.|\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]')
_RUN = re.compile(r"<r>(?:<rPr>(.{0,999}?)</rPr>)?<t[^>]*>([^<]*)</t></r>", re.DOTALL)
_POINT, _SIGNED = re.compile(r"-?\d+\.\d+(E-?\d+)?"), re.compile(r"[^\d.,'\s+-]")
_TABLE, _OFFICE = (f"{{urn:oasis:names:tc:opendocument:xmlns:{name}:1.0}}" for name in ("table", "office"))
MOST_UNPACKED = 2**26
"""Bytes of a workbook up to which its numbers are read as OpenDocument shows them and its strings with powers; others as they are."""
MOST_FORMATTED, _OLE = 2**22, bytes.fromhex("d0cf11e0")
"""Bytes of an XLS file up to which its numbers are read as their formats show them, and how such a file begins."""
Cell = tuple[int, int]
_NUMBER = re.compile(r"(?P<before>[^#0?]*)(?P<whole>[#0?][#0?,]*)(?:\.(?P<part>[#0?]*))?(?P<after>(?!,)(?<!,)[^#0?]*)")
"""A format of numbers: its words and signs, the digits before and behind the point."""


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
    from pptx.package import Package

    try:
        deck: Any = Package.open(io.BytesIO(data)).main_document_part.presentation  # of a show and of a template, too
        beside = any(part.reltype.endswith("/comments") for slide in deck.slides for part in slide.part.rels.values())
        return [*map(_slide, deck.slides), *([(COMMENT, "")] if beside else [])]
    except Exception as error:  # what python-pptx and zipfile raise over a damaged file is theirs
        raise ValueError("damaged slides") from error


def _slide(slide: Any) -> tuple[str, str]:
    title = slide.shapes.title
    notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    head = " ".join(" ".join(_texts(title)).split()) if title is not None and title.has_text_frame else ""
    told = [text for shape in slide.shapes for text in _texts(shape)]
    told += [drawn(part.target_part.blob) for part in slide.part.rels.values() if part.reltype.endswith(("/diagramData", "/chart"))]
    return head, "\n\n".join(filter(None, [*told, *(_paragraphs(notes) if notes else ())]))


def _texts(shape: Any) -> Iterator[str]:
    """The paragraphs of a shape, of the shapes it groups, and the rows of its table or chart."""
    for inner in getattr(shape, "shapes", ()):
        yield from _texts(inner)
    if shape.has_text_frame:
        yield from _paragraphs(shape.text_frame)
    if getattr(shape, "has_table", False):
        found = [[" ".join(_paragraphs(cell.text_frame)) for cell in row.cells] for row in shape.table.rows]
        for at, row in enumerate(shape.table.rows):
            for column, cell in enumerate(row.cells):
                if cell.is_merge_origin:
                    _say_again(found[at : at + cell.span_height], column, column + cell.span_width)
        yield _table(found)
    said = shape._element.find(".//{*}cNvPr").get("descr", "") if shape._element.tag.endswith("}pic") else ""
    if says_enough(said):
        yield said


def drawn(data: bytes) -> str:
    """Words of a diagram or a chart of an office file: its paragraphs and titles, a table of its series."""
    root, rows = ElementTree.fromstring(data), list[list[str]]()
    for series in root.iterfind(".//{*}ser"):
        said = {part.tag.rpartition("}")[2]: [one.text or "" for one in part.iterfind(".//{*}v")] for part in series}
        rows = rows or [["Series", *said.get("cat", said.get("xVal", []))]]
        rows.append([" ".join(said.get("tx", [])), *said.get("val", said.get("yVal", []))])
    paragraphs = [_paragraph(one) for one in root.iterfind(".//{*}p")]
    table = _table([[_value(float(value)) if _POINT.fullmatch(value) else value for value in row] for row in rows])
    return "\n\n".join(filter(None, [*paragraphs, table]))


def _paragraphs(frame: Any) -> list[str]:
    """The paragraphs of a frame, numbered ones with their numbers, which count until one of a lower level."""
    found, counts = list[str](), dict[int, int]()
    for paragraph in frame.paragraphs:
        words, numbered = _paragraph(paragraph._p), paragraph._p.find("{*}pPr/{*}buAutoNum")
        counts = {level: count for level, count in counts.items() if level < paragraph.level + (numbered is not None)}
        if numbered is not None and words:
            counts[paragraph.level] = counts.get(paragraph.level, int(numbered.get("startAt", 1)) - 1) + 1
            words = f"{counts[paragraph.level]}. {words}"
        found.append(words)
    return found


def _paragraph(paragraph: Any) -> str:
    """The text of a paragraph, raised and lowered as its runs say; what is struck out only where there is nothing else."""
    text = struck = ""
    for part in paragraph:
        words = _words(part, text)
        form: Any = next((one for one in part if one.tag.endswith("}rPr")), {})
        shift = form.get("baseline", "0")
        if form.get("strike", "noStrike") != "noStrike":
            struck += words
        else:
            words = "\n" if part.tag.endswith("}br") else words
            text += lowered(words, text) if shift[0] == "-" else raised(words, text) if shift != "0" else words
    return joined_lines(text.strip()) or (f"~~{struck.strip()}~~" if struck.strip() else "")


def _words(part: Any, before: str) -> str:
    """The words of a part of a paragraph, of a formula as plain text has it."""
    said = str(part.text or "") if part.tag.endswith("}t") else ""
    for one in part:
        kind = one.tag.rpartition("}")[2]
        words = "" if kind == "Fallback" else _words(one, before + said)
        if kind in FORMULA_SIGNS:
            words = words.join(signs_around(one))
        if kind in ("num", "den"):
            words = "/" * (kind == "den") + (f"({words})" if re.search(r"\W", words) else words)
        said += raised(words, before + said) if kind == "sup" else lowered(words, before + said) if kind == "sub" else words
    return said


FORMULA_SIGNS = {"d": ("begChr", "(", "endChr", ")"), "nary": ("chr", "∫", "", ""), "rad": ("", "√", "", "")}
"""Parts of a formula, and what names the sign before and behind each, with the usual one."""


def signs_around(part: Any) -> tuple[str, str]:
    """The signs before and behind a part of a formula: brackets, a sum, a root."""
    kind = part.tag.rpartition("}")[2]
    named = {one.tag.rpartition("}")[2]: next(iter(one.values()), "") for one in part.iterfind(f"{{*}}{kind}Pr/*")}
    begins, usual, ends, last = FORMULA_SIGNS[kind]
    return named.get(begins, usual), named.get(ends, last)


def sheets(data: bytes) -> Parts:
    """Name and rows of each sheet that has any. Raises ValueError: the file is damaged or needs a password."""
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        book, formats = CalamineWorkbook.from_filelike(io.BytesIO(_spelt(data))), dict(_formats(data))
        found = [(name, _values(book.get_sheet_by_name(name), formats.get(name, {}))) for name in book.sheet_names]
    except CalamineError as error:
        raise ValueError("damaged sheets") from error
    return [(name, text) for name, rows in found if (text := _table(rows)).strip(" |\n")]


def _values(sheet: Any, formats: dict[Cell, str]) -> list[list[str]]:
    """The rows of a sheet, numbers with the words and signs that ``formats`` has for cells, or as shown where one begins with "="."""
    (top, left), rows = sheet.start or (0, 0), sheet.to_python()
    found = [list(map(_value, row)) for row in rows]
    for cell, code in formats.items():
        row, column = cell[0] - top, cell[1] - left
        if 0 <= row < len(rows) and 0 <= column < len(rows[row]) and type(value := rows[row][column]) in (int, float):
            found[row][column] = code[1:] if code[0] == "=" else _shown(value, code)
    for (first, start), (last, end) in sheet.merged_cell_ranges or ():
        if first >= top and start >= left:
            _say_again(found[first - top : last - top + 1][:MOST_SPANNED], start - left, end - left + 1)
    return found


def _say_again(rows: list[list[str]], start: int, end: int) -> None:
    """Write what a merged cell says into every part of it, unless it is a line across the sheet."""
    if rows and start < len(rows[0]) and (start or end < len(rows[0])):
        for row in rows:
            row[start:end] = [rows[0][start]] * len(row[start:end])


def _formats(data: bytes) -> Iterator[tuple[str, dict[Cell, str]]]:
    """Of each sheet its name and the formats of cells whose numbers stand beside words or signs; of ODS what is shown, behind "="."""
    if data[:4] == _OLE and len(data) <= MOST_FORMATTED:
        yield from _formats_of_xls(data)
        return
    with suppress(BadZipFile, KeyError, ElementTree.ParseError, ValueError), ZipFile(io.BytesIO(data)) as book:
        content = book.read("content.xml") if "content.xml" in book.namelist() and not _is_large(book) else b"<none/>"
        for table in ElementTree.fromstring(content).iterfind(".//{*}table"):
            yield table.get(f"{_TABLE}name", ""), dict(_displayed(table))
        styles = ElementTree.fromstring(book.read("xl/styles.xml"))
        codes = _PERCENT | {one.get("numFmtId"): one.get("formatCode") for one in styles.iterfind("{*}numFmts/{*}numFmt")}
        telling = _telling([codes.get(one.get("numFmtId")) or "" for one in styles.iterfind("{*}cellXfs/{*}xf")])
        parts = {one.get("Id"): one.get("Target", "") for one in ElementTree.fromstring(book.read("xl/_rels/workbook.xml.rels"))}
        for sheet in ElementTree.fromstring(book.read("xl/workbook.xml")).iterfind("{*}sheets/{*}sheet") if telling else ():
            place = parts[next((value for key, value in sheet.items() if key.endswith("}id")), "")]
            cells = _CELL.finditer(book.read(place.removeprefix("/") if place[:1] == "/" else f"xl/{place}").decode())
            styled = ((_PLACE.search(cell[0]), _STYLE.search(cell[0])) for cell in cells)
            named = ((at[2], at[1], telling[style[1]]) for at, style in styled if at and style and style[1] in telling)
            numbers = ((row, reduce(lambda count, letter: 26 * count + ord(letter) - 64, name, 0), code) for row, name, code in named)
            yield sheet.get("name", ""), {(int(row) - 1, column - 1): code for row, column, code in numbers}


def _formats_of_xls(data: bytes) -> Iterator[tuple[str, dict[Cell, str]]]:
    with suppress(Exception):  # what xlrd raises over a damaged file is its own; calamine says whether there are values
        import xlrd

        book = xlrd.open_workbook(file_contents=data, formatting_info=True, logfile=io.StringIO())
        codes = [str(book.format_map[one.format_key].format_str) for one in book.xf_list]
        telling = _telling(codes)
        for sheet in book.sheets():
            cells = ((row, column) for row in range(sheet.nrows) for column in range(sheet.row_len(row)))
            styled = ((cell, str(sheet.cell_xf_index(*cell))) for cell in cells)
            yield sheet.name, {cell: telling[style] for cell, style in styled if style in telling}


def _telling(codes: list[str]) -> dict[str, str]:
    """By the numbers of their styles the formats that show a number with a word or a sign."""
    return {str(number): code for number, code in enumerate(codes) if _shown(0, code) != "0"}


def _is_large(book: ZipFile) -> bool:
    return sum(part.file_size for part in book.infolist()) > MOST_UNPACKED


def _displayed(table: ElementTree.Element) -> Iterator[tuple[Cell, str]]:
    """The cells of an OpenDocument table whose numbers are shown beside a word or a sign, as they are shown."""
    row = 0
    for line in table.iterfind(".//{*}table-row"):
        column = 0
        for cell in line:
            words, across = "".join(cell.itertext()).strip(), int(cell.get(f"{_TABLE}number-columns-repeated", 1))
            if cell.get(f"{_OFFICE}value-type") in ("float", "percentage", "currency") and _SIGNED.search(words):
                yield from (((row, column + more), f"={words}") for more in range(min(across, MOST_SPANNED)))
            column += across
        row += int(line.get(f"{_TABLE}number-rows-repeated", 1))


def _spelt(data: bytes) -> bytes:
    """An XLSX file whose strings raise and lower figures by characters and hold nothing that is struck out; another as it is."""
    with suppress(BadZipFile, KeyError, UnicodeDecodeError), ZipFile(io.BytesIO(data)) as book, ZipFile(made := io.BytesIO(), "w") as spelt:
        strings = book.read("xl/sharedStrings.xml").decode()
        if ("<vertAlign" not in strings and "<strike" not in strings) or _is_large(book):
            return data
        for name in book.namelist():
            spelt.writestr(name, _RUN.sub(_spelt_run, strings) if name == "xl/sharedStrings.xml" else book.read(name))
        spelt.close()
        return made.getvalue()
    return data


def _spelt_run(run: re.Match[str]) -> str:
    form, words, before = run[1] or "", run[2], re.sub("<[^>]*>", "", run.string[max(0, run.start() - 200) : run.start()])
    words = raised(words, before) if '"superscript"' in form else lowered(words, before) if '"subscript"' in form else words
    return f'<r><t xml:space="preserve">{"" if re.search("<strike(?! val=.0)", form) else words}</t></r>'


def _shown(value: float, code: str) -> str:
    """A number as its format writes it, where that adds a word or a sign: 50 %, €1,200.00, 5 kg; by others as it is."""
    plain = _LITERAL.sub(lambda found: found[1] or found[2] or found[3] or "", code.split(";")[0])
    form = _NUMBER.fullmatch(plain)
    if form is None or not (form["before"] + form["after"]).strip():
        return f"{value:0{len(plain)}.0f}" if plain.strip("0") == "" and len(plain) > 1 else _value(value)
    digits = f"{value * (100 if '%' in plain else 1):{',' * (',' in form['whole'])}.{len(form['part'] or '')}f}"
    digits = digits.rstrip("0").rstrip(".") if "#" in (form["part"] or "") else digits
    return f"{'-' * (digits[0] == '-')}{form['before']}{digits.removeprefix('-')}{form['after']}".strip()


def _table(rows: list[list[str]]) -> str:
    """Rows, each value behind its column's head: the first row as wide as the widest, or without its corner, if of names and years."""
    filled = [sum(map(bool, row)) for row in rows]
    widest = max(filled, default=0)
    at = next((number for number, count in enumerate(filled) if count >= max(2, widest - 1)), 0)
    if widest < 2 or any(_BEGINS_WITH_DIGIT.match(value) and not _YEAR.fullmatch(value) for value in rows[at]):
        return "\n".join(_row(row) for row in rows if any(row))
    told = [[f"{name}: {value}" if name else value for name, value in zip(rows[at], row, strict=False) if value] for row in rows[at + 1 :]]
    return "\n".join(_row(row) for row in [*rows[: at + 1], *told] if any(row))


def _row(values: list[str]) -> str:
    return _CELLS.join(" ".join(value.split()) for value in values).rstrip(" |")


def _value(value: object) -> str:
    """A cell as people write it: whole numbers without a point, dates as 2024-03-14, times of day only where there is one, 37:30 hours."""
    if isinstance(value, timedelta):
        minutes, seconds = divmod(round(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}" + f":{seconds:02}" * (seconds > 0)
    if isinstance(value, float):  # with the 15 figures that a sheet has
        return str(int(value)) if value.is_integer() else f"{value:.15g}"
    return str(value).removesuffix(" 00:00:00")


def _shifted(match: "regex.Match[str]") -> str:
    """Raised or lowered text of a rich text file as it is written in plain text; nothing of what is struck out."""
    how, words, before = match["how"], match["words"], match.string[max(0, match.start() - 4) : match.start()]
    text = "" if how in ("strike", "deleted") else raised(words, before) if how == "super" else lowered(words, before)
    return "".join(letter if letter.isascii() else f"\\u{ord(letter)}?" for letter in text)


def rtf(data: bytes) -> Parts:
    """The text of a rich text file. Raises ValueError: it is none."""
    from striprtf.striprtf import rtf_to_text

    if not data.lstrip().startswith(b"{\\rtf"):
        raise ValueError("no rich text")
    source = _SHIFTED.sub(_shifted, data.decode("cp1252", "replace"))
    source = _BESIDE.sub(lambda found: f"{{ ({found['words']})}}" if found["note"] else f"{{{found['words']}\\par }}", source)
    source = _LINE.sub(r"\\'0b", source)
    text = rtf_to_text(source, encoding="cp1252", errors="replace")
    return [("", "\n\n".join(joined_lines(line.strip(" |").replace("\v", "\n")) for line in text.split("\n") if line.strip(" |")))]
