"""Killed at every named point and at random moments: what a fresh process finds is whole, unmixed and the last that was published."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from realm.errors import SnapshotError
from realm.storage import files
from realm.storage.files import POINTS
from realm.storage.generations import read_current


def round_and_damage(work: Any) -> None:
    work.round()
    work.damage()
    with contextlib.suppress(SnapshotError):
        work.open()


def reached_in(work: Callable[[], object]) -> list[str]:
    seen: list[str] = []
    files.listener = lambda point, path: seen.append(point)
    try:
        work()
    finally:
        files.listener = None
    return seen


def test_the_harness_comes_by_every_point(work: Any) -> None:
    seen = reached_in(lambda: [work.round() for _ in range(4)])
    seen += reached_in(lambda: round_and_damage(work))
    assert set(seen) == set(POINTS)


def killed_and_resumed(work: Any, point: str, which: int) -> bool:
    """Die when ``point`` is reached for the ``which``-th time, from 1; a fresh process goes on and cleans up. Whether it was reached."""
    count = [0]

    def at(name: str) -> bool:
        count[0] += name == point
        return name == point and count[0] == which

    killed = work.dies(work.round, at)
    work.check()
    work.round()
    work.check()
    assert not work.left_over()
    assert [row["generation"] for row in work.log.rows()][-1] == read_current(work.paths.index)
    return killed


@pytest.mark.parametrize("point", sorted(set(POINTS) - {"generation: moved aside"}))
def test_killed_at_every_point(point: str, copied: Callable[..., Any]) -> None:
    assert killed_and_resumed(copied(), point, 1)


@pytest.mark.slow
@pytest.mark.parametrize("point", sorted(POINTS))
def test_killed_at_every_point_every_time(point: str, copied: Callable[..., Any]) -> None:
    which = 1
    while killed_and_resumed(copied(f"run-{which}"), point, which):
        which += 1
    assert which > 1 or point == "generation: moved aside"


def test_killed_while_damage_is_put_aside(copied: Callable[..., Any]) -> None:
    work = copied()
    work.damage()
    assert work.dies(work.open, lambda name: name == "generation: moved aside")
    assert work.open_unmixed().manifest.generation == 2
    assert work.round() == 4


def randomly_killed(work: Any, times: int) -> None:
    """A process that writes and one that reads, killed at random moments; after each kill a fresh process looks at what is there."""
    rng = random.Random(7)
    work.round()

    def forever(step: Callable[[], object]) -> int:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                while True:
                    step()
            os._exit(9)  # only an error ends it
        return pid

    told, deaths = work.told.read_text(), 0
    for _ in range(times):
        reader, writer = forever(work.open_unmixed), forever(work.round)
        time.sleep(rng.uniform(0.0, 0.12))
        for pid in (reader, writer):
            assert os.waitpid(pid, os.WNOHANG) == (0, 0), "a reader or the writer failed"
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        told, before = work.told.read_text(), told
        deaths = deaths + 1 if told == before else 1
        work.check(deaths)
    work.round()
    work.check()
    assert not work.left_over()


def test_killed_at_random_moments(work: Any) -> None:
    randomly_killed(work, 10)


@pytest.mark.slow
def test_killed_at_300_random_moments(work: Any) -> None:
    randomly_killed(work, 300)
