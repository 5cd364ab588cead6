"""Text files that people give us, plain or compressed."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from realm.errors import DataError
from realm.storage.decoding import json_value


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
