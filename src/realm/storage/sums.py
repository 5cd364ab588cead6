"""Checksums of published bytes: XXH3 with 64 bits, as 16 hex digits.

They detect damage, not forgery, as fast as memory, so that what is opened often can be checked each time. Where bytes name something
(a tokenizer, published weights), SHA-256 does.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_64

if TYPE_CHECKING:
    import numpy as np

CHUNK = 1 << 20


def bytes_sum(*parts: Any) -> str:
    """The checksum of objects with a buffer, one after the other."""
    found = xxh3_64()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def array_sum(array: "np.ndarray") -> str:
    """The checksum of an array's numbers in C order. With type and shape known, it stands for the whole ``.npy`` file."""
    import numpy as np

    return bytes_sum(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def file_sum(path: Path) -> str:
    """The checksum of a file. Raises OSError: it is missing or cannot be read."""
    found, chunk = xxh3_64(), memoryview(bytearray(CHUNK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(chunk):
            found.update(chunk[:count])
    return found.hexdigest()
