"""Look-up files beside a segment: which documents start where in it, and which blocks it holds. Mapped if large, found by binary search.

Both are made from the finished segment, so whatever wrote it, they fit it. ``NNNNNN.documents.npy``: uint64 [2, d], the 64-bit hash of
each document id in ascending order and the document's first row. ``NNNNNN.blocks.npy``: uint64 [2, n], both halves of each block's key,
ordered by the first.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from realm.documents.links import document_key
from realm.documents.store.manifest import SegmentInfo, damage
from realm.documents.store.segments import read_whole, segment_sums
from realm.errors import CorpusError
from realm.storage import files
from realm.storage.arrays import read_array, write_array
from realm.storage.sums import array_sum

Key = TypeVar("Key", bytes, str, contravariant=True)

KEY_BYTES = 16
_KEY = np.dtype(f"S{KEY_BYTES}")
# Keys that wait in an ordinary set, which takes about 100 bytes for each.
RECENT = 262_144


class Keys(Protocol[Key]):
    """What is there already, keys or ids: a set, one of those below, or a look-up in the corpus."""

    def __contains__(self, key: Key, /) -> bool: ...

    def add(self, key: Key, /) -> None: ...


class KeyRuns:
    """A growing set of 16-byte keys: 16 bytes a key in sorted runs, up to 32 while runs are merged, besides ``RECENT`` newest ones.

    A python set of bytes takes about 100 bytes a key.
    """

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._runs: list[np.ndarray] = []  # each at least twice as long as the next one

    def __contains__(self, key: bytes) -> bool:
        return key in self._recent or any(_holds(run, key) for run in self._runs)

    def __len__(self) -> int:
        return len(self._recent) + sum(map(len, self._runs))

    def add(self, key: bytes) -> None:
        """Take in a key that is not in the set yet."""
        self._recent.add(key)
        if len(self._recent) >= RECENT:
            self._settle()

    def _settle(self) -> None:
        run = np.sort(np.array(list(self._recent), _KEY))
        self._recent = set()
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)


def _holds(run: np.ndarray, key: bytes) -> bool:
    wanted = np.array(key, _KEY)
    position = int(np.searchsorted(run, wanted))
    return position < len(run) and run[position] == wanted


class TextKeys:
    """A set of strings that keeps a key of each: ``KeyRuns`` of their hashes. Two strings share one with a chance of 2^-128 a pair."""

    def __init__(self) -> None:
        self._keys = KeyRuns()

    def __contains__(self, text: str) -> bool:
        return _text_key(text) in self._keys

    def add(self, text: str) -> None:
        """Take in a string that is not in the set yet."""
        self._keys.add(_text_key(text))


def _text_key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


DOCUMENTS_SUFFIX = ".documents.npy"
BLOCKS_SUFFIX = ".blocks.npy"


def block_key(title: str, text: str) -> bytes:
    """What makes two blocks identical, title and text, in 16 bytes."""
    return _key(title.encode("utf-8"), text.encode("utf-8"))


def _key(title: bytes, text: bytes) -> bytes:
    return hashlib.blake2b(b"%b\n%b" % (title, text), digest_size=16).digest()


def flat_view(column: pa.Array) -> np.ndarray:
    """A column of numbers without nulls, not copied. (``to_numpy`` would import pandas first, where that is installed.)"""
    data = column.buffers()[1]
    dtype = np.dtype(column.type.to_pandas_dtype())
    if data is None or not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype, count=len(column), offset=column.offset * dtype.itemsize)


def companions(segment: Path) -> tuple[Path, Path]:
    """The look-up files of a segment: documents, blocks."""
    return segment.with_suffix(DOCUMENTS_SUFFIX), segment.with_suffix(BLOCKS_SUFFIX)


def finish_segment(path: Path, tokens: int) -> SegmentInfo:
    """Write the look-up files of a finished segment. Returns what the manifest says of it.

    Args:
        path: the Arrow file; the caller makes it durable and publishes it with its companions.
        tokens: wordpieces of all its blocks, titles not counted.
    """
    whole = read_whole(path)
    reader = pa.ipc.open_file(pa.BufferReader(whole))
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    documents, blocks = companions(path)
    write_lookup(path, batches)
    ids = [flat_view(batch.column("block_id")) for batch in batches if len(batch)]
    first, last = (int(ids[0][0]), int(ids[-1][-1])) if ids else (-1, -1)
    rows = tuple(len(batch) for batch in batches)
    sums = segment_sums(whole, batches, documents, blocks)
    return SegmentInfo(path.name, sum(rows), path.stat().st_size, files.sha256_file(path), tokens, first, last, rows, sums)


def write_lookup(path: Path, batches: Sequence[pa.RecordBatch]) -> None:
    """Write the look-up files of a segment.

    Args:
        path: the Arrow file that they come beside.
        batches: all its record batches.
    """
    documents, blocks = companions(path)
    _save(documents, np.array(list(_document_starts(batches)), np.uint64).reshape(-1, 2).T)
    keys = b"".join(b"".join(map(_key, _utf8(batch.column("title")), _utf8(batch.column("text")))) for batch in batches)
    _save(blocks, np.frombuffer(keys, np.uint64).reshape(-1, 2).T)


def _document_starts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int]]:
    """(hash of the id, first row) of each document; a document's rows stand together, and may continue in the next batch."""
    previous, start = None, 0
    for batch in batches:
        ids = batch.column("doc_id")
        for row in _first_rows(ids):
            doc_id = ids[row].as_py()
            if doc_id != previous:
                yield document_key(doc_id.encode("utf-8")), start + row
            previous = doc_id
        start += len(batch)


