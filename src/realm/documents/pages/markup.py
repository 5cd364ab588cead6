"""Documents that are XML or JSON inside: plain XML, EPUB, OpenDocument text, notebooks."""

import html.entities
import io
import posixpath
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

import regex

from realm.documents import streams
from realm.documents.detect import stem
from realm.documents.limited import read_file
from realm.documents.pages.hypertext import MOST_SPANNED, blocks_of, headings_of, text_of
from realm.documents.pages.texts import plain_markdown
from realm.documents.records import COMMENT, DAMAGED_FILE, DELETED_TEXT, PARTLY_USED, Record, Rejected, SourceOptions, document_or_rejected
from realm.storage.files import json_value

Parts = list[tuple[str, str]]
"""Title and text of each part of a file; a reason in place of the title, and no text, of what is left out."""

# Their content is one paragraph, whatever tags stand in it.
_PARAGRAPHS = frozenset(("p", "h", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "dd", "caption", "figcaption", "pre"))
_ROWS = frozenset(("tr", "table-row", "row"))
_APART = _PARAGRAPHS.union(("para", "item", "li", "listitem", "list-item", "entry", "cell", "desc"))
"""Elements whose words do not belong to the words before them, though both stand in one paragraph."""
_HIDDEN = frozenset(("head", "script", "style", "tracked-changes", "annotation", "note-citation", "automatic-styles", "styles")).union(
    ("covered-table-cell", "binary", "binary-data", "binarydata")
)
_FORMULA = frozenset(
    ("math", "mrow", "mi", "mn", "mo", "mtext", "mfrac", "msup", "msub", "msubsup", "munder", "mover", "munderover", "msqrt")
)
_SAME = _FORMULA.union(
    ("table", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "dd", "pre", "ol", "ul", "li", "tr", "sup", "sub", "del", "strike")
)
_OTHERWISE = {"table-row": "tr", "row": "tr", "superscript": "sup", "subscript": "sub", "list": "ul", "list-item": "li"}
_OTHERWISE |= {"ruby-text": "rt"}
_INLINE = _FORMULA.union(("sup", "sub", "s", "del", "strike", "ruby", "rt"))
_SPANS = {"number-rows-spanned": "rowspan", "number-columns-spanned": "colspan", "rowspan": "rowspan", "colspan": "colspan"}
_HOLDS_HTML = frozenset(("content", "description", "encoded", "summary"))
"""Elements of feeds whose text may be a page itself."""
_SAYING = frozenset(("name", "title", "label", "text", "caption", "description", "summary", "comment"))
"""Attributes that hold words."""
_UNREAD = {"annotation": COMMENT, "deletion": DELETED_TEXT}
_REASONS = PARTLY_USED | {DAMAGED_FILE}
_NO_OUTPUT = regex.compile(r"<(?:IPython\.|Figure size )[^<>]*>$")
_TITLE = regex.compile(r"<title[^<>]*>([^<]*)")
_ENTITY = regex.compile(r"&(?!(?:amp|lt|gt|quot|apos);)([\p{L}_][\w.:-]*);")
_DECLARED = regex.compile(r"""<!ENTITY\s+([\w.:-]+)\s+["']""")


