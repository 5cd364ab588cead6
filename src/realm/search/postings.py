"""Which words occur in which blocks, how often: the files of sparse search, opened by memory map.

Frequencies are kept, not scores, so that blocks which are added later are scored with everything else by statistics of all together, and
what was there is not written again. Words are kept as 64-bit hashes in ascending order: a look-up is a binary search in the file.
"""

import hashlib
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

import numpy as np

from realm.search.publishing.manifest import DamagedSnapshot
from realm.storage.arrays import load_array, write_array
from realm.storage.files import sha256_file
from realm.text.words import words

DTYPES = {
    "block_ids": np.int64, "lengths": np.int32, "terms": np.uint64, "starts": np.int64, "rows": np.int32, "counts": np.uint16,
}  # fmt: skip


@dataclass(frozen=True)
class Postings:
    """Words of n blocks: t distinct ones, in p pairs of a word and a block.

    Attributes:
        block_ids: int64 [n], ascending.
        lengths: int32 [n], words of each block.
        terms: uint64 [t], ascending: hashes of the words.
        starts: int64 [t + 1]: the pairs of word i are those from starts[i] to starts[i + 1].
        rows: int32 [p]: positions in ``block_ids``, ascending for each word.
        counts: uint16 [p]: how often the word occurs there; 65,535 for more.
    """

    block_ids: np.ndarray
    lengths: np.ndarray
    terms: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    counts: np.ndarray

    def find(self, term: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and counts of a word by its hash, int32 [m] and uint16 [m]; empty where no block has it."""
        place = int(np.searchsorted(self.terms, np.uint64(term)))
        if place == len(self.terms) or int(self.terms[place]) != term:
            return self.rows[:0], self.counts[:0]
        part = slice(int(self.starts[place]), int(self.starts[place + 1]))
        return self.rows[part], self.counts[part]


def hash_of(word: str) -> int:
    """The 64 bits that stand for a word."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def count_words(texts: Iterable[str], block_ids: np.ndarray) -> Postings:
    """The postings of n texts, one a block; memory: 4 bytes a word, and the distinct words.

    Args:
        texts: titles and bodies, in the order of ``block_ids``.
        block_ids: int64 [n], ascending.
    """
    vocabulary: dict[str, int] = {}
    stream, lengths = array("i"), array("i")
    for text in texts:
        found = [vocabulary.setdefault(word, len(vocabulary)) for word in words(text)]
        stream.extend(found)
        lengths.append(len(found))
    n = max(1, len(lengths))
    hashes = np.array([hash_of(word) for word in vocabulary], np.uint64)
    order = np.argsort(hashes)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    sizes = np.frombuffer(lengths, np.int32) if lengths else np.empty(0, np.int32)
    drawn = np.frombuffer(stream, np.int32) if stream else np.empty(0, np.int32)
    pairs, counts = np.unique(rank[drawn] * n + np.repeat(np.arange(len(sizes)), sizes), return_counts=True)
    starts = np.searchsorted(pairs, np.arange(len(hashes) + 1) * n)
    kept = np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16)
    return Postings(block_ids, sizes, hashes[order], starts.astype(np.int64), (pairs % n).astype(np.int32), kept)


def write_postings(directory: Path, postings: Postings) -> dict[str, str]:
    """Write each array as NAME.npy into a directory that is being staged. Returns the SHA-256 of each file."""
    for name, dtype in DTYPES.items():
        with open(directory / f"{name}.npy", "wb") as file:
            write_array(file, np.asarray(getattr(postings, name), dtype))
    return {f"{name}.npy": sha256_file(directory / f"{name}.npy") for name in DTYPES}


def read_postings(directory: Path, sha256: dict[str, str]) -> Postings:
    """Map the files of ``write_postings``; each is read and compared with its SHA-256 once a process.

    Raises:
        DamagedSnapshot: a file is missing, cut short or changed, or is not what its name says.
    """
    if set(sha256) != {f"{name}.npy" for name in DTYPES}:
        raise DamagedSnapshot("its manifest names other files than sparse search has", path=directory)
    for name, expected in sha256.items():
        check_file(directory / name, expected)
    try:
        found = Postings(**{field.name: load_array(directory / f"{field.name}.npy", "r") for field in fields(Postings)})
    except (OSError, ValueError) as error:
        raise DamagedSnapshot(f"cannot be read: {error}", path=directory) from None
    for name, dtype in DTYPES.items():
        if getattr(found, name).dtype != dtype or getattr(found, name).ndim != 1:
            raise DamagedSnapshot(f"not a list of {np.dtype(dtype)}", path=directory / f"{name}.npy")
    return found


def check_file(path: Path, sha256: str, *, again: bool = False) -> None:
    """Compare a file with its SHA-256; ``again``: even if this process has done so since the file was last written.

    Raises:
        DamagedSnapshot: it is missing or another one.
    """
    try:
        stat = os.stat(path)
        found = sha256_file(path) if again else _digest(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise DamagedSnapshot(f"cannot be read: {error.strerror}", path=path) from None
    if found != sha256:
        raise DamagedSnapshot("changed since it was published (checksum differs)", path=path)


@lru_cache(maxsize=1024)
def _digest(path: Path, *_: int) -> str:
    """The SHA-256 of a file as its number, size and time say it is."""
    return sha256_file(path)


def merged_ids(parts: Sequence[Postings]) -> np.ndarray:
    """Block ids of several postings one after the other, int64 [n]."""
    return np.concatenate([np.empty(0, np.int64), *(part.block_ids for part in parts)])
