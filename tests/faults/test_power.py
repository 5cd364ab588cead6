"""The power is cut before each call of the operating system: what a reader finds is the old state or the new one, and the promised one."""

import inspect
import os
import resource
import shutil
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from realm.corpus.change import publishing
from realm.errors import RealmError
from realm.index import delta
from realm.index.building import Building
from realm.storage import arrays, files, generations, tails
from realm.train.metrics import MetricsLog

from .disk import PowerCuts
from .publishing import Example, left_over

NAMES = [
    "file first", "file again", "text first", "text again", "json first", "json again", "sealed first", "sealed again",
    "array first", "array again", "directory", "corpus add", "corpus update", "corpus sync", "corpus remove", "corpus compact",
    "corpus purge", "corpus tidy", "corpus build", "current", "index first", "index next", "index delta", "index merge", "index prune",
    "parameters", "request", "checkpoint", "first checkpoint", "best weights", "stage", "rewound log",
]  # fmt: skip
MOST = 60
"""States of each kind that are looked at; all where there are fewer."""


@pytest.fixture(autouse=True)
def many_descriptors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The harness holds one for each file that it has seen."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    monkeypatch.setattr(tails, "MOST_SMALL", 1)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def found_in(example: Example, root: Path) -> Any:
    """What a reader finds; an error is told as one."""
    try:
        return example.read(root)
    except (RealmError, AssertionError, OSError, EOFError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"


def recorded(example: Example, work: Path, forgotten: Callable[[Path], bool] | None = None) -> tuple[PowerCuts, Any, Any]:
    """The change while it is followed; what was read before and after. ``forgotten``: for which files ``os.fsync`` does nothing."""
    work.mkdir()
    example.prepare(work)
    old = found_in(example, shutil.copytree(work, work.with_name("before")))
    with pytest.MonkeyPatch.context() as patch, PowerCuts(work, patch) as cuts:
        if forgotten is not None:
            patch.setattr(os, "fsync", without_sync(forgotten))
        example.change(work)
    new = found_in(example, shutil.copytree(work, work.with_name("after")))
    return cuts, old, new


def losses(
    example: Example, place: Path, most: int = MOST, *, go_on: bool = False, forgotten: Callable[[Path], bool] | None = None
) -> list[str]:
    """What is lost in which states; ``go_on``: what comes next must work in them, and leave nothing half-written."""
    cuts, old, new = recorded(example, place / "work", forgotten)
    wrong = []
    for number, (state, promised) in enumerate(cuts.sample(most)):
        root = cuts.write(state, place / f"state-{number}")
        found = found_in(example, root)
        if found != new and (promised or found != old):
            wrong.append(f"{'promised, ' if promised else ''}before {state.when}: {str(found)[:300]}")
        elif promised and not example.promised(root):
            wrong.append(f"promised, before {state.when}: not as promised")
        elif go_on:
            wrong += gone_wrong_afterwards(example, root, state.when, again=found == old and old != new, new=new)
        shutil.rmtree(root)
    return wrong


def gone_wrong_afterwards(example: Example, root: Path, when: str, *, again: bool, new: Any) -> list[str]:
    try:
        if again:
            example.change(root)
            if (found := found_in(example, root)) != new:
                return [f"before {when}, and done again: {str(found)[:300]}"]
        if example.follow is not None:
            example.follow(root)
            if left := left_over(root):
                return [f"before {when}, and the next call leaves {left}"]
    except Exception as error:
        return [f"before {when}, and the next call: {type(error).__name__}: {error}"]
    return []


def test_all_are_looked_at(published: dict[str, Example]) -> None:
    assert sorted(NAMES) == sorted(published)


@pytest.mark.parametrize("name", NAMES)
def test_old_or_new_and_what_was_promised(name: str, published: dict[str, Example], tmp_path: Path) -> None:
    assert losses(published[name], tmp_path) == []


@pytest.mark.parametrize("name", NAMES)
def test_after_the_power_is_back_the_next_call_goes_on(name: str, published: dict[str, Example], tmp_path: Path) -> None:
    assert losses(published[name], tmp_path, 12, go_on=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_state(name: str, published: dict[str, Example], tmp_path: Path) -> None:
    assert losses(published[name], tmp_path, 5000) == []


def without_sync(of: Callable[[Path], bool]) -> Callable[[int], None]:
    """``os.fsync`` that forgets files for which ``of`` is true."""
    plain = os.fsync

    def fsync(descriptor: int) -> None:
        if not of(Path(os.readlink(f"/proc/self/fd/{descriptor}"))):
            plain(descriptor)

    return fsync


@pytest.mark.parametrize(
    "name",
    [
        "file first",
        "file again",
        "sealed again",
        "array first",
        "directory",
        "corpus add",
        "corpus build",
        "index next",
        "index delta",
        "parameters",
        "checkpoint",
        "stage",
    ],
)
@pytest.mark.parametrize("forgotten", ["files", "directories"])
def test_a_missing_sync_is_found(name: str, forgotten: str, published: dict[str, Example], tmp_path: Path) -> None:
    """The harness fails where ``os.fsync`` is deleted from the publishing functions, of files or of directories."""
    assert losses(published[name], tmp_path, forgotten=Path.is_file if forgotten == "files" else Path.is_dir)


@pytest.mark.parametrize(
    ("name", "function", "call"),
    [
        ("file again", files.publish_file, "os.fsync(file.fileno())"),
        ("file again", files.publish_file, "fsync_directory(path.parent)"),
        ("file first", files.make_directory, "fsync_directory(path.parent)"),
        ("directory", files.rename_durably, "fsync_tree(staging)"),
        ("directory", files.rename_durably, "fsync_directory(final.parent)"),
        ("array again", arrays.publish_array, "os.fsync(file.fileno())"),
        ("array again", arrays.publish_array, "fsync_directory(path.parent)"),
        ("corpus add", publishing.publish_version, "files.fsync_tree(staging)"),
        ("corpus add", publishing.publish_version, "files.fsync_directory(directory)"),
        ("index delta", Building.append, "os.fsync(file.fileno())"),
        ("index delta", delta._built, "fsync_directory(path)"),
        ("index prune", generations.remove, "fsync_directory(path.parent)"),
        ("checkpoint", MetricsLog.sync, "fsync_file(self.path)"),
        ("first checkpoint", MetricsLog.sync, "fsync_directory(self.path.parent)"),
    ],
)  # fmt: skip
def test_each_sync_is_needed(
    name: str, function: Callable[..., Any], call: str, published: dict[str, Example], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them deleted from the code by itself."""
    with_it = textwrap.dedent(inspect.getsource(function))
    assert with_it.count(call) == 1
    space = dict(function.__globals__) if not hasattr(function, "__wrapped__") else dict(inspect.unwrap(function).__globals__)
    exec(compile("from __future__ import annotations\n" + with_it.replace(call, "None"), "<without>", "exec"), space)
    changed, plain = space[function.__name__], inspect.unwrap(function)
    monkeypatch.setattr(plain, "__code__", inspect.unwrap(changed).__code__)
    assert losses(published[name], tmp_path, 5000)
