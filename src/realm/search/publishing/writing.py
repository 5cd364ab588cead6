"""Generations of the index on disk: build and publish one, add rows to it, merge its shards.

``000007.building/`` holds vectors that grow part by part, and ``progress.json``, a durable note of them. After a kill, the next call
continues there if the same rows are to be embedded by the same parameters (``key``). A delta is built likewise in
``NNNNNN.delta.building``. Memory: one part."""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import SnapshotError
from realm.search.index.mips import check_block_ids
from realm.search.publishing import snapshot
from realm.search.publishing.snapshot import Shard
from realm.storage import generations
from realm.storage.arrays import array_header, publish_array
from realm.storage.files import fsync_directory, is_transient, json_value, make_directory, reached, rename_durably, write_json, writing
from realm.storage.generations import BUILDING_SUFFIX, generation_path, remove_dead_builds, trailing

PROGRESS_FILE = "progress.json"
HASH_CHUNK_BYTES = 1 << 24
_NO_CONTEXT = nullcontext()
Parts = Callable[[int], Iterable[np.ndarray]]  # number of finished rows -> the parts [r,d] from there on


class Building:
    """Rows of a generation on their way to disk, of which ``rows`` are durable: the build begun in ``root`` (``DIRECTORY/NUMBER.building``)
    with the same key, or a new one.

    ``key`` is JSON, all that the vectors depend on; ``count`` n, rows in the end; ``dtype`` one of DTYPES; ``shard`` its number in the
    generation; ``dim`` the required d, or None until it is known."""

    def __init__(self, root: Path, key: dict[str, Any], count: int, dtype: str, *, shard: int = 0, dim: int | None = None):
        self.root = root
        self._started = time.perf_counter()
        self._key = key
        self._count = count
        self._dtype = dtype
        self._names = snapshot.shard_names(shard)
        self._file = root / self._names[0]
        self._digest: Any = None  # of the vectors file
        left, fresh = self._left(dim), (0, dim, 0.0, hashlib.sha256())
        self.rows, self.dim, self._before, self._digest = left or fresh
        if left is None:
            shutil.rmtree(root, ignore_errors=True)
            make_directory(root)
        reached("build: begun", root)

    @property
    def seconds(self) -> float:
        """Seconds of work, including killed processes up to their last note."""
        return round(self._before + time.perf_counter() - self._started, 3)

    def append(self, vectors: np.ndarray) -> None:
        """Add the next rows, floating point [r,d], durably.

        Raises SnapshotError: a component that is not finite. Raises ValueError: another dimension than before, or more rows than there are
        ids."""
        if vectors.ndim != 2 or vectors.dtype.kind != "f" or self.dim not in (None, vectors.shape[1]):
            raise ValueError(f"vectors {vectors.dtype} {list(vectors.shape)} do not fit ids, dimension {self.dim}")
        if self.rows + len(vectors) > self._count:
            raise ValueError(f"{self.rows + len(vectors)} vectors for {self._count} ids")
        data = snapshot.encode(vectors, self._dtype, first=self.rows).tobytes()
        with open(self._file, "ab") as file:
            if self.rows == 0:
                self.dim = int(vectors.shape[1])
                data = self._header(self.dim) + data
            file.write(data)
            reached("build: written", self._file)
            file.flush()
            os.fsync(file.fileno())
        reached("build: synced", self._file)
        self._digest.update(data)
        self.rows += len(vectors)
        note = {"key": self._key, "rows": self.rows, "dim": self.dim, "sha256": self._digest.hexdigest(), "seconds": self.seconds}
        write_json(self.root / PROGRESS_FILE, note)

    def finish(self, parts: Parts, block_ids: np.ndarray) -> Shard:
        """Add the parts that are missing, and write the ids of the vectors; ``dim`` is then known. Raises as ``append``, and ValueError:
        rows are missing."""
        for part in parts(self.rows):
            self.append(part)
        if self.dim is None or self.rows != self._count:
            raise ValueError(f"{self.rows} vectors for {self._count} ids")
        reached("build: whole", self.root)
        vectors, ids = self._names
        first = int(block_ids[0]) if len(block_ids) else None
        return Shard(vectors, self._digest.hexdigest(), ids, publish_array(self.root / ids, block_ids), self.rows, first)

    def discard(self) -> None:
        """Delete the rest, after the shard has been moved."""
        shutil.rmtree(self.root, ignore_errors=True)

    def _header(self, dim: int) -> bytes:
        return array_header(np.dtype(self._dtype), (self._count, dim))

    def _left(self, dim: int | None) -> tuple[int, int | None, float, Any] | None:
        """Rows, dimension, seconds and digest of a build, cut to its last note; None: there is none, or another or damaged one."""
        digest = hashlib.sha256()
        try:
            note = json_value((self.root / PROGRESS_FILE).read_text("utf-8"))
            if note["key"] != self._key or dim not in (None, note["dim"]):
                return None
            rows, found = int(note["rows"]), int(note["dim"])
            length = len(self._header(found)) + rows * found * np.dtype(self._dtype).itemsize
            with open(self._file, "r+b") as file:
                left = length
                while left and (block := file.read(min(left, HASH_CHUNK_BYTES))):
                    digest.update(block)
                    left -= len(block)
                file.truncate(length)  # what came after the last note is not known to be whole
            return (rows, found, float(note["seconds"]), digest) if digest.hexdigest() == note["sha256"] else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            if is_transient(error):
                raise
            return None


