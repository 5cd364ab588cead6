"""One source in, its records out: looks at the source and picks the reader. Every file below a folder is read, or named with the reason."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

import regex

from realm.documents import detect, records
from realm.documents.detect import format_of, stem
from realm.documents.pages.pictures import is_caption
from realm.documents.records import FORMATS, LOOK, PICTURES, Ids, Record, Rejected, SourceDocument, SourceOptions, TextKeys
from realm.documents.streams import refuse_passing
from realm.documents.workers import Workers
from realm.errors import DataError, MissingExtra
from realm.storage.files import STAGING_SUFFIX
from realm.storage.layout import holds_run
from realm.text.lines import canonical_line

_CACHES = frozenset(("__pycache__", "node_modules", "CVS", "_darcs", "__MACOSX", "$RECYCLE.BIN", "lost+found"))
_CACHE_TAG = "CACHEDIR.TAG"
_BACKUPS = ("~", ".bak", ".swp", ".swo", ".orig", ".rej", ".tmp", ".pyc")
_FOLDERS_SPELLED = """assets bin build content contents data dist doc documentation docs downloads etc examples export files home html
images include lib local main man master misc old opt other out pages pkg public raw share site source sources src static test tests text
texts tmp usr var web www"""
_ANY_FOLDER = frozenset(_FOLDERS_SPELLED.split())
"""Names that folders have whatever is in them."""
MOST_ENTRIES = 20
"""Files and folders of a folder whose name is part of what is searched: in a larger one it would be a word of nearly every block."""
_LEFTOVERS = frozenset(("Thumbs.db", "desktop.ini", _CACHE_TAG))


class RowIds(TextKeys):
    """Ids that files have given so far, and the corpus that is brought up to date: a row that it calls by its file keeps that name."""

    def __init__(self, corpus: Ids | None = None):
        super().__init__()
        self.corpus: Ids = set[str]() if corpus is None else corpus


def names_of(sources: Sequence[Path]) -> list[str]:
    """Names of the sources in ids: none of the only folder; else the shortest end of the path that tells it apart."""
    paths = [Path(os.path.abspath(source)) for source in sources]
    folders = {path for path in paths if os.path.isdir(path)}
    return ["" if folders == {path} else id_of(_shortest(path, paths, folders)) for path in paths]


def _shortest(path: Path, paths: Sequence[Path], folders: set[Path]) -> str:
    """The shortest end of a path that no other path has, and no file below the only folder, which itself has no name."""
    for length in range(1, len(path.parts)):
        end = path.parts[-length:]
        below = len(folders) == 1 and any(os.path.exists(folder.joinpath(*end)) for folder in folders)
        if not below and all(other == path or other.parts[-length:] != end for other in paths):
            return "/".join(end)
    return str(path)


def _read_folder(folder: Path, name: str, options: SourceOptions, workers: Workers | None, rows: RowIds) -> Iterator[Record]:
    """Everything below ``folder`` in order of its path; a file that cannot be read, or is left out, as rejected.

    Ids are, or start with, the path relative to the folder, behind ``name`` if there is one. Pictures come last, less those that a page has
    shown; files with their captions are read with them. Links to folders and links out of the folder are not followed. Raises DataError:
    there is nothing that could be read."""
    wanted = None if options.format is None else records.TRIPLES_IN if options.format == "triples" else frozenset({options.format})
    options = replace(options, whole_rows=options.text_column is None)
    pictures, unread = list[Path](), Counter[str]()
    shown, read = set[str](), set[str]()
    for found in files_below(folder):
        if isinstance(found, Path) and wanted is None and is_caption(found):
            continue
        kind = _kind(found) if isinstance(found, Path) else found
        if isinstance(kind, str) and wanted is not None and kind not in wanted:
            kind = Rejected(str(found), 0, records.OTHER_FORMAT)
        if isinstance(kind, Rejected):
            unread[Path(kind.path).suffix or Path(kind.path).name] += 1
            yield kind
            continue
        assert isinstance(found, Path)
        read.add(kind)
        if kind in PICTURES:
            pictures.append(found)
        else:
            for record in _read_one(folder, found, name, options.format or kind, options, workers, rows):
                if isinstance(record, SourceDocument) and record.media:
                    shown.add(os.path.normpath(record.media))
                yield record
    for found in pictures:
        if wanted is None and not read.isdisjoint(records.DATA_FORMATS) and read.isdisjoint(records.DOCUMENT_FORMATS - PICTURES):
            yield Rejected(str(found), 0, records.ILLUSTRATION)
        elif os.path.normpath(found) not in shown:
            yield from _read_one(folder, found, name, "picture", options, workers, rows)
    if not read:
        kind = f"{options.format} file" if options.format else ".txt, .md, .html, .pdf or .docx file, and no picture or data file,"
        there = f" (but {', '.join(f'{count} {what}' for what, count in unread.most_common(5))})" if unread else ""
        raise DataError(f"no {kind} in this folder{there}", path=folder, cure="Name the folder that holds the texts, or a data file")


def _kind(found: Path) -> str | Rejected:
    """The format of a file, or why it has none."""
    try:
        return format_of(found) or Rejected(str(found), 0, records.UNKNOWN_KIND)
    except OSError as error:
        refuse_passing(error, found)
        return Rejected(str(found), 0, records.UNREADABLE)


def _read_one(
    folder: Path, found: Path, name: str, kind: str, options: SourceOptions, workers: Workers | None, rows: RowIds
) -> Iterator[Record]:
    """The records of one file of a format; what is wrong with it as a whole costs that file alone."""
    inside = id_of(found.relative_to(folder).as_posix())
    path = f"{name}/{inside}" if name else inside
    words: str | None = None
    try:
        for record in apart(read_file(found, path, kind, options, workers), path, rows):
            if isinstance(record, SourceDocument) and record.doc_id.startswith(path):
                words = folder_words(folder, found) if words is None else words
                record = replace(record, title=record.title or stem(Path(record.inside or found)), folder=words)
            yield record
    except (DataError, MissingExtra) as error:
        yield Rejected(str(found), 0, error.problem)


def apart(found: Iterator[Record], name: str, rows: RowIds) -> Iterator[Record]:
    """Records of a source; one whose id is among ``rows``, those of files before it, is called by its file's name and its id."""
    own, inside = TextKeys(), ""
    for record in found:
        if isinstance(record, SourceDocument):
            if record.inside != inside:
                rows.add_all(own)
                own, inside = TextKeys(), record.inside
            doc_id = canonical_line(record.doc_id)
            taken, told = doc_id in rows, f"{inside or name}#id={doc_id}"
            if not record.doc_id.startswith(name) and (taken or told in rows.corpus):
                record = replace(record, doc_id=told)
            elif not taken and doc_id not in own:
                own.add(doc_id)
        yield record
    rows.add_all(own)


