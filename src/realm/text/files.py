"""Text files that people give us, plain or compressed."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from realm.errors import DataError


@contextmanager
def open_text(path: Path) -> Iterator[Iterator[str]]:
    """Lines of a UTF-8 text file, plain or compressed (.gz, .xz).

    Raises:
        DataError: the file is missing, unreadable, truncated or not UTF-8.
    """
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
