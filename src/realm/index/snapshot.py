"""Generations of the index on disk: publish, open. ``delta.py`` extends one.

A generation is a manifest and the shards it names. Its directory appears whole (built aside, fsync, rename) and counts once CURRENT
reaches it. Shards are never changed: a delta adds some and then replaces the manifest, so a reader has the old revision or the new one.
One process at a time publishes; any number read.
"""

import logging
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import SnapshotError
from realm.index.building import PROGRESS, Building, Parts, build_key, parts_from
from realm.index.checks import check_block_ids
from realm.index.manifest import DTYPES, DamagedSnapshot, SnapshotFacts, SnapshotManifest, fields_of, read_manifest, write_manifest
from realm.index.shards import read_shard
from realm.storage import generations
from realm.storage.disk import writing
from realm.storage.files import reached, rename_durably
from realm.storage.generations import remove_dead_builds

logger = logging.getLogger(__name__)
REBUILD = "Build the index again: realm index build RUN"
_NOTHING = nullcontext()


class ForeignSnapshot(SnapshotError):
    """A generation of another corpus, tokenizer or document embedder than it was opened for."""


@dataclass(frozen=True)
class Snapshot:
    """One revision of one generation, opened.

    Attributes:
        manifest: what it is.
        shards: vectors float32 [r,d] of each shard, memory-mapped if stored as float32.
        block_ids: int64 [n], ascending.
    """

    manifest: SnapshotManifest
    shards: tuple[np.ndarray, ...]
    block_ids: np.ndarray

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
        """Open a generation, by default the newest valid one that belongs to what it is opened for.

        A damaged one is renamed to NAME.quarantined, a foreign one is skipped, both with a warning in the log.

        Args:
            directory: the run's ``index/``.
            generation: exactly this one; nothing else is tried.
            corpus_id: what it must have been built from.
            tokenizer_sha256: as ``corpus_id``.
            document_embedder_sha256: as ``corpus_id``; None: any.
            verify: read every file and compare its SHA-256; False: only names, shapes and types.

        Raises:
            SnapshotError: none is there, none is valid, or it belongs to another corpus, tokenizer or document embedder.
        """
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
    """The first of the generations that can be used; ``asked`` is the one to name if it was asked for by its number.

    Raises:
        SnapshotError: none can.
    """
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
        raise SnapshotError(f"{what}; {damage}", cure=REBUILD) from damage
    what = "no index generation has been published" if asked is None else f"index generation {asked} does not exist"
    raise SnapshotError(what, path=directory, cure=REBUILD)


def publish_snapshot(
    directory: Path,
    vectors: Parts | Iterable[np.ndarray],
    block_ids: np.ndarray,
    facts: SnapshotFacts,
    *,
    generation: int | None = None,
    visible: AbstractContextManager[None] = _NOTHING,
) -> SnapshotManifest:
    """Publish a new generation and point CURRENT at it. A killed call leaves everything published before as it was.

    Args:
        directory: the run's ``index/``.
        vectors: floating point [n,d]; or an iterable of parts [r,d], of which only one is in memory at a time; or a function that takes
            the number of rows that are there already and gives the parts from there on. Only the last form can continue a killed call.
        block_ids: int64 [n], strictly ascending.
        facts: what made it, and of what.
        generation: its number; None: the next one. CURRENT never goes back.
        visible: held around the moment in which it becomes visible.

    Raises:
        SnapshotError: the generation exists, ids are out of order, a vector is not finite, or the disk refuses.
        ValueError: shapes that do not fit together, or an unknown dtype.
    """
    if facts.dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, not {facts.dtype}")
    check_block_ids(block_ids, len(block_ids))
    number = generations.next_generation(directory) if generation is None else generation
    final = generations.generation_path(directory, number)
    with writing(final):
        # Left by a publisher that was killed: nobody was told.
        if final.is_dir() and number not in generations.published_generations(directory):
            if callable(vectors) and (left := _whole(final, number, block_ids, facts)) is not None:
                with visible:
                    generations.advance_current(directory, number)
                return left
            generations.remove(final)
        if final.exists():
            raise FileExistsError(final)
        staging = final.with_name(final.name + generations.BUILDING_SUFFIX)
        remove_dead_builds(directory, staging.name)
        if not callable(vectors):
            shutil.rmtree(staging, ignore_errors=True)
        build = Building.take_up(staging, build_key(number, block_ids, facts), len(block_ids), facts.dtype)
        for part in parts_from(vectors, build.rows):
            build.append(part)
        shard = build.finish(block_ids)
        assert build.dim is not None
        disk: dict[str, Any] = {"dim": build.dim, "count": len(block_ids), "shards": (shard,)}
        manifest = SnapshotManifest(**fields_of(facts), generation=number, revision=0, seconds=build.seconds, **disk)
        write_manifest(staging, manifest)
        with visible:
            rename_durably(staging, final)
            reached("generation: published", final)
            generations.advance_current(directory, number)
        (final / PROGRESS).unlink(missing_ok=True)
    return manifest


def _whole(path: Path, number: int, block_ids: np.ndarray, facts: SnapshotFacts) -> SnapshotManifest | None:
    """The manifest of a generation that was built to the end for the same facts and ids; None if it is another, or damaged."""
    try:
        found = read_generation(path, number, {}, verify=True)
    except SnapshotError:
        return None
    same = fields_of(found.manifest) == fields_of(facts) and np.array_equal(found.block_ids, block_ids)
    return found.manifest if same else None


def read_generation(path: Path, generation: int, expected: dict[str, str | None], verify: bool) -> Snapshot:
    """Ids and vectors of the one revision whose manifest is read here. Nothing is moved aside.

    Args:
        path: its directory.
        generation: its number.
        expected: field of the manifest -> what it must be; None: anything.
        verify: read every file and compare its SHA-256.

    Raises:
        DamagedSnapshot: it is damaged.
        ForeignSnapshot: it belongs to another corpus, tokenizer or document embedder.
    """
    # Shards that were merged go with the next change: whoever read the manifest before that finds another one now.
    revision = partial(read_manifest, path, generation)
    return generations.steadily(revision, lambda manifest: _read_revision(path, manifest, expected, verify), DamagedSnapshot)


def _read_revision(path: Path, manifest: SnapshotManifest, expected: dict[str, str | None], verify: bool) -> Snapshot:
    """``read_generation`` of the revision that a manifest describes."""
    for field, value in expected.items():
        found = getattr(manifest, field)
        if value is not None and found != value:
            what = {"corpus_id": "corpus", "tokenizer_sha256": "tokenizer"}.get(field, "document embedder")
            raise ForeignSnapshot(f"this index belongs to another {what} ({found[:12]}, not {value[:12]})", path=path, cure=REBUILD)
    pairs = [read_shard(path, shard, manifest, verify) for shard in manifest.shards]
    block_ids = np.concatenate([ids for _, ids in pairs])
    return Snapshot(manifest, tuple(vectors for vectors, _ in pairs), block_ids)
