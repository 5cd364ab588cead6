"""Documents that are XML or JSON inside: plain XML, EPUB, OpenDocument text, notebooks."""

import html
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
from realm.documents.options import SourceOptions
from realm.documents.pages.texts import plain_markdown
from realm.documents.records import Record, Rejected, document_or_rejected
from realm.storage.decoding import json_value

Parts = list[tuple[str, str]]
"""Title and text of each part of a file."""

# Their content is one paragraph, whatever tags stand in it.
_PARAGRAPHS = frozenset(("p", "h", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "dd", "caption", "figcaption", "pre"))
_ROWS = frozenset(("tr", "table-row"))
_BREAKS = frozenset(("br", "line-break"))
_SPACES = frozenset(("s", "tab"))
_HIDDEN = frozenset(("head", "script", "style", "tracked-changes", "annotation", "note-citation"))
_ENTITY = regex.compile(r"&(?!(?:amp|lt|gt|quot|apos);)\w+;")
_BREAK = "\0"


def _read(kind: str, path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Documents of a file by the reader of a kind, within the limits of one document; parts of a book by number."""
    parts = read_file(kind, path, options.document_seconds)
    if isinstance(parts, Rejected):
        yield parts
        return
    for number, (title, text) in enumerate(parts, 1):
        doc_id, line = (f"{name}#chapter={number}", number) if kind == "epub" else (name, 0)
        yield document_or_rejected(doc_id, title or stem(path), text, str(path), line)


# A paragraph for each element that holds text; the title is the first element ``title``.
read_xml = partial(_read, "xml")
# The cells in order, with what they print; the title is the first heading.
read_notebook = partial(_read, "notebook")
# Deleted text and comments are left out.
read_odt = partial(_read, "odt")
# Each chapter is a document: the id is NAME#chapter=2.
read_epub = partial(_read, "epub")


def xml_text(data: bytes) -> Parts:
    """Title and text of an XML file. Raises ValueError: it is damaged."""
    root = _root(data)
    title = next((_flat(element) for element in root.iter() if _name(element) == "title"), "")
    return [(title, "\n\n".join(_blocks(root)))]


def odt_text(data: bytes) -> Parts:
    """The text of an OpenDocument file. Raises ValueError: it is damaged."""
    return [("", "\n\n".join(_blocks(_root(_member(_archive(data), "content.xml")))))]


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
        chapter = _root(_member(archive, place))
        found.append((_heading(chapter), "\n\n".join(_blocks(chapter))))
    return [part for part in found if part[1]]


def _heading(chapter: ElementTree.Element) -> str:
    named = {_name(element): _flat(element) for element in reversed(list(chapter.iter()))}  # of each name the first
    return named.get("h1") or named.get("h2") or named.get("title") or ""


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
    """The source of a cell, and the plain text that it gave."""
    yield _joined(cell.get("source") or cell.get("input"))
    for output in cell.get("outputs") or ():
        yield _joined(output.get("text") or (output.get("data") or {}).get("text/plain"))


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
    """The root of an XML file; names of letters that only HTML knows are read as these. Raises ValueError: it is damaged."""
    try:
        return ElementTree.fromstring(data)
    except ElementTree.ParseError:
        text = data.decode(streams.encoding_of(data) or "utf-8", "replace").lstrip("\ufeff")
    try:
        return ElementTree.fromstring(_ENTITY.sub(lambda found: html.unescape(found.group()), text))
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error


def _name(element: ElementTree.Element) -> str:
    """The name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2].lower()


def _blocks(root: ElementTree.Element) -> Iterator[str]:
    """The paragraphs below an element: of a table each row, and elsewhere each element whose text does not lie in its children alone."""
    waiting = [root]
    while waiting:
        element = waiting.pop()
        name, children = _name(element), list(element)
        mixed = bool((element.text or "").strip()) or any((child.tail or "").strip() for child in children)
        if name in _HIDDEN:
            continue
        if name in _ROWS:
            text = " | ".join(_flat(cell) for cell in children)
        elif name in _PARAGRAPHS or mixed or not children:
            text = _flat(element)
        else:
            waiting.extend(reversed(children))
            continue
        if text.strip(" |"):
            yield text


def _flat(element: ElementTree.Element) -> str:
    """The text of an element with its own line breaks and no others."""
    return "\n".join(" ".join(line.split()) for line in "".join(_pieces(element)).split(_BREAK)).strip()


def _pieces(element: ElementTree.Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        name = _name(child)
        if name in _BREAKS:
            yield _BREAK
        elif name in _SPACES:
            yield " "
        elif name not in _HIDDEN:
            apart = " " if name in _PARAGRAPHS else ""
            yield from (apart, *_pieces(child), apart)
        yield child.tail or ""