def build_key(number: int, block_ids: np.ndarray, facts: snapshot.SnapshotFacts) -> dict[str, Any]:
    """Identity of a half-built generation; unchanged by JSON and back."""
    ids = hashlib.sha256(np.ascontiguousarray(block_ids).tobytes()).hexdigest()
    segments = [list(pair) for pair in facts.segments]
    return {**snapshot.fields_of(facts), "segments": segments, "generation": number, "block_ids_sha256": ids}


def publish_snapshot(
    directory: Path,
    parts: Parts,
    block_ids: np.ndarray,
    facts: snapshot.SnapshotFacts,
    *,
    generation: int | None = None,
    visible: AbstractContextManager[None] = _NO_CONTEXT,
) -> snapshot.SnapshotManifest:
    """Publish a new generation and point CURRENT at it. A killed call leaves everything published before unchanged.

    Args:
        directory: the run's ``index/``.
        parts: of the vectors [n,d].
        block_ids: int64 [n], strictly ascending.
        generation: its number; None: the next one. CURRENT never goes back.
        visible: context around the moment in which it becomes visible.

    Raises SnapshotError: the generation exists, ids are out of order, a vector is not finite, or the disk refuses. Raises ValueError:
    shapes that do not fit together, or an unknown dtype."""
    if facts.dtype not in snapshot.DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(snapshot.DTYPES)}, not {facts.dtype}")
    check_block_ids(block_ids, len(block_ids))
    number = generations.next_generation(directory) if generation is None else generation
    final = generations.generation_path(directory, number)
    with writing(final):
        # Left by a publisher that was killed: nobody was told.
        if final.is_dir() and number not in generations.published_generations(directory):
            if (left := _whole(final, number, block_ids, facts)) is not None:
                with visible:
                    generations.advance_current(directory, number)
                return left
            generations.remove(final)
        if final.exists():
            raise FileExistsError(final)
        staging = final.with_name(final.name + generations.BUILDING_SUFFIX)
        remove_dead_builds(directory, staging.name)
        build = Building(staging, build_key(number, block_ids, facts), len(block_ids), facts.dtype)
        shard = build.finish(parts, block_ids)
        assert build.dim is not None
        disk: dict[str, Any] = {"dim": build.dim, "count": len(block_ids), "shards": (shard,)}
        manifest = snapshot.SnapshotManifest(**snapshot.fields_of(facts), generation=number, revision=0, seconds=build.seconds, **disk)
        snapshot.write_manifest(staging, manifest)
        with visible:
            rename_durably(staging, final)
            reached("generation: published", final)
            generations.advance_current(directory, number)
        (final / PROGRESS_FILE).unlink(missing_ok=True)
    return manifest


def _whole(path: Path, number: int, block_ids: np.ndarray, facts: snapshot.SnapshotFacts) -> snapshot.SnapshotManifest | None:
    """Manifest of a completely built generation with the same facts and ids; None if it is another, or damaged."""
    try:
        found = snapshot.read_generation(path, number, {}, verify=True)
    except SnapshotError:
        return None
    same = snapshot.fields_of(found.manifest) == snapshot.fields_of(facts) and np.array_equal(found.block_ids, block_ids)
    return found.manifest if same else None


