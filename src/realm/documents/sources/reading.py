"""One source in, its records out: looks at the source and picks the reader. And the way back, from a document to its record.

Hugging Face datasets are a directory that ``save_to_disk`` wrote, or a name on the hub (extra ``datasets``)."""

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from realm.documents import detect
from realm.documents.columns import find_columns
from realm.documents.formats import FORMATS, LOOK, SourceOptions
from realm.documents.records import EMPTY_FILE, NO_DOCUMENTS, TOO_LONG, UNREADABLE, Record, Rejected, SourceDocument
from realm.documents.sources.folders import RowIds, apart, beir_documents, id_of, read_folder
from realm.documents.streams import refuse_passing
from realm.documents.workers import Workers
from realm.errors import DataError, RealmError, needing, said
from realm.storage.paths import HUB_PREFIX
from realm.storage.stages import holds_run

_MARKS = ("dataset_dict.json", "state.json")


def is_hub_name(source: Path) -> bool:
    """True for ``hf:owner/name``, no path."""
    return str(source).startswith(HUB_PREFIX)


def read_dataset(source: Path, options: SourceOptions) -> Iterator[Record]:
    """Rows of a dataset; ``line`` is the 1-based row. A name on the hub is ``hf:owner/name[:config][:split]`` and is streamed. Raises
    MissingExtra: ``datasets`` is not installed; DataError: the dataset cannot be had, has several splits and none is named, or lacks a
    column."""
    with needing("reading Hugging Face datasets", "datasets"):
        import datasets
    name = str(source).removeprefix(HUB_PREFIX) if is_hub_name(source) else source.name
    try:
        rows = _load_hub(datasets, name, source) if is_hub_name(source) else datasets.load_from_disk(str(source))
        rows = _one_split(rows, source)
        names: Any = rows.column_names or next(iter(rows), {})  # of a stream that does not know them, the keys of its first row
        columns = find_columns(options, list(names), source)
        for number, row in enumerate(rows.select_columns(columns.wanted), 1):
            yield _bounded(columns.record(row, str(source), name, number, number), options.document_bytes)
    except RealmError:
        raise
    except Exception as error:  # the library and the hub raise whatever their parts raise, and a traceback helps nobody
        raise DataError(f"cannot load this dataset: {said(error)}", path=source, cure=_CURE) from error


_CURE = "Check the name (hf:owner/name:config:split), the network, or download it and give the directory"


_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
"""Owner and name. The library takes a lone name for one of its own readers, which read what lies around."""


def _load_hub(datasets: Any, name: str, source: Path) -> Any:
    repository, *rest = name.split(":")
    if len(rest) > 2 or not _REPOSITORY.fullmatch(repository):
        raise DataError("no name of a dataset", path=source, cure="Write hf:owner/name, hf:owner/name:config or hf:owner/name:config:split")
    if os.path.lexists(repository):
        cure = f"To read that, give it without {HUB_PREFIX}; for the hub, run the command from elsewhere"
        raise DataError("this is a name on the hub, and a file or folder of that name is here", path=source, cure=cure)
    config, split = (*rest, "", "")[:2]
    return datasets.load_dataset(repository, config or None, split=split or None, streaming=True)


def _one_split(rows: Any, source: Path) -> Any:
    """The dataset itself, or the only one of several splits."""
    if not isinstance(rows, dict):
        return rows
    if len(rows) != 1:
        names = ", ".join(rows)
        raise DataError(f"several splits: {names}", path=source, cure="Name one: DIRECTORY/SPLIT, or hf:owner/name:config:SPLIT")
    return next(iter(rows.values()))


def iter_documents(
    source: Path, options: SourceOptions = LOOK, workers: Workers | None = None, name: str = "", rows: RowIds | None = None
) -> Iterator[Record]:
    """All records of one source, in its order.

    Args:
        source: a file, a folder, or ``hf:owner/name``. Its kind is found by its name, else by its first bytes.
        workers: processes that clean the pages of a dump; None does it here.
        name: of the source in ids; empty: a file by its name, of a folder nothing before the paths in it.
        rows: ids that sources before this one have given; None: it is the only one.

    Raises DataError: the source is missing, of no known kind, lacks a column, or is a folder without documents; MissingExtra."""
    source, rows = Path(source), RowIds() if rows is None else rows
    if is_hub_name(source):
        return apart(read_dataset(source, options), name, rows)
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
    if options.format in ("beir", "datasets"):
        raise DataError(f"a source of the format '{options.format}' is a folder", path=path, cure="Give the folder")
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
    if options.format == "datasets" or (options.format is None and any((folder / mark).is_file() for mark in _MARKS)):
        return apart(read_dataset(folder, options), name or folder.name, rows)
    documents = beir_documents(folder) if options.format in (None, "beir") else None
    if documents is not None:
        return apart(read_file(documents, documents.name, "jsonl", options, workers), name or folder.name, rows)
    if options.format == "beir":
        raise DataError("not a BEIR folder", path=folder, cure="It holds corpus.jsonl, and queries.jsonl or qrels")
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
