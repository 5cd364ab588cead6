"""The kind of a file: by the end of its name, else by its first bytes."""

import json
import re
from pathlib import Path

from realm.documents import streams
from realm.documents.columns import TEXT_NAMES, triple_columns
from realm.documents.records import ENDINGS, FORMATS, TRIPLES_IN

COMPRESSED = (".gz", ".xz", ".zst", ".bz2")
_HEAD = 2**14
_SENT = rb"(?=[^\0]{0,9999}?^from:)(?:[\w-]+:[^\n]*\n(?:[ \t][^\n]*\n)*)*?(?:received|return-path|message-id|mime-version|delivered-to):"
_MAIL = re.compile(rb"(?im)From \S+ [^\n]*\d\d:\d\d:\d\d (?:\S+ )?\d{4}\b|" + _SENT)
_JSON = re.compile(rb'\s*(?:\{\s*["}]|\[\s*(?:[\[{"]|-?\d[\d.eE+-]*\s*(?:,|\]\s*$)))')


def stem(path: Path) -> str:
    """A file's name without its ending, and without that of its compression."""
    name = path.name
    for ending in COMPRESSED:
        if name.lower().endswith(ending):
            name = name[: -len(ending)]
    return Path(name).stem


def format_by_name(path: Path) -> str | None:
    """The format that the end of the name says, an ending of compression not counted."""
    name = path.name.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    return ENDINGS.get(Path(name).suffix)


def format_by_content(path: Path) -> str | None:
    """The format that the first bytes show. Raises OSError: the file cannot be opened."""
    head = streams.read_head(path, _HEAD)
    start = head.lstrip().lower()
    if start.startswith(b"{\\rtf"):  # and no object of JSON
        return "rtf"
    if _MAIL.match(head):
        return "mail"
    for name, known in FORMATS.items():
        if start.startswith(known.openings):
            return "mediawiki" if name == "xml" and b"<mediawiki" in start else name
    first_line = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip("\r")
    for delimiter, name in (("\t", "tsv"), (",", "csv")):
        cells = _cells(first_line, delimiter)
        if len(cells) > 1 and (any(cell in TEXT_NAMES for cell in cells) or triple_columns(cells)):
            return name
    return None


def format_of(path: Path) -> str | None:
    """The format by the end of a file's name, else by its first bytes, else text if it is text. Raises OSError: it cannot be opened."""
    name = format_by_name(path)
    if name not in (None, "xml", "text", "sheets"):
        return name
    found = format_by_content(path)
    if name == "text":
        return found if found in ("html", "pdf") else name
    if name == "xml":
        return found if found == "mediawiki" else name
    head = streams.read_head(path, _HEAD)
    if name == "sheets":  # Excel opens pages and tables of any text under its own ending, so others write them
        told = "" if head.startswith((b"PK", b"\xd0\xcf")) else streams.decoded(head, str(path))
        if not isinstance(told, str) or not told.strip():
            return name
        return found if found in ("html", "xml") else "tsv" if "\t" in told else "csv"
    if found is None or (found == "jsonl" and not _JSON.match(head)):
        text = streams.decoded(head, str(path))
        return "text" if isinstance(text, str) and text.strip() else None
    return found


def holds_triples(path: Path, file_format: str) -> bool:
    """True for a file of this format that has columns for subject, relation and object, and none for a text."""
    if file_format not in TRIPLES_IN:
        return False
    head = streams.head_of(path, _HEAD)
    if file_format == "jsonl":
        names = _first_names(head)
        return triple_columns(names) is not None and not set(TEXT_NAMES).intersection(names)
    first_line = head.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace").strip("\r")
    tables = [_cells(first_line, delimiter) for delimiter in ("\t" if file_format == "tsv" else ",;\t|")]
    return any(triple_columns(names) is not None and not set(TEXT_NAMES).intersection(names) for names in tables)


def _first_names(head: bytes) -> list[str]:
    """Keys of the first object of a JSON file, whether it stands in a list or not; none where it is longer than ``head``."""
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n[")
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return []
    return list(value) if isinstance(value, dict) else []


def _cells(line: str, delimiter: str) -> list[str]:
    return [cell.strip('\ufeff" ') for cell in line.split(delimiter)]


def advice_for(path: Path) -> str:
    """The cure for a file of no known format, by its first bytes."""
    start = b""
    if path.is_file():
        start = streams.read_head(path, 8)
    if start.startswith(b"PK\x03\x04"):
        return "This is a zip or office file: unpack it, or save it as text or HTML"
    if start.startswith(b"7z\xbc\xaf"):
        return "Unpack it with 7z first"
    known = ", ".join(sorted(ENDINGS))
    return f"Known are folders of texts, and files ending in {known}, also compressed; --format says what another file is"