def read_as_parts(kind: str, part: str, path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Documents of a file by the reader of a kind, within the limits of one document; ``part`` names those of a file with several."""
    parts = read_file(kind, path, options.document_seconds)
    if isinstance(parts, Rejected):
        yield parts
        return
    yield from (Rejected(str(path), 0, reason) for reason, text in parts if reason in _REASONS and not text)
    for number, (title, text) in enumerate((part for part in parts if part[1] or part[0] not in _REASONS), 1):
        doc_id, line = (f"{name}#{part}={number}", number) if part else (name, 0)
        yield document_or_rejected(doc_id, title or stem(path), text, str(path), line, structured=kind != "notebook")


# A paragraph for each element that holds text; the title is the first element ``title``.
read_xml = partial(read_as_parts, "xml", "")
# The cells in order, with what they print; the title is the first heading.
read_notebook = partial(read_as_parts, "notebook", "")
# Deleted text and comments are left out.
read_odt = partial(read_as_parts, "odt", "")
# Each chapter is a document: the id is NAME#chapter=2.
read_epub = partial(read_as_parts, "epub", "chapter")


def xml_text(data: bytes) -> Parts:
    """Title and text of an XML file; of one that has none, what its attributes say. Raises ValueError: it is damaged."""
    root = _root(data)
    title = next((" ".join("".join(element.itertext()).split()) for element in root.iter() if _name(element) == "title"), "")
    for element in list(root.iter()) if any(text.strip() for text in root.itertext()) else ():
        said = ", ".join(value for key, value in element.items() if _bare(key).lower() in _SAYING and any(map(str.isalpha, value)))
        if said and len(element):
            element.insert(0, ElementTree.Element("caption"))
            element[0].text = said
        elif said:
            element.text = f"{said}: {element.text}" if (element.text or "").strip() else said
    rows = (" | ".join(f"{_bare(key)}: {value}" for key, value in element.items()) for element in root.iter())
    return [(title, text_of(blocks_of("".join(_as_html(root, {})))) or "\n\n".join(filter(None, rows)))]


def odt_text(data: bytes) -> Parts:
    """The text of an OpenDocument file. Raises ValueError: it is damaged."""
    archive, styles = _archive(data), dict[str, str]()
    names = frozenset(archive.namelist())
    common, root = [_root(_member(archive, name)) for name in ("styles.xml",) if name in names], _root(_member(archive, "content.xml"))
    left_out = [(reason, "") for name, reason in _UNREAD.items() if any(_name(element) == name for element in root.iter())]
    for style in (style for held in (*common, root) for style in held.iter() if _name(style) in ("style", "list-style")):
        meant = next(filter(None, map(_style_tag, style)), "") or styles.get(_attribute(style, "parent-style-name"), "")
        styles |= {_attribute(style, "name"): meant} if meant else {}
    for element in list(root.iter()):  # formulas and charts are files of their own
        if _name(element) == "object" and (place := f"{_attribute(element, 'href').removeprefix('./')}/content.xml") in names:
            element.append(_root(_member(archive, place)))
    head, foot = ([one for held in common for one in held.iter() if _name(one) == name] for name in ("header", "footer"))
    pages = dict.fromkeys("".join(_as_html(one, styles)) for one in (*head, root, *foot))
    return [("", text_of(blocks_of("".join(pages)))), *left_out]


def _style_tag(properties: ElementTree.Element) -> str:
    """The tag that means what a style of an OpenDocument file says; empty: none does."""
    position = _attribute(properties, "text-position")
    if _attribute(properties, "text-line-through-style") not in ("", "none"):
        return "s"
    if _name(properties) == "list-level-style-number" and _attribute(properties, "level") == "1" and _attribute(properties, "num-format"):
        return "ol"
    return "sub" if position.startswith(("sub", "-")) else "sup" if position and not position.startswith("0%") else ""


def epub_chapters(data: bytes) -> Parts:
    """Title and text of each chapter. Raises ValueError: the book is damaged."""
    archive = _archive(data)
    container = _root(_member(archive, "META-INF/container.xml"))
    package = next((element.get("full-path", "") for element in container.iter() if _name(element) == "rootfile"), "")
    book = _root(_member(archive, package))
    files = {element.get("id"): element.get("href", "") for element in book.iter() if _name(element) == "item"}
    found = []
    for reference in (element.get("idref") for element in book.iter() if _name(element) == "itemref"):
        place = posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(files.get(reference, ""))))
        try:
            page = streams.decoded(_member(archive, place), place)
        except ValueError:
            page = Rejected(place, 0, DAMAGED_FILE)
        if isinstance(page, Rejected):
            found.append((DAMAGED_FILE, ""))
            continue
        blocks, named = blocks_of(page), _TITLE.search(page)
        titles = {level: words for level, words in reversed(headings_of(blocks)) if level < 3}
        found.append((titles.get(1) or titles.get(2) or html.unescape(named[1] if named else "").strip(), text_of(blocks)))
    return [part for part in found if part[1] or part[0] == DAMAGED_FILE]


def notebook_text(data: bytes) -> Parts:
    """Title and text of a notebook. Raises ValueError: it is none."""
    book = json_value(data.decode("utf-8-sig", "replace"))
    try:
        cells = book["cells"] if "cells" in book else [cell for sheet in book["worksheets"] for cell in sheet["cells"]]
        marked = [plain_markdown(_joined(cell.get("source"))) for cell in cells if cell.get("cell_type") == "markdown"]
        texts = iter(marked)
        said = [next(texts)[1] if cell.get("cell_type") == "markdown" else "\n\n".join(filter(None, _code(cell))) for cell in cells]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("no notebook") from error
    return [(next(filter(None, (title for title, _ in marked)), ""), "\n\n".join(filter(None, said)))]


def _code(cell: dict[str, Any]) -> Iterator[str]:
    """The source of a cell, and the text that it gave, plain where there is any."""
    yield _joined(cell.get("source") or cell.get("input"))
    for output in cell.get("outputs") or ():
        data = output.get("data") or {}
        plain, marked = _joined(output.get("text") or data.get("text/plain") or output.get("evalue")), _joined(data.get("text/markdown"))
        rich = plain_markdown(marked)[1] if marked else text_of(blocks_of(_joined(data.get("text/html"))))
        rich = rich or _joined(data.get("text/latex"))
        failed = ": ".join(filter(None, (output.get("ename"), plain))) if "evalue" in output else plain
        yield rich if rich and (not plain or plain.startswith("<IPython")) else "" if _NO_OUTPUT.match(plain) else failed


def _joined(lines: str | list[str] | None) -> str:
    return lines.strip() if isinstance(lines, str) else "".join(lines or ()).strip()


def _archive(data: bytes) -> ZipFile:
    try:
        return ZipFile(io.BytesIO(data))
    except BadZipFile as error:
        raise ValueError("no archive") from error


def _member(archive: ZipFile, name: str) -> bytes:
    """A file of an archive, up to the limit of a document. Raises ValueError: it is not there, damaged or encrypted."""
    try:
        with archive.open(name) as file:
            return file.read(streams.LINE_LIMIT)
    except (KeyError, BadZipFile, RuntimeError, OSError, EOFError) as error:
        raise ValueError(f"no {name}") from error


def _root(data: bytes) -> ElementTree.Element:
    """The root of an XML file; names of HTML's letters are these letters, others their names. Raises ValueError: it is damaged."""
    try:
        return ElementTree.fromstring(data)
    except ElementTree.ParseError:
        text = data.decode(streams.encoding_of(data) or "utf-8", "replace").lstrip("\ufeff")
    declared = {name: f"&{name};" for name in _DECLARED.findall(text)}
    try:
        return ElementTree.fromstring(
            _ENTITY.sub(lambda found: declared.get(found[1]) or html.escape(html.entities.html5.get(f"{found[1]};", found[1])), text)
        )
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error


def _bare(name: object) -> str:
    return str(name).rpartition("}")[2]


def _name(element: ElementTree.Element) -> str:
    """The name of an element without its namespace."""
    return _bare(element.tag).lower()


def _attribute(element: ElementTree.Element, name: str) -> str:
    return next((value for key, value in element.items() if _bare(key) == name), "")


def _as_html(root: ElementTree.Element, styles: dict[str, str]) -> Iterator[str]:
    """HTML of all that is below an element: a paragraph for each element whose text does not lie in its children alone."""
    waiting: list[str | tuple[ElementTree.Element, str, str]] = [(root, "", "")]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
            continue
        element, around, numbered = part  # around: the paragraph or the row that it stands in
        name, children, text = _name(element), list(element), element.text or ""
        if name in _HIDDEN:
            continue
        meant = styles.get(_attribute(element, "style-name"), "")
        numbered = meant or numbered if name == "list" else numbered
        tag = numbered or "ul" if name == "list" else _OTHERWISE.get(name, name)
        if name in ("br", "line-break") or (name in ("s", "tab") and not children and not text):
            yield "<br>" if name in ("br", "line-break") else " "
            continue
        mixed = bool(text.strip()) or any((child.tail or "").strip() for child in children)
        if around == "row":
            again = _attribute(element, "number-columns-repeated")
            tag = "td"
            times = min(int(again), MOST_SPANNED) if again.isdecimal() and len(again) < 9 else 1
        elif around == "paragraph":
            tag, times = (meant if name == "span" else tag if tag in _INLINE or tag == "tr" else ""), 1
        else:
            tag, times = (tag if tag in _SAME else "p" if name in _PARAGRAPHS or mixed or not children else "div"), 1
        inside = "row" if name in _ROWS else "paragraph" if around == "paragraph" or name in _PARAGRAPHS or mixed else ""
        inside = inside or ("table" if "table" in (name, around) else "")
        apart = " " if not tag and (name in _APART or "svg" in str(element.tag)) else ""
        said = text if name in _HOLDS_HTML and not children else html.escape(text)
        first = _attribute(element, "start-value") if tag == "li" else ""
        spans = "".join(f' {_SPANS[_bare(key)]}="{html.escape(value)}"' for key, value in element.items() if _bare(key) in _SPANS)
        start = f'<li value="{html.escape(first)}">' if first else f"<{tag}{spans if tag == 'td' else ''}>"
        opened, closed = (
            ("<table><tr>", "</tr></table>") if tag == "tr" and around != "table" else (start, f"</{tag}>") if tag else (apart, apart)
        )
        pieces: list[str | tuple[ElementTree.Element, str, str]] = [opened, said]
        for child in children:
            pieces += [(child, inside, numbered), html.escape(child.tail or "")]
        waiting.extend(reversed([*pieces, closed] * times))
