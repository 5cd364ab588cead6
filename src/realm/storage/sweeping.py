"""What killed writers left, removed by the next one that holds the directory."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from realm.storage.files import fsync_directory
from realm.storage.generations import BUILDING_SUFFIX, generation_numbers, generation_path, published_generations, remove


def delete_unnamed(found: Iterable[Path], named: set[Path]) -> None:
    """Delete the files that no manifest names, durably. Who has one open keeps it: a deleted file stays mapped.

    Args:
        found: files of ours, and nothing that is not ours.
        named: those that stay.
    """
    unnamed = [path for path in found if path not in named]
    for path in unnamed:
        path.unlink()
    for directory in {path.parent for path in unnamed}:
        fsync_directory(directory)


def remove_dead_builds(directory: Path, but: str = "") -> None:
    """Delete what killed builders of other generations left: half of one, or all of one that CURRENT never reached and would count as
    published when it passes by. The caller holds the directory for writing.

    Args:
        directory: the run's ``index/``.
        but: name of the build that goes on.
    """
    dead = [path for path in directory.glob(f"*{BUILDING_SUFFIX}") if path.name != but]
    for path in dead:
        shutil.rmtree(path)
    for number in sorted({*generation_numbers(directory)} - {*published_generations(directory)}):
        remove(generation_path(directory, number))
    if dead:
        fsync_directory(directory)
