"""Mirrors of metrics.jsonl: every row arrives, a rewind hides what is written again, nothing unasked is loaded or contacted."""

import importlib.util
import time

import pytest

from realm.errors import ConfigError, MissingExtra
from realm.recipe import build_recipe
from realm.runs.directory import claim_run
from realm.storage.metrics import MetricsLog
from realm.storage.paths import RunPaths
from realm.training.loop.mirrors import TensorBoard, open_sinks


def write(log, *steps, **values):
    for step in steps:
        log.write("pretrain", step, loss=1 / step, **values)


def curve(directory, name):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    return [(event.step, round(event.value, 4)) for event in events.Scalars(name)]


def test_tensorboard_shows_the_rows_and_not_what_was_taken_back(tmp_path):
    pytest.importorskip("tensorboard")
    log = MetricsLog(tmp_path / "metrics.jsonl", (TensorBoard(tmp_path / "tensorboard"),))
    write(log, 20, 40, 60, name="x", gap=float("nan"), flag=True)
    log.write("ict", 7, accuracy=0.5)
    log.write("pretrain", 60, alarm="utility", problem="p", cure="c")
    assert curve(tmp_path / "tensorboard" / "pretrain", "loss") == [(20, 0.05), (40, 0.025), (60, 0.0167)]
    time.sleep(1.1)  # TensorBoard orders files by the second they were begun in; a run is not resumed within one
    resumed = MetricsLog(tmp_path / "metrics.jsonl", (TensorBoard(tmp_path / "tensorboard"),))
    resumed.rewind("pretrain", 2)
    write(resumed, 50)
    assert curve(tmp_path / "tensorboard" / "pretrain", "loss") == [(20, 0.05), (40, 0.025), (50, 0.02)]
    assert curve(tmp_path / "tensorboard" / "ict", "accuracy") == [(7, 0.5)]
    time.sleep(1.1)
    resumed.rewind("pretrain", 0)  # from nothing, in the same process
    write(resumed, 10)
    assert curve(tmp_path / "tensorboard" / "pretrain", "loss") == [(10, 0.1)]


def test_only_what_is_asked_for_and_installed(tmp_path, monkeypatch):
    def sinks(tensorboard):
        return [type(s).__name__ for s in open_sinks(tmp_path, tensorboard=tensorboard)]

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert sinks("auto") == sinks(False) == []
    with pytest.raises(MissingExtra, match=r"run.tensorboard = true needs .*realm-qa\[tensorboard\]"):
        sinks(True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert sinks(False) == [] and sinks("auto") == sinks(True) == ["TensorBoard"]
    assert list(tmp_path.iterdir()) == []


def test_the_recipe_says_which(tmp_path):
    assert build_recipe({}).run.tensorboard == "auto" and build_recipe({"run": {"tensorboard": True}}).run.tensorboard is True
    with pytest.raises(ConfigError, match=r"'run\.tensorboard' cannot be 'maybe'.*auto, true, false"):
        build_recipe({"run": {"tensorboard": "maybe"}})
    with pytest.raises(ConfigError, match=r"'run\.tensorboard' cannot be 3"):
        build_recipe({"run": {"tensorboard": 3}})
    paths = RunPaths(tmp_path)
    claim_run(paths, build_recipe({}))
    paths.stage("ict").mkdir(parents=True)
    claim_run(paths, build_recipe({"run": {"tensorboard": False}}))  # who is shown it may change at any time
