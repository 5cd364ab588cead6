"""Readers: one kind of source in, documents and rejected records out, one at a time.

A reader is a function ``(Path) -> Iterator[SourceDocument | Rejected]`` in ``_FILE_READERS``, found by the end of the file's name.
What a reader yields is decoded but not yet canonical; duplicate ids are found by the builder, which sees all sources.
"""

import gzip
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import regex

from realm.corpus.records import BAD_JSON, DAMAGED, INVALID_UTF8, NOT_AN_OBJECT, UNREADABLE, Record, Rejected, document_or_rejected
from realm.errors import DataError

Reader = Callable[[Path], Iterator[Record]]

_HEADING = regex.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$", regex.MULTILINE)
_DECOMPRESSION_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error, pa.ArrowInvalid)


def iter_documents(source: Path) -> Iterator[Record]:
    """All records of one source: a .jsonl file (plain, .gz, .xz, .zst), a .txt or .md file, or a folder of those texts.

    Raises:
        DataError: the source is missing, is of no known type, or is a folder without texts.
    """
    source = Path(source)
    if source.is_dir():
        return _read_folder(source)
    if not source.exists():
        raise DataError("no such file or folder", path=source, cure="Check the path of the source")
    reader = _reader_for(source)
    if reader is None:
        known = ", ".join(sorted(_FILE_READERS))
        raise DataError("unknown type of source", path=source, cure=f"Known are folders of .txt and .md, and files ending in {known}")
    return reader(source)


def _reader_for(path: Path) -> Reader | None:
    """The reader with the longest matching end of name."""
    name = path.name.lower()
    ends = [end for end in _FILE_READERS if name.endswith(end)]
    return _FILE_READERS[max(ends, key=len)] if ends else None


def _open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed by the end of its name."""
    match path.suffix.lower():
        case ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        case ".xz":
            return cast(IO[bytes], lzma.open(path, "rb"))
        case ".zst":
            import io

            return cast(IO[bytes], io.BufferedReader(cast(Any, pa.input_stream(str(path), compression="zstd"))))
        case _:
            return open(path, "rb")


def _read_jsonl(path: Path) -> Iterator[Record]:
    number = 0
    try:
        with _open_bytes(path) as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if not line.isspace():
                    yield _jsonl_record(line, str(path), number)
    except _DECOMPRESSION_ERRORS:
        # What was read before the damage stays; the rest cannot be trusted.
        yield Rejected(str(path), number + 1, DAMAGED if path.suffix.lower() != ".jsonl" else UNREADABLE)


def _jsonl_record(line: bytes, path: str, number: int) -> Record:
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return Rejected(path, number, INVALID_UTF8)
    except (ValueError, RecursionError):
        return Rejected(path, number, BAD_JSON)
    if not isinstance(value, dict):
        return Rejected(path, number, NOT_AN_OBJECT)
    return document_or_rejected(value.get("id"), value.get("title"), value.get("text"), path, number)


def _read_text_file(path: Path) -> Iterator[Record]:
    yield _text_record(path, path.name)


def _text_record(path: Path, doc_id: str) -> Record:
    """A whole file as one document. The title is a Markdown file's first heading, else the name without its ending."""
    try:
        data = path.read_bytes()
    except OSError:
        return Rejected(str(path), 0, UNREADABLE)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Rejected(str(path), data[: error.start].count(b"\n") + 1, INVALID_UTF8)
    heading = _HEADING.search(text) if path.suffix.lower() == ".md" else None
    return document_or_rejected(doc_id, heading.group(1) if heading else path.stem, text, str(path), 0)


def _read_folder(folder: Path) -> Iterator[Record]:
    """Texts below ``folder`` in order of their path; the id is the path relative to the folder. Links to folders are not followed."""
    found = False
    for directory, names, files in os.walk(folder):
        names.sort()
        for name in sorted(files):
            path = Path(directory, name)
            if _reader_for(path) is _read_text_file:
                found = True
                yield _text_record(path, path.relative_to(folder).as_posix())
    if not found:
        raise DataError("no .txt or .md file in this folder", path=folder, cure="Name the folder that holds the texts, or a .jsonl file")


_FILE_READERS: dict[str, Reader] = {
    ".jsonl": _read_jsonl,
    ".jsonl.gz": _read_jsonl,
    ".jsonl.xz": _read_jsonl,
    ".jsonl.zst": _read_jsonl,
    ".txt": _read_text_file,
    ".md": _read_text_file,
}
