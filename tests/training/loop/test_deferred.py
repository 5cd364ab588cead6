"""Steps whose numbers are read when a row is logged: the same weights and rows, and nothing is read back from the device in between."""

import math
import shutil
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from realm.answering.opening import read_run_recipe
from realm.errors import TrainingError
from realm.models.model import state_sha256
from realm.search.publishing.generation import open_generation
from realm.storage.metrics import MetricsLog
from realm.storage.paths import RunPaths
from realm.training.baselines.closed_book import SentencesTask
from realm.training.context import load_stage, open_context, source_over, stage_facts
from realm.training.finetune.task import ReadingTask, training_questions
from realm.training.ict import IctTask
from realm.training.loop.checkpoint import CheckpointDirectory
from realm.training.loop.loop import LoopOptions, StepResult, Task, fit
from realm.training.loop.optim import OPTIMIZERS
from realm.training.loop.stepping import Pending, as_numbers, one_step
from realm.training.order import WHOLE
from realm.training.pretrain.stage import with_what_fills
from realm.training.pretrain.task import PretrainTask
from realm.training.warm import WarmTask

OPTIONS = LoopOptions(steps=12, lr=0.05, warmup=3, seed=4, log_every=5, checkpoint_every=4)
READS = {"item", "tolist", "cpu", "numpy", "nonzero", "__float__", "__int__", "__bool__", "__index__", "masked_select", "argwhere"}


class OnDevice(Tensor):
    """Stands for a tensor of an accelerator: whatever is computed of it lies there too, and reading it waits for the device."""

    reads: ClassVar[Counter[str]] = Counter()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        by_mask = name in ("__getitem__", "__setitem__") and any(
            isinstance(part, OnDevice) and part.dtype == torch.bool for part in (args[1] if isinstance(args[1], tuple) else (args[1],))
        )
        if name in READS or by_mask:
            frame = sys._getframe(1)
            while "realm" not in frame.f_code.co_filename or "test_deferred" in frame.f_code.co_filename:
                frame = frame.f_back
            cls.reads[f"{Path(frame.f_code.co_filename).name}: {frame.f_code.co_name}"] += 1
        found = super().__torch_function__(func, types, args, kwargs or {})
        return found.as_subclass(Tensor) if name == "cpu" else found


@contextmanager
def on_device(*models):
    """The models' weights as if they lay on an accelerator; counts by whom what is computed of them is read."""
    for module in (module for model in models for module in model.modules()):
        for name, weight in list(module._parameters.items()):
            if weight is not None:
                module._parameters[name] = nn.Parameter(weight.detach().as_subclass(OnDevice), requires_grad=weight.requires_grad)
    for weight in (weight for model in models for weight in model.parameters() if weight.requires_grad):
        weight.register_post_accumulate_grad_hook(_gradient_there)
    OnDevice.reads = Counter()
    yield OnDevice.reads


def _gradient_there(weight):
    assert weight.grad is not None
    weight.grad = weight.grad.as_subclass(OnDevice)


class Regression(Task):
    """Linear regression with dropout; in ``broken`` steps the loss is not finite, in ``empty`` ones nothing is valid, in one of two parts
    of ``half`` ones neither."""

    name = "toy"

    def __init__(self, broken=frozenset(), empty=frozenset(), half=frozenset()):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.LayerNorm(8), nn.Linear(8, 1))
        self.broken, self.empty, self.half = broken, empty, half

    def step(self, step, share=WHOLE):
        x = torch.randn(5, 3)
        loss = (self.model(x).squeeze(-1) - x.sum(-1)).pow(2)
        valid = torch.full((5,), step not in self.empty and (step not in self.half or share.index > 0))
        loss = torch.where(valid, loss, 0.0).sum() * (float("nan") if step in self.broken else 1.0)
        metrics = {"mean": x.mean(), "odd": float(step % 2)}
        if step % 2:
            metrics["sometimes"] = loss.detach() / 2
        return StepResult(loss, valid.sum(), metrics, valid.sum())


