"""A generation to which single blocks are added all day keeps few shards: the small ones at its end are merged."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from realm.index.manifest import Shard, SnapshotManifest, read_manifest, write_manifest
from realm.index.shards import next_number, read_stored, shard_names
from realm.storage.arrays import publish_array
from realm.storage.disk import writing
from realm.storage.generations import generation_path
from realm.storage.tails import trailing


def merge_shards(directory: Path, generation: int) -> SnapshotManifest:
    """Make one of the small shards at the end of a generation, by the rule for segments of a corpus; nothing where they are few.

    A new revision names the new shard, and readers see that or the one before. Files of the old ones are deleted by the next who holds the
    index (``sweeping``); who has opened them goes on, and who was about to reads the manifest again. The caller holds the index.

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
