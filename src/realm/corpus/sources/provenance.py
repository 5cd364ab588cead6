"""Where a document came from: the name that is kept of its source, and reading its record again."""

from dataclasses import replace
from pathlib import Path

from realm.corpus.records import SourceDocument
from realm.corpus.sources import LOOK, SourceOptions, iter_documents
from realm.corpus.sources.hub import is_hub_name
from realm.errors import DataError


def source_name(path: str) -> str:
    """A reader's path as text that any tool can store: bytes of a file name that are not UTF-8 become ``\\xNN``."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def read_again(source: str, line: int, options: SourceOptions = LOOK) -> SourceDocument | None:
    """The record that a document was made of, read from its source once more; None if the source has no such record now.

    Args:
        source: file or name, as a block's ``source`` has it.
        line: the record in it; 0: the whole file is one document.
        options: what was said of the source when the document was made.

    Raises:
        DataError: the source is not there any more, or cannot be read.
        MissingExtra: its kind needs a package that is not installed.
    """
    path = Path(source)
    if not is_hub_name(path) and not path.exists():
        where = "" if path.is_absolute() else ", or run the command in the directory where the corpus was made,"
        cure = f"Put it back{where} to see the original record"
        raise DataError("the source is not there any more", path=source, cure=cure)
    if path.is_file() and options.format == "beir":
        options = replace(options, format=None)  # it was said of the folder around the file
    for record in iter_documents(path, options):
        if isinstance(record, SourceDocument) and record.line == line:
            return record
        if record.line > line > 0:
            break
    return None
