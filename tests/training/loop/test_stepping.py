"""A batch in parts: the same step, whatever the parts weigh; what is recomputed; the best weights; batches written down."""

import math
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import toy_tasks
from torch import Tensor, nn
from toy_runs import context_of, pretraining_of, reading_of
from toy_tasks import Regression

from realm.errors import ConfigError, TrainingError
from realm.models.model import state_sha256
from realm.storage.metrics import MetricsLog
from realm.training.baselines.closed_book import SentencesTask
from realm.training.context import load_stage
from realm.training.loop.checkpoint import BestWeights, shared_best
from realm.training.loop.optim import OPTIMIZERS
from realm.training.loop.stepping import Pending, as_numbers, one_step
from realm.training.loop.task import LoopOptions, StepResult, Task
from realm.training.order import EpochOrder, Share
from realm.training.pretrain.stage import with_what_fills
from realm.training.pretrain.task import PretrainTask
from realm.training.warm import IctTask, WarmTask, require_encoder

BATCH = 12
OPTIONS = LoopOptions(steps=6, lr=0.05, warmup=2, log_every=2, checkpoint_every=2)


class Weighed(Task):
    """Regression in which every example has a weight of its own, and some have none: their part of a batch has nothing to learn."""

    name = "weighed"
    best_by = "score"

    def __init__(self, scores=(), killed_at=-1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 1)).double()
            self.x = torch.randn(40, 3, dtype=torch.float64)
        self.weights = torch.arange(40, dtype=torch.float64) % 5
        self.order = EpochOrder(40, "weighed")
        self.scores, self.killed_at = scores, killed_at

    def step(self, step, share=Share()):  # noqa: B008
        if step == self.killed_at:
            raise KeyboardInterrupt
        items = torch.tensor([item for _, item in self.order.batch(step, BATCH, share)])
        x, weight = self.x[items], self.weights[items]
        if share.count > 1 and share.index == 0:
            weight = torch.zeros_like(weight)  # nothing valid here
        loss = ((self.model(x).squeeze(-1) - x.sum(-1)).pow(2) * weight).sum()
        mean_x = float((x.mean(-1) * weight).sum() / weight.sum()) if weight.any() else 0.0
        return StepResult(loss, int((weight > 0).sum()), {"mean_x": mean_x}, float(weight.sum()))

    def between(self, step):
        return {"score": self.scores[step]} if self.scores else None


def train(task, run, **changes):
    return toy_tasks.train(task, run, replace(OPTIONS, **changes))


def test_shares_are_the_batch_in_order():
    order = EpochOrder(7, "x")
    whole = order.batch(3, 6)
    assert [pair for part in range(3) for pair in order.batch(3, 6, Share(part, 3))] == whole
    assert [position for position, _ in whole] == list(range(18, 24))
    with pytest.raises(ConfigError, match=r"a batch of 6 cannot be divided into 4 parts \(ranks x accumulate\).*multiple of 4"):
        order.batch(3, 6, Share(0, 4))


def test_parts_of_unequal_weight_give_the_step_of_the_whole(tmp_path):
    """Four parts, of which the first has nothing valid, against one batch without those examples."""

    class Whole(Weighed):
        def step(self, step, share=Share()):  # noqa: B008
            parts = [super(Whole, self).step(step, Share(part, 4)) for part in range(4)]
            weight = sum(part.weight for part in parts)
            mean_x = sum(part.metrics["mean_x"] * part.weight for part in parts) / weight
            return StepResult(sum((p.loss for p in parts), torch.zeros(())), sum(p.valid for p in parts), {"mean_x": mean_x}, weight)

    parts, whole = Weighed(), Whole()
    train(parts, tmp_path / "parts", accumulate=4)
    train(whole, tmp_path / "whole")
    for one, other in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    rows = [list(MetricsLog(tmp_path / name / "metrics.jsonl").rows()) for name in ("parts", "whole")]
    for one, other in zip(*rows, strict=True):
        assert one["step"] == other["step"] and one["valid"] == other["valid"]
        for name in ("loss", "mean_x", "grad_norm"):
            assert one[name] == pytest.approx(other[name], abs=2e-6)


def test_the_best_weights_are_kept_and_no_number_is_the_best(tmp_path):
    train(Weighed(scores=(0.1, 0.3, 0.2, 0.9, 0.9, 0.4, 0.5)), tmp_path)
    found = shared_best(tmp_path / "checkpoints")
    assert found is not None and found[:2] == (3, 0.9)
    train(Weighed(), tmp_path / "short", steps=3)  # weights after three steps, but for the schedule
    assert [path.name for path in (tmp_path / "checkpoints").glob("best-*")] == ["best-0000003"]
    assert shared_best(tmp_path / "short/checkpoints") is None
    best = BestWeights(tmp_path)
    best.offer(1, math.nan, nn.Linear(1, 1))
    assert best.state is None and shared_best(tmp_path) is None


