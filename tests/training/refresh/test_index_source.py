"""The trainer's side: skipped, not queued; no wait below the limit; a refresher that dies or lingers."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from processes import alive, until
from toy_runs import PRETRAINING, train

from realm.errors import TrainingError
from realm.models.model import state_sha256
from realm.recipe import load_recipe
from realm.search.publishing.embedding import EmbedOptions
from realm.search.publishing.parameters import requested
from realm.search.publishing.refresher import Refresher, read_status
from realm.storage.generations import current_generation
from realm.storage.metrics import MetricsLog
from realm.training.refresh import refresher_process
from realm.training.refresh.index_source import AsyncRefresh, Inline, RefreshContext, Schedule
from realm.training.refresh.refresher_process import RefresherProcess


def asking(run, inputs, process=None, **schedule):
    values = {"steps": 100, "every": 5, "limit": 25, "deadline": 0.3, **schedule}
    return AsyncRefresh(RefreshContext(run, inputs, torch.device("cpu"), Schedule(**values), frozenset), process)


def move(model):
    with torch.no_grad():
        next(model.documents.parameters()).add_(0.01)
    return state_sha256(model.documents)


def started(run, inputs, **schedule):
    """A trainer's side that searches the run's newest generation, made of parameters of step 0."""
    source, number = asking(run, inputs, **schedule), current_generation(run.index)
    assert number is not None
    source.resume(number)
    return source


def answer(run, inputs):
    assert Refresher(run, inputs, EmbedOptions()).tick() is not None


def test_skipped_not_queued_and_swapped_once(run, inputs, model, monkeypatch):
    source = started(run, inputs)
    base, hashes = source.generation, {}
    for step in range(base.step + 1, base.step + 12):
        hashes[step] = move(model)
        assert source.between(step, model) is None, "the refresher is slow, and nothing waits"
    asked = [step for step in hashes if step % 5 == 0]
    assert len(asked) == 2
    answer(run, inputs)
    found = source.between(base.step + 12, model)
    assert found is not None and found.step == asked[-1]
    assert found.snapshot.manifest.document_embedder_sha256 == hashes[asked[-1]] == state_sha256(found.embedder)
    assert source.between(base.step + 13, model) is None
    monkeypatch.setattr("realm.search.publishing.parameters.KEEP_GENERATIONS", 1)
    source.tidy()
    assert [path.name for path in run.index.iterdir() if path.is_dir()] == [f"{found.number:06d}"], "no refresher is there to do it"


def test_above_the_limit_it_waits_and_says_who_is_silent(run, inputs, model):
    source = started(run, inputs)
    late = source.generation.step + 26
    with pytest.raises(TrainingError, match=r"no refresher has started \(realm refresh RUN\): waited 0 s"):
        source.between(late, model)
    answer(run, inputs)
    found = source.between(late, model)
    assert found is not None and found.step == late
    with pytest.raises(TrainingError, match=rf"refresher \(process {os.getpid()} on .*\) is silent"):
        source.between(late + 26, model)


def test_a_damaged_generation_is_not_swapped_in(run, inputs, model):
    source = started(run, inputs)
    step = source.generation.step + 5
    source.between(step, model)
    answer(run, inputs)
    file = run.index / f"{current_generation(run.index):06d}" / "vectors-00000.npy"
    file.write_bytes(file.read_bytes()[:-4] + b"abcd")
    assert source.between(step + 1, model) is None


def test_requests_of_forgotten_steps_are_not_swapped_in(run, inputs, model):
    """Killed after step 10, resumed from a checkpoint of step 7: what step 10 asked for is another history."""
    source = started(run, inputs)
    number, base = source.generation.number, source.generation.step
    move(model)
    source.between(base + 5, model)
    answer(run, inputs)
    again = asking(run, inputs)
    assert again.resume(number).number == number
    assert again.between(base + 2, model) is None and again.generation is not None and again.generation.number == number
    source.between(base + 10, model)  # unanswered when the trainer was killed
    asking(run, inputs).resume(number)
    assert Refresher(run, inputs, EmbedOptions()).tick() is None


def test_the_number_of_a_forgotten_request_is_not_given_again(run, inputs, model):
    """Else its answer would be taken for one of the forgotten steps, and a trainer above the limit would wait for ever."""
    source = started(run, inputs)
    number, base = source.generation.number, source.generation.step
    move(model)
    source.between(base + 5, model)  # unanswered when the trainer was killed
    given = []
    for step in (base + 5, base + 10):
        again = asking(run, inputs)
        again.resume(number)
        again.between(step, model)
        given.append(requested(run))
    assert given == [number + 2, number + 3]
    answer(run, inputs)
    found = again.between(base + 11, model)
    assert found is not None and found.step == base + 10


def test_an_answer_that_cannot_be_used_is_asked_for_again(run, inputs, model, monkeypatch):
    source = started(run, inputs)
    late = source.generation.step + 26
    source.between(late - 1, model)
    answer(run, inputs)
    file = run.index / f"{current_generation(run.index):06d}" / "vectors-00000.npy"
    file.write_bytes(file.read_bytes()[:-4] + b"abcd")
    monkeypatch.setattr("realm.training.refresh.index_source.WAIT_SECONDS", 0.0)
    monkeypatch.setattr("realm.training.refresh.index_source.time.sleep", lambda _: answer(run, inputs))
    found = source.between(late, model)
    assert found is not None and found.step == late


class Dead(RefresherProcess):
    """A refresher that ends at once."""

    def _start(self):
        with open(self._paths.root / refresher_process.LOG, "ab") as log:
            command = [sys.executable, "-S", "-c", "import sys; print('error: no room', file=sys.stderr); sys.exit(2)"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log)
        self._process.wait()
        self._not_before = 0.0


def test_a_refresher_that_cannot_live_is_given_up(run, monkeypatch, caplog):
    monkeypatch.setattr(time, "monotonic", iter(range(0, 10**6, 1000)).__next__)
    child = Dead(run, 1, "cpu")
    with pytest.raises(TrainingError, match=r"died with code 2: error: no room\. Fix .*refresher.log"):
        for _ in range(50):
            child.watch()
    assert child.restarts == refresher_process.RESTARTS == caplog.text.count("restarting it")
    child.stop()


@pytest.fixture
def child(run):
    child = RefresherProcess(run, 1, "cpu")
    child.watch()
    yield child
    child.stop()


def test_the_child_answers_is_started_again_and_ends(run, inputs, model, child):
    source = asking(run, inputs, child, deadline=120.0, limit=5)
    source.resume(current_generation(run.index) or 0)
    base = source.generation.step
    move(model)
    found = source.between(base + 6, model)  # above the limit: waits for the child to come up and answer
    assert found is not None and found.step == base + 6
    first, process = child.pid, child._process
    assert first is not None and process is not None and process.stdin is not None
    os.kill(first, signal.SIGKILL)
    move(model)
    found = source.between(base + 12, model)
    assert found is not None and found.step == base + 12 and source.restarts == 1 and child.pid != first
    assert process.stdin.closed, "nothing of the first is left open"
    second = child.pid
    source.close()
    assert second is not None and not alive(second)


def test_a_run_beside_a_refresher(tmp_path, write_tiny, monkeypatch):
    """It goes over to several indexes, some of parameters that are older than the step, says what each changed, and leaves no orphan."""
    monkeypatch.setattr("realm.training.pretrain.retrieve.STALE_REFRESHES", 1)
    settings = {"pretrain": {"steps": 40, "refresh_every": 5, "refresh": "process"}}
    train(load_recipe(write_tiny(tmp_path), settings), tmp_path / "run", PRETRAINING)
    rows = [row for row in MetricsLog(tmp_path / "run" / "metrics.jsonl").rows() if row["stage"] == "pretrain"]
    assert sum("wait_seconds" in row for row in rows) >= 4 and max(row.get("staleness_highest", 0) for row in rows) >= 5
    status = read_status(tmp_path / "run" / "index")
    assert status is not None and not alive(status.pid), "no orphan"


SLOW = pytest.mark.slow


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=SLOW), pytest.param(signal.SIGINT, marks=SLOW)])
def test_a_trainer_that_ends_leaves_no_orphan(run, how):
    for stage in ("pretrain", "finetune"):
        shutil.rmtree(run.stage(stage))
    pretraining = run.config.read_text().replace('refresh = "inline"', 'refresh = "process"').split("[pretrain]")
    longer = pretraining[1].replace("steps = 5", "steps = 100000", 1)
    run.config.write_text(f"{pretraining[0]}[pretrain]{longer}")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it would be ignored, by children too
    trainer = subprocess.Popen(
        [sys.executable, "-m", "realm", "run", str(run.root), "--stages", "pretrain"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        status = until(lambda: read_status(run.index) or trainer.poll() is not None)
        assert trainer.poll() is None and alive(status.pid)
    finally:
        trainer.send_signal(how)
        code = trainer.wait(60)
    assert code == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(how, -how)
    until(lambda: not alive(status.pid))


def test_an_index_that_is_embedded_within_training_says_how_far_it_is(run, inputs, model):
    told = []
    tell = lambda done, total: told.append((done, total))  # noqa: E731
    source = Inline(RefreshContext(run, inputs, torch.device("cpu"), Schedule(100, 5, 25), frozenset, progress=tell))
    assert source.between(5, model) is not None
    blocks = int(inputs.store.live.sum())
    assert told and told == sorted(told) and told[-1] == (blocks, blocks)
