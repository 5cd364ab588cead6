"""The bytes of a dump in pieces, decompressed by their first bytes, whatever the file's name; bzip2 on several cores.

indexed_bzip2 finds blocks by their magic number, so that it decodes both multistream files and single streams of many blocks in
parallel. Without it the standard library decodes on one core.
"""

import bz2
import io
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from realm.corpus.streams import DECOMPRESSION_ERRORS, compression_of, open_bytes

PIECE = 1 << 16
# The largest block of bzip2, in bytes.
_BLOCK = 900_000


class DamagedData(Exception):
    """Compressed data that is truncated or damaged; every piece before that has been given."""


def read_pieces(path: Path, workers: int) -> Iterator[bytes]:
    """The file's content.

    Args:
        workers: threads that decompress bzip2.

    Raises:
        OSError: while iterating, if it cannot be read.
        DamagedData: while iterating, where the compressed data breaks off.
    """
    with open(path, "rb") as file:
        start = file.read(8)
    match compression_of(start):
        case "bz2":
            yield from _bz2_pieces(path, workers)
        case None:
            with open(path, "rb") as file:
                while piece := file.read(PIECE):
                    yield piece
        case _:
            yield from _pieces(open_bytes(path))


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """What one read of the layer below gives, so that nothing decoded before damage is lost."""
    try:
        with file:
            while piece := cast(io.BufferedReader, file).read1(PIECE):
                yield piece
    except DECOMPRESSION_ERRORS as error:
        raise DamagedData(str(error)) from error


def _checked_pieces(path: Path) -> Iterator[bytes]:
    """bzip2 on one core. A block's checksum is looked at after its bytes have come, so that the last block's worth waits."""
    held: deque[bytes] = deque()
    size = 0
    try:
        for piece in _pieces(cast(IO[bytes], bz2.BZ2File(path))):
            held.append(piece)
            size += len(piece)
            while size - len(held[0]) >= _BLOCK:
                size -= len(held[0])
                yield held.popleft()
    except DamagedData as damage:
        if isinstance(damage.__cause__, EOFError):  # truncated: a block that is not whole gives nothing, those before it are right
            yield from held
        raise
    yield from held


def _bz2_pieces(path: Path, workers: int) -> Iterator[bytes]:
    try:
        import indexed_bzip2
    except ImportError:
        yield from _checked_pieces(path)
        return
    given = 0
    try:
        with cast(Any, indexed_bzip2).open(str(path), parallelization=max(1, workers)) as file:
            while piece := file.read(PIECE):
                given += len(piece)
                yield piece
        return
    except (RuntimeError, ValueError, OSError):
        pass  # it reads ahead, so it fails before all that is whole has come: the standard library gives the rest
    for piece in _checked_pieces(path):
        if given < len(piece):
            yield piece[given:]
        given = max(0, given - len(piece))