def run(task, where, options):
    """Train; the weights' hash and the rows but for their times."""

    def silent(stage, step, steps, values):
        """Says nothing."""

    log = MetricsLog(where / "metrics.jsonl")
    fit(task, options, log=log, checkpoints=CheckpointDirectory(where / "checkpoints", fingerprint="f"), report=silent)
    return state_sha256(task.model), [{k: v for k, v in row.items() if k != "time"} for row in log.rows()]


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("accumulate", [1, 2])
def test_deferred_steps_give_the_same_weights_and_rows(tmp_path, optimizer, accumulate):
    def task():
        return Regression(broken=frozenset({3, 9}), empty=frozenset({5}), half=frozenset({6}))

    options = replace(OPTIONS, optimizer=optimizer, accumulate=accumulate)
    read, deferred = (run(task(), tmp_path / str(later), replace(options, deferred=later)) for later in (False, True))
    assert deferred == read
    of_window = 1 / (3 if accumulate == 1 else 4)  # steps without a valid example count for nothing
    assert [row["skipped"] for row in read[1]] == [pytest.approx(share, abs=1e-6) for share in (0.2, of_window, 0)]


def test_nothing_is_read_back_between_two_rows(tmp_path):
    task = Regression(broken=frozenset({7}))
    with on_device(task.model) as reads:
        run(task, tmp_path, replace(OPTIONS, deferred=True, checkpoint_every=0))
    assert reads.pop("stepping.py: as_numbers") == 3  # once for each row: after 5, 10 and 12 steps
    assert set(reads) <= {"model.py: state_sha256"}  # this test's own look at the end
    with on_device(task.model) as reads:
        run(task, tmp_path / "read", OPTIONS)
    assert reads["stepping.py: as_numbers"] >= OPTIONS.steps  # where steps are not deferred, the test sees it


def test_steps_that_are_not_finite_end_the_run_when_they_are_read(tmp_path):
    task = Regression(broken=frozenset({1, 2, 3, 4}))
    with pytest.raises(TrainingError, match=r"3 steps in a row had a loss .* \(the last: step 3\)"):
        run(task, tmp_path, replace(OPTIONS, deferred=True))
    assert all(bool(torch.isfinite(weight).all()) for weight in task.model.parameters())


def test_scalars_of_any_depth_are_read_together(monkeypatch):
    stacked = []
    stack = torch.stack

    def counted(values):
        stacked.append(len(values))
        return stack(values)

    monkeypatch.setattr(torch, "stack", counted)
    found = as_numbers([{"a": torch.tensor(1.5), "b": [torch.tensor(2), 3]}, torch.tensor(math.nan), 0.1, torch.tensor(True)])
    assert found[0] == {"a": 1.5, "b": [2, 3]} and math.isnan(found[1]) and found[2:] == [0.1, 1.0] and stacked == [4]
    assert as_numbers([{"a": 1}]) == [{"a": 1}] and stacked == [4]


SEARCHES = {"retrieve.py: retrieve", "candidates.py: _found"}
INDEX = {"checks.py", "base.py", "exact.py"}
"""Who may read in a step: what is searched with goes to the index, and what was found comes back, because texts are read by it."""


def tasks(tiny_run, scratch):
    """A task of every stage, ready for a step."""
    paths = RunPaths(shutil.copytree(tiny_run, scratch / "run"))
    context = open_context(paths, read_run_recipe(paths), lambda *_: None)
    section = context.recipe.pretrain
    yield "warm", WarmTask(context, load_stage(context, "warm"))
    yield "ict", IctTask(context, load_stage(context, "ict"))
    for fill in ("mlm", "pointer"):
        here = replace(context, recipe=replace(context.recipe, pretrain=replace(section, fill=fill)))
        task = PretrainTask(here, with_what_fills(here, load_stage(context, "pretrain")))
        task.generation = open_generation(paths, context.inputs, stage_facts(paths, "pretrain")["generation"], device=context.device)
        yield fill, task
    model = load_stage(context, "finetune")
    generation = open_generation(paths, context.inputs, stage_facts(paths, "finetune")["generation"], device=context.device)
    questions, dev = training_questions(context)
    yield "finetune", ReadingTask("finetune", context, source_over(context, model.embedder, generation), model.reader, questions, dev)
    yield "closed book", SentencesTask(context, load_stage(context, "warm"))


def test_a_step_of_each_stage_reads_nothing_but_its_search(tiny_run, tmp_path):
    for name, task in tasks(tiny_run, tmp_path):
        searching = [task.generation.queries] if isinstance(task, PretrainTask) else []
        with on_device(task.model, *searching) as reads:
            optimizer = OPTIMIZERS["adamw"].build([task.model], lr=1e-4)
            found = one_step(task, 1, optimizer, LoopOptions(steps=3, lr=1e-4, warmup=0, deferred=True))
        assert isinstance(found, Pending) and isinstance(found.norm, OnDevice), name
        others = {place for place in reads if place not in SEARCHES and place.split(":")[0] not in INDEX}
        assert not others and bool(reads) == (name in ("mlm", "pointer", "finetune")), (name, reads)
