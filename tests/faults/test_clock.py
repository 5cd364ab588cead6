"""The clock is set back: files lie in the future and time runs backwards. Nothing is lost, nothing waits for ever, changes are noticed."""

import itertools
import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from realm.answering.opening import open_run
from realm.cli import main
from realm.errors import RealmError, SnapshotError
from realm.models.bodies import known as known_bodies
from realm.progress import Progress
from realm.report import write_report
from realm.runs.cached import cached_runs, clear_cache, open_cached
from realm.storage import generations, locks
from realm.storage.generations import advance_current, published_generations
from realm.storage.metrics import MetricsLog
from realm.storage.paths import RunPaths
from realm.training.loop.checkpoint import CheckpointDirectory
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
def test_a_run_goes_on(tiny_run, tmp_path, capsys):
    run = written_tomorrow(Path(shutil.copytree(tiny_run, tmp_path / "run")))
    expected = open_run(tiny_run).answerer.answer([QUESTION])[0]
    found = open_run(run).answerer.answer([QUESTION])[0]
    assert (found.answer, found.p) == (expected.answer, expected.p)
    assert main(["corpus", "add", str(run / "corpus"), str(tiny_run.parent / "more.jsonl")]) == 0
    assert main(["index", "build", str(run)]) == 0 and main(["verify", str(run)]) == 0
    assert open_run(run).unsearchable == 0
    assert main(["run", str(tiny_run.parent / "recipe.toml"), "--out", str(run)]) == 0  # all of it is there
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.usefixtures("backwards")
def test_what_is_kept_goes_by_number(published, tmp_path):
    index, checkpoints = published["index prune"], published["checkpoint"]
    for root in (tmp_path / "index", tmp_path / "checkpoint"):
        root.mkdir()
    index.prepare(tmp_path / "index")
    for path in (tmp_path / "index" / "index" / "000001", tmp_path / "index" / "index" / "000002"):
        written_tomorrow(path)
    index.change(tmp_path / "index")
    assert published_generations(tmp_path / "index" / "index") == [3, 4, 5]
    checkpoints.prepare(tmp_path / "checkpoint")
    written_tomorrow(tmp_path / "checkpoint")
    checkpoints.change(tmp_path / "checkpoint")
    directory = CheckpointDirectory(tmp_path / "checkpoint" / "checkpoints" / "warm", fingerprint="f")
    assert directory._newest() == "step-0000004" and len(list(directory.path.iterdir())) == 2


@pytest.mark.usefixtures("backwards")
def test_a_lock_is_waited_for_and_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.3)

    def busy(named):
        return RealmError("busy")

    with locks.held(tmp_path, busy), pytest.raises(RealmError, match="busy"), locks.held(tmp_path, busy):
        pass
    monkeypatch.setattr(locks, "WAIT_SECONDS", 60.0)
    entered = threading.Event()

    def hold():
        with locks.held(tmp_path, busy):
            entered.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(30)
    with locks.held(tmp_path, busy):
        thread.join()


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


@pytest.mark.usefixtures("backwards")
def test_documents_in_the_cache_are_followed(notes, tiny_run):
    body, quiet = str(tiny_run / "stages" / "pretrain"), Progress(quiet=True)
    written_tomorrow(notes)
    run = open_cached([notes], body, quiet).paths.root
    (notes / "arvad.txt").write_text("People in Arvad pay with the dollar. The winters are long.")  # as long, and before the old one
    assert open_cached([notes], body, quiet).paths.root == run
    texts = [hit.text for hit in open_run(run).search("Arvad", 2)]
    assert any("dollar" in text for text in texts) and not any("Tirel" in text for text in texts)
    other = open_cached([notes / "belmor.txt"], body, quiet).paths.root
    assert {entry["directory"] for entry in cached_runs()} == {str(run), str(other)}
    assert clear_cache()["removed"] == 2


def test_a_log_that_goes_back_in_time_is_shown(tiny_run, tmp_path, monkeypatch):
    run = RunPaths(Path(shutil.copytree(tiny_run, tmp_path / "run")))
    monkeypatch.setattr(time, "time", lambda: 1.0)
    MetricsLog(run.metrics).write("pretrain", 6, loss=1.0)
    write_report(run)
    assert "Traceback" not in run.report.read_text() and run.report.stat().st_size > 1000