def append_delta(
    directory: Path, generation: int, parts: Parts, block_ids: np.ndarray, version: int, segments: tuple[tuple[str, int], ...]
) -> snapshot.SnapshotManifest:
    """Add rows to a generation: the shard first, then a new revision of the manifest. Readers see both or neither.

    Args:
        parts: of the vectors [r,d], by the generation's document embedder.
        block_ids: int64 [r], ascending, above all ids already there.
        version: the corpus's counter, also of the removals that are left out.
        segments: (segment, rows) of the added rows.

    Raises SnapshotError: the generation is missing or damaged, ids out of order, a vector that is not finite, or the disk refuses. Raises
    ValueError: vectors that do not fit."""
    path = generation_path(directory, generation)
    manifest = snapshot.read_manifest(path, generation)
    with writing(path):
        known = [snapshot.read_shard(path, shard, manifest, verify=False)[1] for shard in manifest.shards]
        check_block_ids(np.concatenate([*known, block_ids]), manifest.count + len(block_ids))
        facts = replace(snapshot.SnapshotFacts(**snapshot.fields_of(manifest)), corpus_version=version, segments=segments)
        extended = replace(
            manifest,
            revision=manifest.revision + 1,
            corpus_version=version,
            tombstone_version=version,
            count=manifest.count + len(block_ids),
            segments=(*manifest.segments, *segments),
            shards=(*manifest.shards, _built(path, manifest, facts, parts, block_ids)),
        )
        snapshot.write_manifest(path, extended)
    return extended


def _built(path: Path, manifest: snapshot.SnapshotManifest, facts: snapshot.SnapshotFacts, parts: Parts, block_ids: np.ndarray) -> Shard:
    """The next shard of a generation, complete in its directory and in no manifest yet. Raises ValueError: vectors that do not fit."""
    root = path.with_name(f"{path.name}.delta{BUILDING_SUFFIX}")
    key = build_key(manifest.generation, block_ids, facts)
    build = Building(root, key, len(block_ids), manifest.dtype, shard=snapshot.next_shard_number(manifest.shards), dim=manifest.dim)
    shard = build.finish(parts, block_ids)
    # A shard of the same name can only be what a killed writer left.
    for name in shard.files:
        os.replace(root / name, path / name)
        reached("delta: moved", path / name)
    fsync_directory(path)
    build.discard()
    return shard


def merge_shards(directory: Path, generation: int) -> snapshot.SnapshotManifest:
    """Merge the small shards at the end of a generation, by the rule for segments of a corpus.

    A new revision lists the new shard. Files of the old ones are deleted by the next publisher (``parameters.sweep``); readers that have
    opened them keep them, others read the manifest again. The caller holds the index. Raises SnapshotError: the generation is missing or
    damaged, or the disk refuses; it stays unchanged."""
    path = generation_path(directory, generation)
    manifest = snapshot.read_manifest(path, generation)
    count = trailing([shard.rows for shard in manifest.shards])
    if not count:
        return manifest
    with writing(path):
        shard = _merged(path, manifest, manifest.shards[-count:])
        manifest = replace(manifest, revision=manifest.revision + 1, shards=(*manifest.shards[:-count], shard))
        snapshot.write_manifest(path, manifest)
    return manifest


def _merged(path: Path, manifest: snapshot.SnapshotManifest, shards: Sequence[Shard]) -> Shard:
    """One shard of the rows of several, on disk and in no manifest yet. Damage is found before it is copied."""
    stored, ids = zip(*(snapshot.read_stored(path, shard, manifest, verify=True) for shard in shards), strict=True)
    vectors_name, ids_name = snapshot.shard_names(snapshot.next_shard_number(manifest.shards))
    vectors_sha256 = publish_array(path / vectors_name, np.concatenate(stored))
    ids_sha256 = publish_array(path / ids_name, np.concatenate(ids))
    first = next((shard.first_block_id for shard in shards if shard.first_block_id is not None), None)
    return Shard(vectors_name, vectors_sha256, ids_name, ids_sha256, sum(shard.rows for shard in shards), first)
