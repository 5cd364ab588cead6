"""ZIP archives: each file in one is read by its own format, as in a folder."""

import shutil
from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile, ZipInfo

from realm.documents import records
from realm.documents.detect import format_of
from realm.documents.records import PICTURES, Record, Rejected, SourceDocument, SourceOptions
from realm.documents.sources.reading import file_left_out, folder_left_out, id_of, of_a_page, read_file
from realm.errors import DataError, MissingExtra

MOST_FILES = 10_000
MOST_BYTES = 2**30
"""Files of an archive that are read, and bytes that all of them may unpack to."""
NOT_INSIDE = PICTURES | {"zip", "mediawiki"}
"""Formats that are read from a folder and not from an archive: a picture could not be shown again."""


def read_zip(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """Documents of the files in an archive, whose ids begin with NAME/PATH-IN-IT; ``line`` counts its documents.

    Every file is unpacked alone, to a temporary one that is gone when the next is read; what is not read is named by its place."""
    number = 0
    try:
        with ZipFile(path) as archive, TemporaryDirectory() as room:
            left, names = MOST_BYTES, frozenset(map(PurePosixPath, archive.namelist()))
            for count, member in enumerate(one for one in archive.infolist() if not one.filename.endswith("/")):
                left -= member.file_size
                told = f"{path}/{member.filename}"
                if reason := _reason(member, names) or (records.TOO_LONG if left < 0 or count >= MOST_FILES else ""):
                    yield Rejected(told, 0, reason)
                    continue
                for record in _read_member(archive, member, Path(room), f"{name}/{id_of(member.filename)}", options):
                    if isinstance(record, SourceDocument) and not record.media:
                        number += 1
                        yield replace(record, path=str(path), line=number)
                    elif isinstance(record, Rejected):
                        yield replace(record, path=told)
    except (BadZipFile, OSError, EOFError):
        yield Rejected(str(path), 0, records.DAMAGED_FILE)


def _reason(member: ZipInfo, names: Container[PurePosixPath]) -> str:
    """The reason to leave out a file of an archive that holds these ``names``; empty: there is none."""
    *folders, last = PurePosixPath(member.filename).parts or ("..",)
    if last == "..":
        return records.DAMAGED_FILE
    if member.flag_bits & 1:
        return records.ENCRYPTED
    left_out = next(filter(None, (folder_left_out(folder, ()) for folder in folders)), "") or file_left_out(last)
    return left_out or of_a_page(PurePosixPath(member.filename), names.__contains__)


def _read_member(archive: ZipFile, member: ZipInfo, room: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The records of one file of an archive."""
    inside = room / PurePosixPath(member.filename).name[-60:]  # no more bytes than a file name may have
    try:
        with archive.open(member) as packed, open(inside, "wb") as file:
            shutil.copyfileobj(packed, file)
        yield from read_inside(inside, name, options, NOT_INSIDE)
    except (BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError):
        yield Rejected(str(inside), 0, records.DAMAGED_FILE)
    finally:
        inside.unlink(missing_ok=True)


def read_inside(inside: Path, name: str, options: SourceOptions, unread: frozenset[str]) -> Iterator[Record]:
    """The records of a file that was unpacked from another, by its own format unless that is ``unread``."""
    try:
        kind = format_of(inside)
        if kind is None or kind in unread:
            yield Rejected(str(inside), 0, records.UNKNOWN_KIND)
        else:
            options = replace(options, whole_rows=options.text_column is None)
            for record in read_file(inside, name, kind, options):
                yield replace(record, inside=name) if isinstance(record, SourceDocument) else record
    except (DataError, MissingExtra) as error:
        yield Rejected(str(inside), 0, error.problem)
