"""Power cut, process killed or call refused at every moment: the old state or the new one, one line, and the next call goes on."""

import errno
import inspect
import os
import random
import resource
import shutil
import textwrap
from pathlib import Path

import pytest

from realm.cli import refusal
from realm.documents.change import compaction
from realm.errors import RealmError
from realm.search.publishing import writing as index_publishing
from realm.search.publishing.writing import Building
from realm.storage import files, generations
from realm.storage.metrics import MetricsLog

from .examples import left_over
from .failing import ANYWHERE, KINDS, failing_at
from .power import PowerCuts

NAMES = [
    "file first", "file again", "sealed again", "array first", "array again", "directory", "corpus add", "corpus update", "corpus sync",
    "corpus remove", "corpus compact", "corpus purge", "corpus tidy", "corpus build", "current", "index first", "index next", "index delta",
    "index merge", "index damaged", "index prune", "parameters", "request", "first checkpoint", "checkpoint",
    "checkpoint of a damaged step", "best weights", "stage", "rewound log", "round", "repair",
]  # fmt: skip
POWER = "power"
CASES = [(name, fault) for name in NAMES for fault in (POWER, *KINDS) if name != "repair" or fault == POWER]
FEW, MOST = {POWER: 40}, {POWER: 5000, ANYWHERE: 400}
"""States of each kind that are looked at, and calls that fail (6, and all); drawn where there are more."""
GOES_ON = 6
"""Of which so many of each kind go on."""


@pytest.fixture(autouse=True)
def many_descriptors(monkeypatch):
    """The harness holds one for each file that it has seen. No power is really cut, so hundreds of waits for a disk are saved."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    monkeypatch.setattr(generations, "MAX_SMALL_FILES", 1)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def found_in(example, root):
    try:
        return example.read(root)
    except (RealmError, AssertionError, OSError, EOFError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"


def losses(example, place, fault, most, *, goes_on=GOES_ON):
    start = place / "start"
    start.mkdir(parents=True)
    example.prepare(start)
    old = found_in(example, shutil.copytree(start, place / "old"))
    yield from _after_power(example, place, old, most, goes_on) if fault == POWER else _after_errors(example, place, old, fault, most)


def _after_power(example, place, old, most, goes_on):
    with pytest.MonkeyPatch.context() as patch, PowerCuts(place / "start", patch) as cuts:
        example.change(place / "start")
    new = found_in(example, place / "start")
    for number, (tree, when, promised) in enumerate(cuts.sample(most)):
        root = cuts.write(tree, place / "state")
        found, after = found_in(example, root), "promised, " if promised else ""
        if found != new and (promised or found != old):
            yield f"{after}before {when}: {str(found)[:300]}"
        elif promised and not example.promised(root):
            yield f"promised, before {when}: not as promised"
        elif number % most < goes_on:
            yield from (f"{after}before {when}{what}" for what in stuck(example, root, again=found == old and old != new, new=new))
        shutil.rmtree(root)


def _after_errors(example, place, old, kind, most):
    warm = Path(shutil.copytree(place / "start", place / "warm"))
    example.change(warm)  # what is loaded once is not counted
    new = found_in(example, warm)
    with failing_at(kind, 1 << 60) as failing:
        example.change(Path(shutil.copytree(place / "start", place / "counted")))
    for nth in random.Random(kind).sample(range(failing.calls), min(most, failing.calls)):
        root, error = Path(shutil.copytree(place / "start", place / "work")), None
        with failing_at(kind, nth) as failing:
            try:
                example.change(root)
            except (Exception, MemoryError) as raised:
                error = raised
        found, said = found_in(example, Path(shutil.copytree(root, place / "looked"))), f"{nth}, {failing.failed}"
        if found not in (old, new) or (error is None and found != new):
            yield f"{said}: {'' if error is None else repr(error)[:100]} {str(found)[:300]}"
        elif problem := wrong_with(error):
            yield f"{said}: {problem}"
        else:
            yield from (f"{said}{what}" for what in stuck(example, root, again=found == old and old != new, new=new))
        for left in (root, place / "looked"):
            shutil.rmtree(left)


def wrong_with(error):
    """What is wrong with an error that comes out of a publishing call."""
    if error is None or isinstance(error, MemoryError):
        return None
    line = str(error) if isinstance(error, RealmError) else refusal(error) if isinstance(error, OSError) else None
    return f"a traceback: {error!r}" if line is None else "more than one line" if "\n" in line else None


def stuck(example, root, *, again, new):
    """What goes wrong afterwards: done again, it must end as planned, and what comes next must leave nothing half-written."""
    try:
        if again:
            example.change(root)
            if (found := found_in(example, root)) != new:
                return [f", and done again: {str(found)[:300]}"]
        if example.follow is not None:
            example.follow(root)
            if left := left_over(root):
                return [f", and the next call leaves {left}"]
    except Exception as error:
        return [f", and the next call: {type(error).__name__}: {error}"]
    return []


def test_all_are_looked_at(published):
    assert sorted(NAMES) == sorted(published)


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_old_or_new_and_it_goes_on(name, fault, published, tmp_path):
    most = 4 if name == "repair" else FEW.get(fault, 6)
    assert list(losses(published[name], tmp_path, fault, most)) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("name", "fault"), CASES)
def test_every_state_and_every_call(name, fault, published, tmp_path):
    assert list(losses(published[name], tmp_path, fault, MOST.get(fault, 1 << 30), goes_on=100)) == []


@pytest.mark.parametrize(("name", "function", "call"), [
    ("file again", files.publish_file, "os.fsync(file.fileno())"), ("file again", files.publish_file, "fsync_directory(path.parent)"),
    ("file first", files.make_directory, "fsync_directory(path.parent)"), ("directory", files.rename_durably, "fsync_tree(staging)"),
    ("directory", files.rename_durably, "fsync_directory(final.parent)"),
    ("corpus add", compaction.publish_version, "files.fsync_tree(staging)"),
    ("corpus add", compaction.publish_version, "files.fsync_directory(directory)"),
    ("index delta", Building.append, "os.fsync(file.fileno())"), ("index delta", index_publishing._built, "fsync_directory(path)"),
    ("index prune", generations.remove, "fsync_directory(path.parent)"), ("checkpoint", MetricsLog.sync, "fsync_file(self.path)"),
    ("first checkpoint", MetricsLog.sync, "fsync_directory(self.path.parent)"),
])  # fmt: skip
def test_each_sync_is_needed(name, function, call, published, tmp_path, monkeypatch):
    """Each of them deleted from the code by itself is a loss: so a missing one is found."""
    with_it, plain = textwrap.dedent(inspect.getsource(function)), inspect.unwrap(function)
    assert with_it.count(call) == 1
    space = dict(plain.__globals__)
    exec(compile("from __future__ import annotations\n" + with_it.replace(call, "None"), "<without>", "exec"), space)
    monkeypatch.setattr(plain, "__code__", inspect.unwrap(space[function.__name__]).__code__)
    assert next(losses(published[name], tmp_path, POWER, 5000, goes_on=0), None), "the first loss is enough"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EXDEV])
def test_what_a_user_can_cure_is_one_line(code):
    line = refusal(OSError(code, "said so", "/a/file"))
    assert line.startswith("/a/file: said so. ") and line.endswith(".") and "\n" not in line
    assert refusal(OSError(errno.EBADF, os.strerror(errno.EBADF))) is None, "nobody can cure it: a traceback"
