"""The bytes of a dump in pieces, decompressed by the end of the file's name; bzip2 on several cores.

indexed_bzip2 finds blocks by their magic number, so that it decodes both multistream files and single streams of many blocks in
parallel. Without it the standard library decodes on one core.
"""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

# Small, so that little is lost where a file is damaged: a piece that cannot be completed does not come.
PIECE = 1 << 16


class DamagedData(Exception):
    """Compressed data that is truncated or damaged; every piece before that has been given."""


def read_pieces(path: Path, workers: int) -> Iterator[bytes]:
    """The file's content.

    Raises:
        OSError: it cannot be opened.
        DamagedData: while iterating, where the compressed data breaks off.
    """
    with open(path, "rb") as probe:
        probe.read(1)  # the decompressors' own errors do not tell a missing file from a damaged one
    compressed = path.suffix.lower() in (".bz2", ".gz", ".xz")
    try:
        with _open(path, workers) as file:
            while piece := file.read(PIECE):
                yield piece
    except (EOFError, OSError, RuntimeError, ValueError, lzma.LZMAError, zlib.error) as error:
        if not compressed:
            raise
        raise DamagedData(str(path)) from error


def _open(path: Path, workers: int) -> IO[bytes]:
    match path.suffix.lower():
        case ".bz2":
            return _open_bz2(path, workers)
        case ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        case ".xz":
            return cast(IO[bytes], lzma.open(path, "rb"))
        case _:
            return open(path, "rb")


def _open_bz2(path: Path, workers: int) -> IO[bytes]:
    try:
        import indexed_bzip2
    except ImportError:
        return cast(IO[bytes], bz2.open(path, "rb"))
    return cast(IO[bytes], cast(Any, indexed_bzip2).open(str(path), parallelization=max(1, workers)))
