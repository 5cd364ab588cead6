"""The n-th I/O error and the n-th MemoryError, for every n: the old state or the new one, one line, and nothing that stays behind."""

import errno
import random
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from realm.cli import refusal
from realm.errors import RealmError
from realm.storage import tails

from .failing import KINDS, Failing, failing_at, out_of_memory_at
from .publishing import Example
from .test_power import NAMES, found_in, gone_wrong_afterwards

MOST = 6
"""Calls of an example that fail in one test; the slow one has them all."""
At = Callable[[int], AbstractContextManager[Failing]]


@pytest.fixture(autouse=True)
def small_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "MOST_SMALL", 1)


def wrong_with(error: BaseException | None) -> str | None:
    """What is wrong with an error that comes out of a publishing call."""
    if error is None or isinstance(error, MemoryError):
        return None
    if isinstance(error, RealmError):
        return None if "\n" not in str(error) else "more than one line"
    if isinstance(error, OSError) and (line := refusal(error)) is not None:
        return None if "\n" not in line else "more than one line"
    return f"a traceback: {type(error).__name__}: {error}"


def failures(example: Example, place: Path, at: At, calls: list[int]) -> list[str]:
    """What goes wrong where these calls fail, each in a run of its own."""
    start = place / "start"
    start.mkdir(parents=True)
    example.prepare(start)
    old = found_in(example, shutil.copytree(start, place / "before"))
    after = Path(shutil.copytree(start, place / "after"))
    example.change(after)
    new, wrong = found_in(example, after), []
    for nth in calls:
        root, error = Path(shutil.copytree(start, place / "work")), None
        with at(nth) as failing:
            try:
                example.change(root)
            except (Exception, MemoryError) as raised:
                error = raised
        if failing.failed is None:
            break
        found, said = found_in(example, Path(shutil.copytree(root, place / "looked"))), f"{nth}, {failing.failed}"
        if found not in (old, new) or (error is None and found != new):
            wrong.append(f"{said}: {'' if error is None else repr(error)[:100]} {str(found)[:300]}")
        elif problem := wrong_with(error):
            wrong.append(f"{said}: {problem}")
        else:
            wrong += [f"{said}: {one}" for one in gone_wrong_afterwards(example, root, "it", again=found == old and old != new, new=new)]
        for left in (root, place / "looked"):
            shutil.rmtree(left)
    return wrong


def count(example: Example, place: Path, at: At) -> int:
    """How many calls can fail."""
    root = place / "counted"
    root.mkdir()
    example.prepare(root)
    example.change(Path(shutil.copytree(root, place / "warm")))  # what is loaded once is not counted
    with at(1 << 60) as failing:
        example.change(root)
    return failing.calls


def ways(kind: str) -> At:
    return out_of_memory_at if kind == "anywhere" else lambda nth: failing_at(kind, nth)


@pytest.mark.parametrize("kind", [*KINDS, "anywhere"])
@pytest.mark.parametrize("name", NAMES)
def test_a_call_fails(name: str, kind: str, published: dict[str, Example], tmp_path: Path) -> None:
    """Some of the calls, another choice for each example and kind."""
    calls = list(range(count(published[name], tmp_path, ways(kind))))
    drawn = calls if len(calls) <= MOST else random.Random(f"{name} {kind}").sample(calls, MOST)
    assert failures(published[name], tmp_path / "failing", ways(kind), drawn) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", [*KINDS, "anywhere"])
@pytest.mark.parametrize("name", NAMES)
def test_every_call_fails(name: str, kind: str, published: dict[str, Example], tmp_path: Path) -> None:
    calls = list(range(count(published[name], tmp_path, ways(kind))))
    drawn = calls if len(calls) <= 400 else random.Random(0).sample(calls, 400)  # functions: some examples call thousands
    assert failures(published[name], tmp_path / "failing", ways(kind), drawn) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EXDEV])
def test_what_a_user_can_cure_is_one_line(code: int) -> None:
    line: Any = refusal(OSError(code, "said so", "/a/file"))
    assert line.startswith("/a/file: said so. ") and line.endswith(".") and "\n" not in line


def test_what_nobody_can_cure_is_a_traceback() -> None:
    assert refusal(OSError(errno.EBADF, "said so")) is None
