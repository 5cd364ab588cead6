"""Mirrors of metrics.jsonl: every row arrives, a rewind hides what is written again, nothing unasked is loaded or contacted."""

import importlib.util
import json
import sys
import time
import types
from unittest.mock import Mock

import pytest

from realm.errors import ConfigError, MissingExtra, RunError
from realm.recipe import build_recipe
from realm.runs.directory import claim_run
from realm.storage.metrics import MetricsLog
from realm.storage.paths import RunPaths
from realm.training.loop.mirrors import TensorBoard, WeightsAndBiases, open_sinks

CONFIG = {"run": {"seed": 3}}


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


class FakeRun:
    """What is used of a W&B run."""

    def __init__(self):
        self.logged = []
        self.defined = []
        self.alerts = []

    def log(self, values):
        self.logged.append(values)

    def define_metric(self, name, step_metric):
        self.defined.append((name, step_metric))

    def alert(self, title, text):
        self.alerts.append(f"{title}: {text}")


@pytest.fixture
def wandb(monkeypatch):
    module = types.ModuleType("wandb")
    module.Error = type("Error", (Exception,), {})
    module.run = FakeRun()
    module.asked = []

    def init(**options):
        module.asked.append(options)
        return module.run

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_wandb_gets_the_rows_of_one_run(tmp_path, wandb):
    log = MetricsLog(tmp_path / "metrics.jsonl", (WeightsAndBiases(tmp_path, "realm", CONFIG),))
    log.rewind("pretrain", 0)
    assert wandb.asked == []  # nothing is contacted before the first row
    write(log, 20, 40)
    log.write("pretrain", 40, alarm="utility", problem="p", cure="c")
    asked = wandb.asked[0]
    assert asked["project"] == "realm" and asked["name"] == tmp_path.name and asked["config"] == CONFIG and asked["resume"] == "allow"
    assert asked["id"] == json.loads((tmp_path / "wandb.json").read_text())["id"]
    assert wandb.run.logged[:2] == [{"pretrain/step": 20, "pretrain/loss": 0.05}, {"pretrain/step": 40, "pretrain/loss": 0.025}]
    assert wandb.run.defined == [("pretrain/*", "pretrain/step")] and wandb.run.alerts == ["pretrain: utility: step 40: p. c"]
    write(MetricsLog(tmp_path / "metrics.jsonl", (WeightsAndBiases(tmp_path, "realm", CONFIG),)), 60)
    assert [options["id"] for options in wandb.asked] == [asked["id"]] * 2


def test_a_refusal_is_one_line(tmp_path, wandb, monkeypatch):
    monkeypatch.setattr(wandb, "init", Mock(side_effect=wandb.Error("no key")))
    with pytest.raises(RunError, match=r"W&B refuses the project 'realm': no key.*WANDB_MODE=offline"):
        write(MetricsLog(tmp_path / "metrics.jsonl", (WeightsAndBiases(tmp_path, "realm", CONFIG),)), 1)


def test_only_what_is_asked_for_and_installed(tmp_path, monkeypatch):
    def sinks(tensorboard, wandb=""):
        return [type(s).__name__ for s in open_sinks(tmp_path, tensorboard=tensorboard, wandb=wandb, config=CONFIG)]

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert sinks("auto") == sinks(False) == []
    with pytest.raises(MissingExtra, match=r"run.tensorboard = true needs .*realm-qa\[tensorboard\]"):
        sinks(True)
    with pytest.raises(MissingExtra, match=r"run.wandb = 'mine' needs .*realm-qa\[wandb\]"):
        sinks(False, "mine")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert sinks(False) == [] and sinks("auto") == sinks(True) == ["TensorBoard"] and sinks(False, "mine") == ["WeightsAndBiases"]
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
    claim_run(paths, build_recipe({"run": {"tensorboard": False, "wandb": "mine"}}))  # who is shown it may change at any time
