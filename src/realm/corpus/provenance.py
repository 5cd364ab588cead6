"""Where a document came from: the name that is kept of its source, and reading its record again."""

from pathlib import Path

from realm.corpus.records import SourceDocument
from realm.corpus.sources import iter_documents
from realm.errors import DataError


def source_name(path: str) -> str:
    """A reader's path as text that any tool can store: bytes of a file name that are not UTF-8 become ``\\xNN``."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def read_again(source: str, line: int) -> SourceDocument | None:
    """The record that a document was made of, read from its source once more; None if the source has no such record now.

    Args:
        source: file or name, as a block's ``source`` has it.
        line: the record in it; 0: the whole file is one document.

    Raises:
        DataError: the source is not there any more, or cannot be read without what was said of it at the build (columns, format).
        MissingExtra: its kind needs a package that is not installed.
    """
    if not Path(source).exists():
        raise DataError("the source is not there any more", path=source, cure="Put it back to see the original record")
    for record in iter_documents(Path(source)):
        if isinstance(record, SourceDocument) and record.line == line:
            return record
        if record.line > line > 0:
            break
    return None
