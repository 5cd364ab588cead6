"""JSON and TOML as values. Whatever is wrong with them is a ValueError, nesting that Python cannot follow included.

Text files that people give us, plain or compressed, line by line."""

import gzip
import json
import lzma
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from realm.errors import DataError

TOO_DEEP = "nested too deeply"


def json_value(text: str | bytes) -> Any:
    """The value of JSON. Raises ValueError: it is none, is not UTF-8, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def toml_values(text: str) -> dict[str, Any]:
    """The values of TOML. Raises tomllib.TOMLDecodeError (a ValueError): it is none, or is nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError(TOO_DEEP) from None


@contextmanager
def open_text(path: Path) -> Iterator[Iterator[str]]:
    """Lines of a UTF-8 text file, plain or compressed (.gz, .xz). Raises DataError: the file is missing, unreadable, truncated or not
    UTF-8."""
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            yield file
    except FileNotFoundError:
        raise DataError("no such file", path=path, cure="Check the path.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 ({error.reason})", path=path, cure="Convert it to UTF-8.") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"cannot be read ({error})", path=path, cure="Check the file and its permissions.") from error


def json_lines(path: Path, cure: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of each line that is not blank; of a value that is no object, an empty one. Raises DataError: as ``open_text``, or a
    line that is not JSON, with ``cure``."""
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = json_value(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"not JSON ({error})", path=path, line=number, cure=cure) from error
            yield number, value if isinstance(value, dict) else {}