def _save(path: Path, columns: np.ndarray) -> None:
    with open(path, "wb") as file:
        write_array(file, columns[:, np.argsort(columns[0], kind="stable")])


def _first_rows(ids: pa.Array) -> list[int]:
    """Rows of a batch whose document is not that of the row before; a document's rows stand together."""
    if not len(ids):
        return []
    changes = pc.indices_nonzero(pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)))
    return [0, *(flat_view(changes) + 1).tolist()]


def _utf8(column: pa.Array) -> Iterator[bytes]:
    """The bytes of each string, not decoded."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1].tolist()
    data = memoryview(column.buffers()[2]) if column.buffers()[2] is not None else memoryview(b"")
    for start, stop in pairwise(offsets):
        yield bytes(data[start:stop])


class SegmentLookup:
    """The look-up files of one segment. The documents' is mapped at once and stays readable when another process deletes it; each is
    compared with its checksum when it is used first.

    Raises:
        CorpusError: a file is missing or damaged.
    """

    def __init__(self, segment: Path, info: SegmentInfo):
        self._documents_path, self._blocks_path = companions(segment)
        self._rows, self._sums = info.rows, info.sums
        self._mapped = _open(self._documents_path)

    @cached_property
    def _documents(self) -> np.ndarray:
        return _checked(self._mapped, self._sums.documents, self._documents_path)

    @cached_property
    def keys(self) -> np.ndarray:
        """uint64 [2, n]: both halves of the keys of all blocks, ordered by the first."""
        keys = _open(self._blocks_path)
        if keys.shape[1] != self._rows:
            raise CorpusError("the look-up file is not that of its segment", path=self._blocks_path, cure="Build the corpus again")
        return _checked(keys, self._sums.blocks, self._blocks_path)

    def first_rows(self, doc_id: str) -> list[int]:
        """Rows at which a document with the hash of ``doc_id`` starts; the caller compares the ids."""
        return self.first_rows_of_key(document_key(doc_id.encode("utf-8", "replace")))

    def first_rows_of_key(self, key: int) -> list[int]:
        """Rows at which a document with the key (``links.document_key``) starts."""
        hashes, firsts = self._documents
        wanted = np.uint64(key)
        position, found = int(np.searchsorted(hashes, wanted)), []
        while position < len(hashes) and hashes[position] == wanted:
            found.append(int(firsts[position]))
            position += 1
        return found  # ascending: equal hashes are in order of their rows

    @cached_property
    def starts(self) -> np.ndarray:
        """int64 [d], ascending: the rows at which documents start."""
        return np.sort(self._documents[1]).astype(np.int64)


def stored_keys(segment: Path, info: SegmentInfo) -> Iterator[bytes]:
    """The key of every block of a finished segment."""
    for first, second in SegmentLookup(segment, info).keys.T:
        yield first.tobytes() + second.tobytes()


def _checked(columns: np.ndarray, expected: str, path: Path) -> np.ndarray:
    if array_sum(columns) != expected:
        raise damage("look-up file").damaged("changed since it was published (checksum differs)", path=path)
    return columns


def _open(path: Path) -> np.ndarray:
    columns = read_array(path, (2, None), np.dtype(np.uint64), damage("look-up file"), mode="r")
    return columns.view(np.ndarray)  # the same mapping; slices of numpy's memmap class are slow


def check_lookup(path: Path, expected: str) -> None:
    """Read a look-up file. Raises CorpusError: it is missing or damaged."""
    _checked(_open(path), expected, path)


class BlockKeys:
    """Keys of the live blocks: those of memory-mapped segments less the removed ones, and new ones. Used like a set of bytes.

    Only new and removed keys take memory.

    Args:
        mapped: ``SegmentLookup.keys`` of every segment.
        removed: the key of every block that does not count any more, once for each.
    """

    def __init__(self, mapped: Iterable[np.ndarray], removed: Iterable[bytes] = ()):
        self._mapped = list(mapped)
        self._removed = Counter(removed)
        self._new: set[bytes] = set()

    def __contains__(self, key: bytes) -> bool:
        # A key may stand in several segments, with all but one of its blocks removed: counting decides.
        return key in self._new or sum(_count(columns, key) for columns in self._mapped) > self._removed[key]

    def add(self, key: bytes) -> None:
        """Take a new key in."""
        self._new.add(key)


def _count(columns: np.ndarray, key: bytes) -> int:
    first, second = np.frombuffer(key, np.uint64)
    start, stop = np.searchsorted(columns[0], first, "left"), np.searchsorted(columns[0], first, "right")
    return int((columns[1, start:stop] == second).sum())
