"""Generations of the index on disk: open one. ``publishing.py`` writes them.

A generation is a manifest and the shards it names. Its directory appears whole (built aside, fsync, rename) and counts once CURRENT
reaches it. Shards are never changed: a delta adds some and then replaces the manifest, so a reader has the old revision or the new one.
One process at a time publishes; any number read.
"""

import logging
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from realm.errors import SnapshotError
from realm.search.publishing.manifest import DamagedSnapshot, SnapshotManifest, read_manifest, read_shard
from realm.storage import generations

logger = logging.getLogger(__name__)
REBUILD = "Build the index again: realm index build RUN"


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
