"""The numbers of the generations in a directory: which are published, which comes next, which may go; the small
files at the end of a growing row, which become one.

``DIRECTORY/000007/`` is generation 7, and counts once ``DIRECTORY/CURRENT`` has reached it. Numbers grow by a counter, never by a clock."""

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from realm.storage.files import STAGING_SUFFIX, fsync_directory, reached, write_atomic

Version = TypeVar("Version")
Opened = TypeVar("Opened")

CURRENT = "CURRENT"
QUARANTINE_SUFFIX = ".quarantined"
BUILDING_SUFFIX = ".building"
_DOOMED = f".removed{STAGING_SUFFIX}"
logger = logging.getLogger(__name__)


def prune(directory: Path, keep: int, protect: set[int]) -> list[int]:
    """Delete all published generations but the newest ``keep`` and those in ``protect``; quarantined ones go with their age. Returns the
    numbers deleted, ascending. Readers that have a deleted generation open keep their files until they close them. Raises ValueError: keep
    < 1: the current generation is never deleted."""
    if keep < 1:
        raise ValueError(f"keep must be at least 1, not {keep}")
    published = published_generations(directory)
    deleted = [number for number in published[:-keep] if number not in protect]
    for number in deleted:
        remove(generation_path(directory, number))
    if published:
        for path in directory.glob(f"*{QUARANTINE_SUFFIX}"):
            if (found := _number(path.name.removesuffix(QUARANTINE_SUFFIX))) is not None and found < published[-keep:][0]:
                remove(path)
    remove_doomed(directory)
    return deleted


def remove_doomed(directory: Path) -> None:
    """Finish what a killed ``remove`` began; a writer's own staging is not touched."""
    for path in directory.glob(f"*{_DOOMED}"):
        shutil.rmtree(path, ignore_errors=True)


def generation_path(directory: Path, generation: int) -> Path:
    return directory / f"{generation:06d}"


def published_generations(directory: Path) -> list[int]:
    """Numbers of the generations there, ascending, up to CURRENT: none before CURRENT is written, all if it is unreadable."""
    pointer = read_current(directory)
    if pointer is None and not (directory / CURRENT).exists():
        return []
    return [number for number in generation_numbers(directory) if pointer is None or number <= pointer]


def generation_numbers(directory: Path) -> list[int]:
    """Numbers of all directories that are named as generations, published or not, ascending."""
    return sorted(_numbers(path.name for path in directory.glob("[0-9]*") if path.is_dir()))


def current_generation(directory: Path) -> int | None:
    """The newest published generation, None before the first. Costs one small read: made for polling."""
    pointer = read_current(directory)
    if pointer is not None and generation_path(directory, pointer).is_dir():
        return pointer
    return max(published_generations(directory), default=None)


def next_generation(directory: Path) -> int:
    """A number that no generation has had in this directory, from 1: above CURRENT and every directory, damaged ones included."""
    names = (path.name.removesuffix(QUARANTINE_SUFFIX) for path in directory.glob("[0-9]*"))
    return 1 + max([*_numbers(names), read_current(directory) or 0])


def building_numbers(directory: Path) -> list[int]:
    """Numbers of the generations that a process has begun to build."""
    return _numbers(path.name.removesuffix(BUILDING_SUFFIX) for path in directory.glob(f"[0-9]*{BUILDING_SUFFIX}"))


def advance_current(directory: Path, generation: int) -> None:
    """Publish ``generation``: point CURRENT at it, unless CURRENT is there or further already."""
    if generation > (read_current(directory) or 0):
        write_atomic(directory / CURRENT, f"{generation:06d}\n")


def read_current(directory: Path) -> int | None:
    """The number in CURRENT; None if it is missing or unreadable."""
    try:
        return _number((directory / CURRENT).read_text("ascii", errors="replace").strip())
    except FileNotFoundError:
        return None


def _number(name: str) -> int | None:
    return int(name) if re.fullmatch(r"[0-9]{6,12}", name) else None


def _numbers(names: Iterable[str]) -> list[int]:
    return [number for number in map(_number, names) if number is not None]


def quarantine(path: Path, reason: Exception) -> None:
    """Put a damaged generation aside; where that is impossible (a read-only mount) it is only skipped."""
    target = path.with_name(path.name + QUARANTINE_SUFFIX)
    try:
        shutil.rmtree(target, ignore_errors=True)
        os.rename(path, target)
        reached("generation: moved aside", path)
        fsync_directory(path.parent)
        logger.warning("%s is damaged and was moved aside to %s: %s", path, target.name, reason)
    except OSError as error:
        logger.warning("%s is damaged and is ignored (%s): %s", path, error.strerror, reason)


def steadily(version: Callable[[], Version], open_once: Callable[[Version], Opened], gone: type[Exception]) -> Opened:
    """Open the version in force; try again if it was replaced, and its files deleted (``gone``), in the meantime."""
    while True:
        found = version()
        try:
            return open_once(found)
        except gone:
            if version() == found:
                raise


def remove(path: Path) -> None:
    """Delete a directory so that no reader ever finds half of it under its name."""
    doomed = path.with_name(f"{path.name}{_DOOMED}")
    shutil.rmtree(doomed, ignore_errors=True)
    try:
        os.rename(path, doomed)
        reached("generation: doomed", path)
        fsync_directory(path.parent)  # before its files go: they would be missing under the old name
        shutil.rmtree(doomed, ignore_errors=True)
    except BaseException:  # a signal in the midst of it: what was begun is finished before the process ends
        shutil.rmtree(doomed, ignore_errors=True)
        raise


def delete_unnamed(found: Iterable[Path], named: set[Path]) -> None:
    """Delete the files of ``found`` that no manifest has ``named``, durably. A reader that has one open keeps it."""
    unnamed = [path for path in found if path not in named]
    for path in unnamed:
        path.unlink()
    for directory in {path.parent for path in unnamed}:
        fsync_directory(directory)


def remove_dead_builds(directory: Path, but: str = "") -> None:
    """Delete builds of killed processes, all but the one named ``but``, and generations that CURRENT never reached, which would count as
    published when it passes by. The caller holds the directory for writing."""
    dead = [path for path in directory.glob(f"*{BUILDING_SUFFIX}") if path.name != but]
    for path in dead:
        shutil.rmtree(path)
    for number in sorted({*generation_numbers(directory)} - {*published_generations(directory)}):
        remove(generation_path(directory, number))
    if dead:
        fsync_directory(directory)


FULL_FILE_ROWS = 131_072
"""Rows of a file that nothing is added to any more."""
MAX_SMALL_FILES = 32
"""Small files that may stand at the end."""


def trailing(sizes: Sequence[int], whole: int = FULL_FILE_ROWS) -> int:
    """Number of the last files, by their rows (oldest first), that should become one of at most ``whole``; 0 where few are small."""
    first_small = max((number + 1 for number, rows in enumerate(sizes) if rows >= whole // 2), default=0)
    if len(sizes) - first_small <= MAX_SMALL_FILES:
        return 0
    first, rows = len(sizes), 0
    for size in reversed(sizes[first_small:]):
        if rows + size > whole or (len(sizes) - first >= max(2, MAX_SMALL_FILES // 2) and size > rows):
            break
        first, rows = first - 1, rows + size
    return len(sizes) - first
