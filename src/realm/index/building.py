"""A generation while it is built: one file of vectors that grows part by part, and a durable note of how far it is.

``DIRECTORY/000007.building/`` holds ``vectors-00000.npy`` and ``progress.json``. After a kill, the next call continues after the
last part noted there, if the same rows are to be embedded by the same parameters (``key``); anything else is thrown away. Memory: one part.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from realm.decoding import json_value
from realm.index.manifest import Shard, SnapshotFacts, fields_of
from realm.index.shards import STORED, encode, shard_names, stored_width
from realm.storage.arrays import array_header, publish_array
from realm.storage.disk import says_nothing_of_the_file
from realm.storage.files import make_directory, reached, write_json

PROGRESS = "progress.json"
HASHED_AT_ONCE = 1 << 24
Parts = Callable[[int], Iterable[np.ndarray]]
"""From a number of rows that are there already to the parts [r,d] from there on."""


class Building:
    """The rows of a generation on their way to disk. Make it with ``take_up``.

    Attributes:
        root: the directory that becomes the generation.
        rows: rows that are durable already.
        dim: d; None if it is not known before the first part.
    """

    def __init__(self, root: Path, key: dict[str, Any], count: int, dtype: str, shard: int = 0, dim: int | None = None):
        self.root = root
        self.rows = 0
        self.dim = dim
        self._before = 0.0
        self._started = time.perf_counter()
        self._key = key
        self._count = count
        self._dtype = dtype
        self._digest = hashlib.sha256()
        self._names = shard_names(shard)
        self._file = root / self._names[0]

    @classmethod
    def take_up(cls, root: Path, key: dict[str, Any], count: int, dtype: str, *, shard: int = 0, dim: int | None = None) -> "Building":
        """The build that was begun here with the same key, or a new one.

        Args:
            root: ``DIRECTORY/NUMBER.building``.
            key: JSON: everything that the vectors depend on.
            count: n, rows in the end.
            dtype: on disk, one of ``manifest.DTYPES``.
            shard: its number in the generation.
            dim: d, if only one will do.
        """
        build = cls(root, key, count, dtype, shard, dim)
        if not build._resumed():
            shutil.rmtree(root, ignore_errors=True)
            make_directory(root)
            build = cls(root, key, count, dtype, shard, dim)
        reached("build: begun", root)
        return build

    @property
    def seconds(self) -> float:
        """Seconds of work, those of killed processes up to their last note included."""
        return round(self._before + time.perf_counter() - self._started, 3)

    def append(self, vectors: np.ndarray) -> None:
        """Add the next rows, durably.

        Args:
            vectors: floating point [r,d].

        Raises:
            SnapshotError: a component that is not finite.
            ValueError: another dimension than before, or more rows than there are ids.
        """
        if vectors.ndim != 2 or vectors.dtype.kind != "f" or self.dim not in (None, vectors.shape[1]):
            raise ValueError(f"vectors {vectors.dtype} {list(vectors.shape)} do not fit ids, dimension {self.dim}")
        if self.rows + len(vectors) > self._count:
            raise ValueError(f"{self.rows + len(vectors)} vectors for {self._count} ids")
        data = encode(vectors, self._dtype, first=self.rows).tobytes()
        with open(self._file, "ab") as file:
            if self.rows == 0:
                self.dim = int(vectors.shape[1])
                data = self._header() + data
            file.write(data)
            reached("build: written", self._file)
            file.flush()
            os.fsync(file.fileno())
        reached("build: synced", self._file)
        self._digest.update(data)
        self.rows += len(vectors)
        note = {"key": self._key, "rows": self.rows, "dim": self.dim, "sha256": self._digest.hexdigest(), "seconds": self.seconds}
        write_json(self.root / PROGRESS, note)

    def finish(self, block_ids: np.ndarray) -> Shard:
        """Write the ids beside the vectors; after that ``dim`` is known. Raises ValueError: rows are missing."""
        if self.dim is None or self.rows != self._count:
            raise ValueError(f"{self.rows} vectors for {self._count} ids")
        reached("build: whole", self.root)
        vectors, ids = self._names
        first = int(block_ids[0]) if len(block_ids) else None
        return Shard(vectors, self._digest.hexdigest(), ids, publish_array(self.root / ids, block_ids), self.rows, first)

    def discard(self) -> None:
        """Delete what is left: its shard has been moved to where it belongs."""
        shutil.rmtree(self.root, ignore_errors=True)

    def _header(self) -> bytes:
        """What ``np.save`` writes before the numbers of the whole array."""
        assert self.dim is not None
        return array_header(STORED[self._dtype], (self._count, stored_width(self.dim, self._dtype)))

    def _resumed(self) -> bool:
        """Continue what is there. False if there is nothing, something else, or something damaged."""
        try:
            note = json_value((self.root / PROGRESS).read_text("utf-8"))
            if note["key"] != self._key:
                return False
            if self.dim not in (None, note["dim"]):
                return False
            self.rows, self.dim, self._before = int(note["rows"]), int(note["dim"]), float(note["seconds"])
            length = len(self._header()) + self.rows * stored_width(self.dim, self._dtype) * STORED[self._dtype].itemsize
            with open(self._file, "r+b") as file:
                left = length
                while left and (block := file.read(min(left, HASHED_AT_ONCE))):
                    self._digest.update(block)
                    left -= len(block)
                file.truncate(length)  # what came after the last note is not known to be whole
            return self._digest.hexdigest() == note["sha256"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            if says_nothing_of_the_file(error):
                raise
            return False


def build_key(number: int, block_ids: np.ndarray, facts: SnapshotFacts) -> dict[str, Any]:
    """What a half-built generation must have in common with what is asked for now; JSON and back must not change it."""
    ids = hashlib.sha256(np.ascontiguousarray(block_ids).tobytes()).hexdigest()
    segments = [list(pair) for pair in facts.segments]
    return {**fields_of(facts), "segments": segments, "generation": number, "block_ids_sha256": ids}


def parts_from(vectors: Parts | Iterable[np.ndarray], rows: int) -> Iterable[np.ndarray]:
    """The parts from ``rows`` on, of an array, of an iterable that starts at 0, or of a function that is asked for them."""
    if callable(vectors):
        return vectors(rows)
    return [vectors[rows:]] if isinstance(vectors, np.ndarray) else vectors
