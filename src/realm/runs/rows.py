"""Rows in the place of a file: data frames and iterables of dictionaries become JSON lines, which every reader of files takes."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from realm.errors import DataError
from realm.storage.files import make_directory, write_atomic


class Frame(Protocol):
    """A table that speaks Arrow: of pandas (2.2 or newer), Polars, PyArrow, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


Given = str | Path | Iterable[Mapping[str, Any]] | Frame
"""A file or folder, or rows of it."""


def files_of_given(given: Iterable[Given], directory: Path) -> list[Path]:
    """Return the paths that are given, and for rows a file of JSON lines in ``directory``, named after its contents.

    Raises DataError: no such file or folder, or something that is neither path nor rows.
    """
    paths = [Path(one) if isinstance(one, str | Path) else _written(one, directory) for one in given]
    for path in paths:
        if not path.exists():
            raise DataError("no such file or folder", path=path, cure="Check the path.")
    return paths


def _written(rows: Iterable[Mapping[str, Any]] | Frame, directory: Path) -> Path:
    lines = "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in _rows(rows)).encode("utf-8", "replace")
    path = directory / f"rows-{hashlib.sha256(lines).hexdigest()[:16]}.jsonl"
    if not path.exists():
        make_directory(directory)
        write_atomic(path, lines)
    return path


def _rows(given: Any) -> Iterator[dict[str, Any]]:
    """The rows of a frame or an iterable; empty cells are left out."""
    if hasattr(given, "__arrow_c_stream__"):
        import pyarrow

        try:
            given = pyarrow.table(given).to_pylist()
        except pyarrow.ArrowException as error:
            raise DataError(f"the data frame cannot be read: {error}", cure="Give each column one type, such as text.") from error
    for number, row in enumerate(given, 1):
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is no dictionary", cure='Give rows such as {"id": "1", "text": "..."}, a data frame, or a path.')
        yield {name: value for name, value in row.items() if value is not None and value == value}
