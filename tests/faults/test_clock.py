"""The clock is set back: files lie in the future and time runs backwards. Nothing is lost, nothing waits for ever, changes are noticed."""

import itertools
import os
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from realm.answering.opening import open_run
from realm.cli import main
from realm.errors import RealmError, SnapshotError
from realm.models.bodies import known as known_bodies
from realm.storage import generations, locks
from realm.storage.generations import advance_current
from realm.training.refresh.index_source import AsyncRefresh, RefreshContext

QUESTION = "What is the currency of Arvad?"
DAY = 86_400


@pytest.fixture
def backwards(monkeypatch):
    """Each look at the clock is an hour before the last one. What measures how long something takes is another clock."""
    now = itertools.count(time.time(), -3600)
    monkeypatch.setattr(time, "time", lambda: next(now))


def written_tomorrow(root):
    """Everything below as it is when the clock is set back by a day after it was written."""
    later = time.time_ns() + DAY * 10**9
    for path in (root, *root.rglob("*")):
        os.utime(path, ns=(later, later))
    return root


@pytest.mark.usefixtures("backwards")
def test_a_run_goes_on(tiny_run, run_copy, capsys):
    run = written_tomorrow(run_copy)
    expected = open_run(tiny_run).answerer.answer([QUESTION])[0]
    found = open_run(run).answerer.answer([QUESTION])[0]
    assert (found.answer, found.p) == (expected.answer, expected.p)
    assert main(["corpus", "add", str(run / "corpus"), str(tiny_run.parent / "more.jsonl")]) == 0
    assert main(["index", "build", str(run)]) == 0 and main(["verify", str(run)]) == 0
    assert open_run(run).unsearchable == 0
    assert main(["run", str(tiny_run.parent / "recipe.toml"), "--out", str(run)]) == 0  # all of it is there
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.usefixtures("backwards")
def test_a_lock_is_waited_for_and_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.3)

    def busy(named):
        return RealmError("busy")

    with locks.held(tmp_path, busy), pytest.raises(RealmError, match="busy"), locks.held(tmp_path, busy):
        pass
    with locks.held(tmp_path, busy):
        pass


def test_a_digest_is_not_kept_for_a_file_from_the_future(tmp_path):
    weights, later, found = tmp_path / "model.safetensors", time.time_ns() + DAY * 10**9, []
    for data in (b"a" * 9, b"b" * 9):  # as long, and of the same time
        weights.write_bytes(data)
        os.utime(weights, ns=(later, later))
        found.append(known_bodies.file_digest(weights))
    assert found[0] != found[1]


def test_a_new_generation_is_seen_whatever_its_time(tmp_path, monkeypatch):
    for number in (1, 2):
        generations.generation_path(tmp_path, number).mkdir()
    context = SimpleNamespace(paths=SimpleNamespace(index=tmp_path, params=tmp_path), open=lambda number: number)
    source, opened = AsyncRefresh(cast(RefreshContext, cast(Any, context)), None), []
    monkeypatch.setattr(context, "open", lambda number: opened.append(number) or (_ for _ in ()).throw(known(number)))
    for number, seconds in ((1, DAY), (2, -DAY)):
        advance_current(tmp_path, number)
        when = time.time_ns() + seconds * 10**9
        os.utime(tmp_path / generations.CURRENT, ns=(when, when))
        assert source._poll() is None and source._poll() is None
    assert opened == [1, 2], "each was looked at once"


def known(number):
    return SnapshotError(f"generation {number} is none")
