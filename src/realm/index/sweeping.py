"""What killed writers left in an index, removed by the next one that holds it."""

from pathlib import Path

from realm.errors import SnapshotError
from realm.index.building import PROGRESS
from realm.index.manifest import MANIFEST, read_manifest
from realm.storage.files import STAGING_SUFFIX, remove_staging
from realm.storage.generations import generation_numbers, generation_path
from realm.storage.sweeping import delete_unnamed


def sweep(directory: Path) -> None:
    """Delete half-written files, and shards that no manifest names: a delta that was cut off. The caller holds the index.

    Args:
        directory: the run's ``index/``.
    """
    remove_staging(directory)
    for number in generation_numbers(directory):
        path = generation_path(directory, number)
        try:
            manifest = read_manifest(path, number)
        except SnapshotError:  # whoever opens it says so and puts it aside
            continue
        named = {name for shard in manifest.shards for name in shard.files} | {MANIFEST}
        ours = (file for file in path.iterdir() if file.name == PROGRESS or file.suffix in (".npy", STAGING_SUFFIX))
        delete_unnamed(ours, {path / name for name in named})