def folder_words(folder: Path, found: Path) -> str:
    """The names of the two innermost folders, below ``folder``, that say something of a file: not those that folders have whatever is in
    them, nor those of folders of so much that it tells little of each."""
    inside = [part for part in found.parents if part != folder and folder in part.parents]
    said = [canonical_line(part.name) for part in inside if part.name.lower() not in _ANY_FOLDER and _is_small(part)]
    return " ".join(reversed([words for words in said if len(words) > 1][:2]))


def _is_small(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return sum(1 for _ in islice(entries, MOST_ENTRIES + 1)) <= MOST_ENTRIES


def id_of(path: str) -> str:
    """The id of a file by its path: the path itself, or where another path would look the same in one line, that line and a hash."""
    line = canonical_line(path)
    return path if line == path else f"{line}~{blake2b(path.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"


def files_below(folder: Path) -> Iterator[Path | Rejected]:
    """Files in order of their path; as rejected those that are left out or lie outside, what is no file, and what cannot be listed."""
    unlisted: list[Rejected] = []
    left_out: dict[str, str] = {}

    def cannot_list(error: OSError) -> None:
        refuse_passing(error, Path(error.filename))
        unlisted.append(Rejected(str(error.filename), 0, records.UNREADABLE))

    inside = folder.resolve()
    for directory, names, files in os.walk(folder, onerror=cannot_list):
        above = left_out.get(os.path.dirname(directory), "")
        here = "" if Path(directory) == folder else above or folder_left_out(os.path.basename(directory), files)
        if here:
            left_out[directory] = here
        names[:] = sorted(name for name in names if not is_ours(os.path.join(directory, name)))
        for link in (os.path.join(directory, name) for name in names if os.path.islink(os.path.join(directory, name))):
            yield Rejected(link, 0, records.LINK_TO_FOLDER)
        for path in (Path(directory, name) for name in sorted(files)):
            reason = here or file_left_out(path.name) or _unreadable(path, inside) or of_a_page(path, Path.is_file)
            yield Rejected(str(path), 0, reason) if reason else path
    yield from unlisted


def files_of(source: Path) -> list[Path]:
    """The files that a source is read from, in order of their path."""
    return sorted(path for path in files_below(source) if isinstance(path, Path)) if os.path.isdir(source) else [source]


def what_changes(path: Path) -> list[int]:
    """Size, times and inode of a file, which tell that it has changed, though its time was set back; nothing where there is none."""
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return []
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def folder_left_out(name: str, files: Sequence[str]) -> str:
    """The reason to leave out a folder, by its name and the names in it; empty: there is none."""
    return records.HIDDEN if name.startswith(".") else records.CACHE if name in _CACHES or _CACHE_TAG in files else ""


def file_left_out(name: str) -> str:
    """The reason to leave out a file by its name; empty: there is none."""
    if name.startswith((".#", "~$", "#")) or name.endswith(_BACKUPS) or name in _LEFTOVERS:
        return records.BACKUP
    return records.HIDDEN if name.startswith(".") else ""


def _unreadable(path: Path, inside: Path) -> str:
    """The reason not to open a file: a link that leads nowhere, in a circle or out of ``inside``, a pipe or a device; else empty."""
    if not path.is_file():
        return records.UNREADABLE
    return records.LINK_OUT if path.is_symlink() and not path.resolve().is_relative_to(inside) else ""


def of_a_page(path: PurePath, is_there: Callable[[Any], bool]) -> str:
    """The reason to leave out a script or a style in the folder that a browser saves beside a page, PAGE_files; else empty."""
    page = regex.fullmatch(r"(.+)[-_]\w+", path.parent.name) if path.suffix.lower() in (".js", ".css", ".download") else None
    pages = [path.parent.with_name(page[1] + ending) for ending in (".html", ".htm")] if page else []
    return records.PAGE_PART if any(map(is_there, pages)) else ""


def is_ours(directory: str) -> bool:
    """True for a corpus, or what is to become one: its files are no documents. It may lie below the folder it is made of."""
    is_corpus = os.path.isfile(os.path.join(directory, "CURRENT")) and os.path.isdir(os.path.join(directory, "segments"))
    return is_corpus or directory.endswith(STAGING_SUFFIX)


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
        if holds_run(source):
            raise DataError("a run lies here, not documents", path=source, cure="Give the folder of the documents")
        return _read_folder(source, name, options, workers, rows)
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


def read_file(path: Path, name: str, file_format: str, options: SourceOptions, workers: Workers | None = None) -> Iterator[Record]:
    """Records of one file; one rejected record of a file that has none, so that nothing is left out in silence."""
    try:
        empty = path.stat().st_size == 0
    except OSError as error:
        refuse_passing(error, path)
        yield Rejected(str(path), 0, records.UNREADABLE)
        return
    if empty:
        yield Rejected(str(path), 0, records.EMPTY_FILE)
        return
    found = False
    if options.format is None and options.text_column is None and detect.holds_triples(path, file_format):
        file_format = "triples"
    read = FORMATS[file_format].load()
    for record in read(path, workers, options.document_seconds) if file_format == "mediawiki" else read(path, name, options):
        found = True
        yield _bounded(record, options.document_bytes)
    if not found:
        yield Rejected(str(path), 0, records.NO_DOCUMENTS)


def _bounded(record: Record, most: int) -> Record:
    """The record, or that its text has more than ``most`` bytes."""
    if not isinstance(record, SourceDocument) or 4 * len(record.text) <= most or len(record.text.encode("utf-8", "replace")) <= most:
        return record
    return Rejected(record.path, record.line, records.TOO_LONG)


def source_name(path: str) -> str:
    """A reader's path as text that any tool can store: bytes of a file name that are not UTF-8 become ``\\xNN``."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