@pytest.mark.parametrize("killed_at", range(6))
def test_a_resumed_run_has_the_same_best(tmp_path, killed_at):
    scores = (0.1, 0.3, 0.2, 0.25, 0.9, 0.4, 0.5)
    whole = Weighed(scores)
    train(whole, tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        train(Weighed(scores, killed_at=killed_at), tmp_path / "b")
    task = Weighed(scores)
    train(task, tmp_path / "b")
    assert state_sha256(task.model) == state_sha256(whole.model)
    best = [shared_best(tmp_path / name / "checkpoints") for name in ("a", "b")]
    assert best[0] is not None and best[1] is not None and best[0][:2] == best[1][:2] == (4, 0.9)
    assert best[0][2].read_bytes() == best[1][2].read_bytes()


def test_a_best_that_a_checkpoint_knows_outlives_a_better_one(tmp_path):
    """Killed after a better one, the run goes on from a checkpoint that knows the old one; this time the better one may not come."""
    with pytest.raises(KeyboardInterrupt):
        train(Weighed((0.1, 0.3, 0.2, 0.9, 0.0, 0.0, 0.0), killed_at=3), tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("best-*")) == ["best-0000001", "best-0000003"]
    train(Weighed((0.1, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0)), tmp_path)
    found = shared_best(tmp_path / "checkpoints")
    assert found is not None and found[:2] == (1, 0.3)


OPTIONS_DEFERRED = LoopOptions(steps=12, lr=0.05, warmup=3, seed=4, log_every=5, checkpoint_every=4)
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
            while "realm" not in frame.f_code.co_filename or "/tests/" in frame.f_code.co_filename:
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
    weight.grad = weight.grad.as_subclass(OnDevice)


def run(task, where, options):
    toy_tasks.train(task, where, options)
    return toy_tasks.outcome(task, where)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("accumulate", [1, 2])
def test_deferred_steps_give_the_same_weights_and_rows(tmp_path, optimizer, accumulate):
    def task():
        return Regression(broken=frozenset({3, 9}), empty=frozenset({5}), half=frozenset({6}))

    options = replace(OPTIONS_DEFERRED, optimizer=optimizer, accumulate=accumulate)
    read, deferred = (run(task(), tmp_path / str(later), replace(options, deferred=later)) for later in (False, True))
    assert deferred == read
    of_window = 1 / (3 if accumulate == 1 else 4)  # steps without a valid example count for nothing
    assert [row["skipped"] for row in read[1] if "loss" in row] == [pytest.approx(share, abs=1e-6) for share in (0.2, of_window, 0)]


def test_nothing_is_read_back_between_two_rows(tmp_path):
    task = Regression(broken=frozenset({7}))
    with on_device(task.model) as reads:
        run(task, tmp_path, replace(OPTIONS_DEFERRED, deferred=True, checkpoint_every=0))
    assert reads.pop("stepping.py: as_numbers") == 3  # once for each row: after 5, 10 and 12 steps
    assert set(reads) <= {"model.py: <genexpr>"}  # this test's own look at the end
    with on_device(task.model) as reads:
        run(task, tmp_path / "read", OPTIONS_DEFERRED)
    assert reads["stepping.py: as_numbers"] >= OPTIONS_DEFERRED.steps  # where steps are not deferred, the test sees it


@pytest.mark.parametrize("deferred", [True, False])
def test_steps_that_are_not_finite_end_the_run_when_they_are_read(deferred, tmp_path):
    task = Regression(broken=frozenset({1, 2, 3, 4}))
    with pytest.raises(TrainingError, match=r"3 steps in a row had a loss .* \(the last: step 3\)"):
        run(task, tmp_path, replace(OPTIONS_DEFERRED, deferred=deferred))
    assert all(bool(torch.isfinite(weight).all()) for weight in task.model.parameters())


def test_scalars_of_any_depth_are_read_together(monkeypatch):
    stacked, stack = [], torch.stack

    def counted(values):
        stacked.append(len(values))
        return stack(values)

    monkeypatch.setattr(torch, "stack", counted)
    found = as_numbers([{"a": torch.tensor(1.5), "b": [torch.tensor(2), 3]}, torch.tensor(math.nan), 0.1, torch.tensor(True)])
    assert found[0] == {"a": 1.5, "b": [2, 3]} and math.isnan(found[1]) and found[2:] == [0.1, 1.0] and stacked == [4]
    assert as_numbers([{"a": 1}]) == [{"a": 1}] and stacked == [4]


SEARCHES = {"retrieve.py: retrieve", "embedder.py: embed_questions", "beams.py: forward"}
INDEX = {"mips.py", "base.py", "exact.py"}
"""Who may read in a step: what is searched with goes to the index, and what was found comes back, because texts are read by it."""


def tasks(run):
    context = context_of(run)
    section = context.recipe.pretrain
    yield "warm", WarmTask(context, load_stage(context, "warm"))
    yield "ict", IctTask(context, load_stage(context, "ict"))
    for fill in ("mlm", "pointer"):
        here = replace(context, recipe=replace(context.recipe, pretrain=replace(section, fill=fill)))
        task = PretrainTask(here, with_what_fills(here, load_stage(context, "pretrain")))
        task.generation = pretraining_of(context).generation
        yield fill, task
    yield "finetune", reading_of(context, run)
    yield "closed book", SentencesTask(context, load_stage(context, "warm"))


def test_a_step_of_each_stage_reads_nothing_but_its_search(run_copy):
    for name, task in tasks(run_copy):
        searching = [task.generation.queries] if isinstance(task, PretrainTask) else []
        with on_device(task.model, *searching) as reads:
            optimizer = OPTIMIZERS["adamw"].build([task.model], lr=1e-4)
            found = one_step(task, 1, optimizer, LoopOptions(steps=3, lr=1e-4, warmup=0, deferred=True))
        assert isinstance(found, Pending) and isinstance(found.norm, OnDevice), name
        others = {place for place in reads if place not in SEARCHES and place.split(":")[0] not in INDEX}
        assert not others and bool(reads) == (name in ("mlm", "pointer", "finetune")), (name, reads)


def test_a_body_that_fills_no_masks_is_refused_with_the_cure(tiny_run):
    context = context_of(tiny_run)
    model = load_stage(context, "pretrain")
    require_encoder(context, model)
    with pytest.raises(ConfigError, match=r'no head that fills masks.*pretrain\.fill = "pointer"'):
        require_encoder(context, model.only("embedder", "reader"))
