"""Folders: of texts, of data files, or a BEIR collection."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from realm.documents.detect import format_by_name
from realm.documents.formats import DATA_FORMATS, DOCUMENT_FORMATS, PICTURES, TRIPLES_IN
from realm.documents.options import SourceOptions
from realm.documents.pages.pictures import is_caption
from realm.documents.records import LINK_OUT, LINK_TO_FOLDER, UNREADABLE, Record, Rejected, SourceDocument
from realm.documents.streams import refuse_passing
from realm.errors import DataError
from realm.storage.files import STAGING_SUFFIX

ReadFile = Callable[[Path, str, str, SourceOptions], Iterator[Record]]
"""Reads (path, what it is called in ids, format, options)."""

_BEIR_DOCUMENTS = ("corpus.jsonl", "corpus.jsonl.gz")
_BEIR_MARKS = ("queries.jsonl", "queries.jsonl.gz", "qrels")


def beir_documents(folder: Path) -> Path | None:
    """The documents of a BEIR folder; None of another."""
    documents = next((folder / name for name in _BEIR_DOCUMENTS if (folder / name).is_file()), None)
    return documents if documents and any((folder / mark).exists() for mark in _BEIR_MARKS) else None


def read_folder(folder: Path, options: SourceOptions, read_file: ReadFile) -> Iterator[Record]:
    """Everything of the kind below ``folder`` in order of its path; ids are or start with the path relative to the folder.

    The kind is the format asked for; else texts and pictures, if there is a text; else every data file; else pictures. Links to folders and
    links out of the folder are not followed. Pictures come last, less those that a page has shown and less files with their captions.

    Raises:
        DataError: there is nothing of the kind.
    """
    wanted = _wanted_formats(folder, options)
    shown: set[str] = set()
    for found in _walk(folder):
        if isinstance(found, Rejected):
            yield found
        elif (name := format_by_name(found)) in wanted - PICTURES and name is not None and not ("picture" in wanted and is_caption(found)):
            for record in _read_one(folder, found, options.format or name, options, read_file):
                if isinstance(record, SourceDocument) and record.media:
                    shown.add(os.path.normpath(record.media))
                yield record
    for found in _walk(folder) if "picture" in wanted else ():
        if isinstance(found, Path) and format_by_name(found) == "picture" and os.path.normpath(found) not in shown:
            yield from _read_one(folder, found, "picture", options, read_file)


def _read_one(folder: Path, found: Path, name: str, options: SourceOptions, read_file: ReadFile) -> Iterator[Record]:
    """The records of one file of a format, or why it is not read."""
    if not found.is_file():  # a link that leads nowhere or in a circle, a pipe or a device
        yield Rejected(str(found), 0, UNREADABLE)
    elif found.is_symlink() and not found.resolve().is_relative_to(folder.resolve()):
        yield Rejected(str(found), 0, LINK_OUT)
    else:
        yield from read_file(found, found.relative_to(folder).as_posix(), name, options)


def _wanted_formats(folder: Path, options: SourceOptions) -> frozenset[str]:
    """The formats that are read: the first choice of which there is a file."""
    if options.format:
        asked = TRIPLES_IN if options.format == "triples" else frozenset({options.format})
        choices = [(asked, asked)]
    else:  # pictures beside data files are their illustrations
        choices = [(DOCUMENT_FORMATS - PICTURES, DOCUMENT_FORMATS), (DATA_FORMATS, DATA_FORMATS), (PICTURES, PICTURES)]
    there = {format_by_name(path) for path in _walk(folder) if isinstance(path, Path)}
    for needed, wanted in choices:
        if needed & there:
            return wanted
    kind = f"{options.format} file" if options.format else ".txt, .md, .html, .pdf or .docx file, and no picture or data file,"
    raise DataError(f"no {kind} in this folder", path=folder, cure="Name the folder that holds the texts, or a data file")


def _walk(folder: Path) -> Iterator[Path | Rejected]:
    """Files in order of their path; folders that cannot be listed and links to folders as rejected."""
    unlisted: list[Rejected] = []

    def cannot_list(error: OSError) -> None:
        refuse_passing(error, Path(error.filename))
        unlisted.append(Rejected(str(error.filename), 0, UNREADABLE))

    for directory, names, files in os.walk(folder, onerror=cannot_list):
        names[:] = sorted(name for name in names if not is_ours(os.path.join(directory, name)))
        yield from (
            Rejected(os.path.join(directory, name), 0, LINK_TO_FOLDER) for name in names if os.path.islink(os.path.join(directory, name))
        )
        yield from (Path(directory, name) for name in sorted(files))
    yield from unlisted


def is_ours(directory: str) -> bool:
    """Return whether a corpus, or one in the making, lies here: its files are no documents. It may lie below the folder it is made of."""
    is_corpus = os.path.isfile(os.path.join(directory, "CURRENT")) and os.path.isdir(os.path.join(directory, "segments"))
    return is_corpus or directory.endswith(STAGING_SUFFIX)
