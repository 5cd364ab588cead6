"""Rows added to a generation that is published: a new shard, then a new revision of the manifest.

The shard is built aside like a generation, in ``NNNNNN.delta.building``: part by part; a call after a killed one continues it.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from realm.index.building import Building, Parts, build_key, parts_from
from realm.index.checks import check_block_ids
from realm.index.manifest import Shard, SnapshotFacts, SnapshotManifest, fields_of, read_manifest, write_manifest
from realm.index.shards import next_number, read_shard, read_stored, shard_names
from realm.storage.arrays import publish_array
from realm.storage.disk import writing
from realm.storage.files import fsync_directory, reached
from realm.storage.generations import BUILDING_SUFFIX, generation_path
from realm.storage.tails import trailing


def append_delta(
    directory: Path,
    generation: int,
    vectors: Parts | np.ndarray,
    block_ids: np.ndarray,
    corpus_version: int,
    *,
    tombstone_version: int | None = None,
    segments: Sequence[tuple[str, int]] = (),
) -> SnapshotManifest:
    """Add rows to a generation: the shard first, then a new revision of the manifest. Readers see both or neither.

    Args:
        vectors: of the generation's document embedder: [r,d], where r may be 0 when only versions change; or a function as for
            ``publish_snapshot``, which is asked for the rows that a killed call had not written. Memory: one part.
        block_ids: int64 [r], ascending, above all ids already there.
        tombstone_version: None: as before.
        segments: (segment, rows) of the added rows.

    Raises:
        SnapshotError: the generation is missing or damaged, ids out of order, a vector that is not finite, or the disk refuses.
        ValueError: vectors that do not fit.
    """
    path = generation_path(directory, generation)
    manifest = read_manifest(path, generation)
    shards = manifest.shards
    with writing(path):
        if len(block_ids):
            known = [read_shard(path, shard, manifest, verify=False)[1] for shard in shards]
            check_block_ids(np.concatenate([*known, block_ids]), manifest.count + len(block_ids))
            facts = replace(SnapshotFacts(**fields_of(manifest)), corpus_version=corpus_version, segments=tuple(segments))
            shards = (*shards, _built(path, manifest, facts, vectors, block_ids))
        extended = replace(
            manifest,
            revision=manifest.revision + 1,
            corpus_version=corpus_version,
            tombstone_version=manifest.tombstone_version if tombstone_version is None else tombstone_version,
            count=manifest.count + len(block_ids),
            segments=(*manifest.segments, *segments),
            shards=shards,
        )
        write_manifest(path, extended)
    return extended


def _built(path: Path, manifest: SnapshotManifest, facts: SnapshotFacts, vectors: Parts | np.ndarray, block_ids: np.ndarray) -> Shard:
    """The next shard of a generation, whole and in its directory; no manifest names it yet.

    Raises:
        ValueError: vectors of another dimension, or not one for each id.
    """
    root = path.with_name(f"{path.name}.delta{BUILDING_SUFFIX}")
    key = build_key(manifest.generation, block_ids, facts)
    build = Building.take_up(root, key, len(block_ids), manifest.dtype, shard=next_number(manifest.shards), dim=manifest.dim)
    for part in parts_from(vectors, build.rows):
        build.append(part)
    shard = build.finish(block_ids)
    # A shard of the same name can only be what a killed writer left.
    for name in shard.files:
        os.replace(root / name, path / name)
        reached("delta: moved", path / name)
    fsync_directory(path)
    build.discard()
    return shard


def merge_shards(directory: Path, generation: int) -> SnapshotManifest:
    """Make one of the small shards at the end of a generation, by the rule for segments of a corpus; nothing where they are few.

    A new revision names the new shard, and readers see that or the one before. Files of the old ones are deleted by the next who holds the
    index (``refresh.locks.sweep``); readers that have opened them keep them, and readers that were about to open them read the manifest
    again. The caller holds the index.

    Args:
        generation: whose rows one document embedder made.

    Raises:
        SnapshotError: the generation is missing or damaged, or the disk refuses; it stays as it was.
    """
    path = generation_path(directory, generation)
    manifest = read_manifest(path, generation)
    count = trailing([shard.rows for shard in manifest.shards])
    if not count:
        return manifest
    with writing(path):
        shard = _merged(path, manifest, manifest.shards[-count:])
        manifest = replace(manifest, revision=manifest.revision + 1, shards=(*manifest.shards[:-count], shard))
        write_manifest(path, manifest)
    return manifest


def _merged(path: Path, manifest: SnapshotManifest, shards: Sequence[Shard]) -> Shard:
    """One shard of the rows of several, on disk and in no manifest yet. What is damaged is found before it is copied."""
    stored, ids = zip(*(read_stored(path, shard, manifest, verify=True) for shard in shards), strict=True)
    vectors_name, ids_name = shard_names(next_number(manifest.shards))
    vectors_sha256 = publish_array(path / vectors_name, np.concatenate(stored))
    ids_sha256 = publish_array(path / ids_name, np.concatenate(ids))
    first = next((shard.first_block_id for shard in shards if shard.first_block_id is not None), None)
    return Shard(vectors_name, vectors_sha256, ids_name, ids_sha256, sum(shard.rows for shard in shards), first)
