"""Generations of the index on disk: manifest, shards, and their opening.

A generation's directory appears whole (built aside, fsync, rename) and counts once CURRENT reaches it. Its manifest lists its shards, pairs
of ``.npy`` files written once, with every SHA-256. A delta adds shards and then replaces the manifest, so that readers never mix two
revisions."""

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import SnapshotError, made_earlier
from realm.storage import generations
from realm.storage.arrays import read_array
from realm.storage.manifests import Errors, read_sealed, write_sealed

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
DTYPES = ("float32", "float16")


class DamagedSnapshot(SnapshotError):
    """Files of a generation that are missing, cut short or changed since they were published."""


ERRORS = Errors(DamagedSnapshot, partial(SnapshotError, cure="Check the permissions and the disk"))
"""Errors for files of an index; a file that the disk cannot read is not moved aside."""


@dataclass(frozen=True)
class Shard:
    """Rows published together: a vectors file [rows,d] and an ids file int64 [rows]."""

    file: str
    sha256: str
    ids_file: str
    ids_sha256: str
    rows: int
    first_block_id: int | None  # None when there are no rows

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all its files."""
        return self.file, self.ids_file


@dataclass(frozen=True, kw_only=True)
class SnapshotFacts:
    """Facts of a generation stated by its publisher."""

    params_generation: int  # counter of the parameters that embedded it
    step: int  # training step of those parameters
    document_embedder_sha256: str  # like the next two, checked when the generation is opened
    corpus_id: str
    tokenizer_sha256: str
    corpus_version: int  # the corpus's counter when the last rows were added
    tombstone_version: int = 0  # the corpus's counter whose removals were left out
    dtype: str = "float32"  # one of DTYPES
    segments: tuple[tuple[str, int], ...] = ()  # (corpus segment, rows) in row order, empty if unknown
    arithmetic: str = ""  # of the embedder's products: int8, bfloat16, float32; empty if unknown


@dataclass(frozen=True, kw_only=True)
class SnapshotManifest(SnapshotFacts):
    """One revision of one generation: its facts and its files."""

    generation: int
    revision: int  # 0 when published, one more for each delta
    dim: int  # d
    count: int  # n, rows of all shards
    shards: tuple[Shard, ...]  # in row order
    seconds: float = 0.0  # to build revision 0, over all its processes
    format_version: int = FORMAT_VERSION


def fields_of(facts: SnapshotFacts) -> dict[str, Any]:
    """The facts alone, also of a manifest."""
    return {field.name: getattr(facts, field.name) for field in fields(SnapshotFacts)}


def write_manifest(generation_directory: Path, manifest: SnapshotManifest) -> None:
    """Publish a revision: readers see the old manifest or this one."""
    write_sealed(generation_directory / MANIFEST, asdict(manifest))


def read_manifest(generation_directory: Path, generation: int) -> SnapshotManifest:
    """Read the manifest of ``generation`` and check it against itself.

    Raises DamagedSnapshot: missing, not JSON, changed since it was written, or another generation's. Raises SnapshotError: written by
    another version of the format."""
    path = generation_directory / MANIFEST
    value = read_sealed(path, ERRORS)
    if value.get("format_version") != FORMAT_VERSION:
        problem = f"index format {value.get('format_version')}, this version reads format {FORMAT_VERSION}"
        raise SnapshotError(problem, path=path, cure="Build the index again: realm index build RUN")
    if value.get("kind", "whole") != "whole" or value["dtype"] not in DTYPES:  # rows of several parameters, or coded otherwise
        raise made_earlier(SnapshotError, path)
    value["segments"] = tuple((str(name), int(rows)) for name, rows in value["segments"])
    value["shards"] = tuple(Shard(**{key: shard[key] for key in Shard.__dataclass_fields__}) for shard in value["shards"])
    manifest = SnapshotManifest(**{name: value[name] for name in SnapshotManifest.__dataclass_fields__ if name in value})
    if manifest.generation != generation:
        raise DamagedSnapshot(f"this is generation {manifest.generation}, in the directory of generation {generation}", path=path)
    return manifest


def shard_names(number: int) -> tuple[str, str]:
    """Files of shard ``number``: vectors, ids."""
    return f"vectors-{number:05d}.npy", f"block_ids-{number:05d}.npy"


def next_shard_number(shards: Iterable[Shard]) -> int:
    """Number of the next shard; not their count, since merged ones are gone."""
    return 1 + max((int(Path(shard.file).stem.rpartition("-")[2]) for shard in shards), default=-1)


def read_shard(directory: Path, shard: Shard, manifest: SnapshotManifest, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    """Vectors float32 [r,d] (memory-mapped if large and stored as float32) and ids int64 [r] of one shard.

    Unless ``verify``, only shapes and types are checked. Raises DamagedSnapshot: a file is missing, cut short, changed, or contradicts the
    manifest."""
    stored, block_ids = read_stored(directory, shard, manifest, verify)
    return stored.astype(np.float32, copy=False), block_ids


def read_stored(directory: Path, shard: Shard, manifest: SnapshotManifest, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    """Vectors in their stored type and ids int64 [r] of one shard; arguments and errors as for ``read_shard``."""
    hashes = (shard.sha256, shard.ids_sha256) if verify else (None, None)
    vectors = read_array(directory / shard.file, (shard.rows, manifest.dim), np.dtype(manifest.dtype), ERRORS, sha256=hashes[0])
    return vectors, read_array(directory / shard.ids_file, (shard.rows,), np.dtype(np.int64), ERRORS, sha256=hashes[1])


def encode(vectors: np.ndarray, dtype: str, first: int = 0) -> np.ndarray:
    """Encode vectors [r,d] for storage, rounded to nearest even where ``dtype`` is float16.
    ``first`` is the number of the first row, for the message. Raises SnapshotError: a component that is not finite afterwards."""
    with np.errstate(over="ignore"):
        encoded = np.ascontiguousarray(vectors, dtype=np.float32).astype(dtype, copy=False)
    finite = np.isfinite(encoded).all(axis=1)
    if not finite.all():
        row = first + int(np.flatnonzero(~finite)[0])
        raise SnapshotError(f"vector {row} has a component that is not finite in {dtype}", cure="Go back to an earlier checkpoint")
    return encoded


logger = logging.getLogger(__name__)
REBUILD_CURE = "Build the index again: realm index build RUN"


class ForeignSnapshot(SnapshotError):
    """A generation of another corpus, tokenizer or document embedder than it was opened for."""


@dataclass(frozen=True)
class Snapshot:
    """One revision of one generation, opened."""

    manifest: SnapshotManifest
    shards: tuple[np.ndarray, ...]  # vectors float32 [r,d] of each shard, memory-mapped if stored as float32
    block_ids: np.ndarray  # int64 [n], ascending

    @cached_property
    def vectors(self) -> np.ndarray:
        """float32 [n,d]: the memory map of a single shard, or all shards copied into one array."""
        return self.shards[0] if len(self.shards) == 1 else np.concatenate(self.shards)

    @classmethod
    def open(
        cls,
        directory: Path,
        generation: int | None = None,
        *,
        corpus_id: str,
        tokenizer_sha256: str,
        document_embedder_sha256: str | None,
        verify: bool = True,
    ) -> "Snapshot":
        """Open a generation, by default the newest valid one that belongs to the given corpus, tokenizer and embedder.

        A damaged one is renamed to NAME.quarantined, a foreign one is skipped, both with a warning in the log.

        Args:
            directory: the run's ``index/``.
            generation: exactly this one; nothing else is tried.
            document_embedder_sha256: None: any.
            verify: read every file and compare its SHA-256; False: only names, shapes and types.

        Raises SnapshotError: none is there, none is valid, or it belongs to another corpus, tokenizer or document embedder."""
        expected = {"corpus_id": corpus_id, "tokenizer_sha256": tokenizer_sha256, "document_embedder_sha256": document_embedder_sha256}
        if generation is not None:
            return _first_valid(directory, [generation], expected, verify, asked=generation)
        while True:
            numbers = generations.published_generations(directory)[::-1]
            try:
                return _first_valid(directory, numbers, expected, verify)
            except SnapshotError:
                # Newer ones may have been published, and all that we knew of deleted, while we looked.
                if max(generations.published_generations(directory), default=0) <= max(numbers, default=0):
                    raise


def _first_valid(directory: Path, numbers: list[int], expected: dict[str, str | None], verify: bool, asked: int | None = None) -> Snapshot:
    """First usable generation; the error names ``asked`` if it was asked for by its number. Raises SnapshotError: none is usable."""
    damage: DamagedSnapshot | None = None
    foreign: SnapshotError | None = None
    for number in numbers:
        path = generations.generation_path(directory, number)
        try:
            return read_generation(path, number, expected, verify)
        except DamagedSnapshot as error:
            if path.is_dir():  # otherwise it was never there, or it was pruned while we looked
                damage = error
                generations.quarantine(path, error)
        except ForeignSnapshot as error:  # it may be whole and somebody's: it stays
            foreign = foreign or error
            logger.warning("generation %d is skipped: %s", number, error)
    if foreign is not None:
        raise foreign
    if damage is not None:
        what = "no index generation is valid" if asked is None else f"index generation {asked} is damaged"
        raise SnapshotError(f"{what}; {damage}", cure=REBUILD_CURE) from damage
    what = "no index generation has been published" if asked is None else f"index generation {asked} does not exist"
    raise SnapshotError(what, path=directory, cure=REBUILD_CURE)


def read_generation(path: Path, generation: int, expected: dict[str, str | None], verify: bool) -> Snapshot:
    """Ids and vectors of one revision of a generation, whose manifest is read here. Nothing is moved aside.

    ``expected`` maps fields of the manifest to their values, None: any. Raises DamagedSnapshot, and ForeignSnapshot for another corpus,
    tokenizer or document embedder."""
    # Shards that were merged go with the next change: whoever read the manifest before that finds another one now.
    revision = partial(read_manifest, path, generation)
    return generations.steadily(revision, lambda manifest: _read_revision(path, manifest, expected, verify), DamagedSnapshot)


def _read_revision(path: Path, manifest: SnapshotManifest, expected: dict[str, str | None], verify: bool) -> Snapshot:
    for field, value in expected.items():
        found = getattr(manifest, field)
        if value is not None and found != value:
            what = {"corpus_id": "corpus", "tokenizer_sha256": "tokenizer"}.get(field, "document embedder")
            raise ForeignSnapshot(f"this index belongs to another {what} ({found[:12]}, not {value[:12]})", path=path, cure=REBUILD_CURE)
    pairs = [read_shard(path, shard, manifest, verify) for shard in manifest.shards]
    block_ids = np.concatenate([ids for _, ids in pairs])
    return Snapshot(manifest, tuple(vectors for vectors, _ in pairs), block_ids)
