"""One source in, its records out: looks at the source and picks the reader."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from realm.documents import detect
from realm.documents.formats import FORMATS, LOOK, SourceOptions
from realm.documents.records import EMPTY_FILE, NO_DOCUMENTS, TOO_LONG, UNREADABLE, Record, Rejected, SourceDocument
from realm.documents.sources.folders import RowIds, apart, id_of, read_folder
from realm.documents.streams import refuse_passing
from realm.documents.workers import Workers
from realm.errors import DataError
from realm.storage.layout import holds_run


def iter_documents(
    source: Path, options: SourceOptions = LOOK, workers: Workers | None = None, name: str = "", rows: RowIds | None = None
) -> Iterator[Record]:
    """All records of one source, in its order.

    Args:
        source: a file or a folder. Its kind is found by its name, else by its first bytes.
        workers: processes that clean the pages of a dump; None does it here.
        name: of the source in ids; empty: a file by its name, of a folder nothing before the paths in it.
        rows: ids that sources before this one have given; None: it is the only one.

    Raises DataError: the source is missing, of no known kind, lacks a column, or is a folder without documents; MissingExtra."""
    source, rows = Path(source), RowIds() if rows is None else rows
    if os.path.isdir(source):  # unlike Path's own, false for a name that no file can have
        return _read_directory(source, name, options, workers, rows)
    if not os.path.exists(source):
        raise DataError("no such file or folder", path=source, cure="Check the path of the source")
    if not source.is_file():
        raise DataError("not a regular file", path=source, cure="A source is looked at before it is read: save the stream to a file first")
    called, kind = name or id_of(source.name), _format_of(source, options)
    return apart(read_file(source, called, kind, options, workers), called, rows)


def _format_of(path: Path, options: SourceOptions) -> str:
    """The format asked for, else by name, else by content."""
    try:
        found = options.format or detect.format_of(path)
        if found is None:
            raise DataError("unknown type of source", path=path, cure=detect.advice_for(path))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path=path, cure="Check the file and its permissions") from error
    return found


def _read_directory(folder: Path, name: str, options: SourceOptions, workers: Workers | None, rows: RowIds) -> Iterator[Record]:
    if holds_run(folder):
        raise DataError("a run lies here, not documents", path=folder, cure="Give the folder of the documents")
    return read_folder(folder, name, options, partial(read_file, workers=workers), rows)


def read_file(path: Path, name: str, file_format: str, options: SourceOptions, workers: Workers | None = None) -> Iterator[Record]:
    """Records of one file; one rejected record of a file that has none, so that nothing is left out in silence."""
    try:
        empty = path.stat().st_size == 0
    except OSError as error:
        refuse_passing(error, path)
        yield Rejected(str(path), 0, UNREADABLE)
        return
    if empty:
        yield Rejected(str(path), 0, EMPTY_FILE)
        return
    found = False
    if options.format is None and options.text_column is None and detect.holds_triples(path, file_format):
        file_format = "triples"
    read = FORMATS[file_format].load()
    for record in read(path, workers, options.document_seconds) if file_format == "mediawiki" else read(path, name, options):
        found = True
        yield _bounded(record, options.document_bytes)
    if not found:
        yield Rejected(str(path), 0, NO_DOCUMENTS)


def _bounded(record: Record, most: int) -> Record:
    """The record, or that its text has more than ``most`` bytes."""
    if not isinstance(record, SourceDocument) or 4 * len(record.text) <= most or len(record.text.encode("utf-8", "replace")) <= most:
        return record
    return Rejected(record.path, record.line, TOO_LONG)


def source_name(path: str) -> str:
    """A reader's path as text that any tool can store: bytes of a file name that are not UTF-8 become ``\\xNN``."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
