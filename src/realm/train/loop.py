"""The training loop shared by every stage: step, clip, finite check, checkpoint, metrics.

A stage is a task: its modules, its ``step`` and what it does between steps. The random state is set from (seed, stage, step) before
each step, so a resumed run draws what the uninterrupted one drew.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from realm.data.loader import generator
from realm.errors import TrainingError
from realm.train.checkpoint import CheckpointDirectory
from realm.train.metrics import MetricsLog
from realm.train.optim import OPTIMIZERS
from realm.train.precision import has_bf16

Metrics = dict[str, float]


@dataclass(frozen=True)
class StepResult:
    """One step's scalar loss, how many examples in it were valid, and numbers to average into the log."""

    loss: Tensor
    valid: int
    metrics: Metrics = field(default_factory=dict)


class Task:
    """What a stage gives to :func:`fit`. A stage overrides ``step`` and what else it needs.

    ``model`` is the nn.Module whose trainable parameters are learnt and checkpointed; each stage knows its own type.
    """

    name: str
    model: Any

    kept_states: Callable[[], list[dict[str, Any]]] = list
    """What :meth:`state` gave for each checkpoint that is still kept; set by :func:`fit`."""

    def step(self, step: int) -> StepResult:
        """The loss of step ``step`` (from 0); a pure function of the weights, the task's state and the step."""
        raise NotImplementedError

    def between(self, step: int) -> Metrics | None:
        """Called before step ``step``, and once after the last: refresh, evaluate. What it returns is logged."""
        return None

    def row(self, step: int, steps: int) -> Metrics:
        """What a log row at step ``step`` of ``steps`` says besides the means of its window."""
        return {}

    def finished(self, step: int) -> bool:
        """Whether the stage may end before its last step (a test passed)."""
        return False

    def state(self) -> dict[str, Any]:
        """JSON that a checkpoint carries for the task."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""


@dataclass(frozen=True)
class LoopOptions:
    """How a stage is trained.

    Args:
        steps: optimiser steps.
        lr: peak learning rate.
        warmup: steps of linear warm-up.
        optimizer: of ``optim.OPTIMIZERS``.
        clip: global gradient norm.
        seed: of the whole run.
        log_every: steps between metric rows.
        checkpoint_every: steps between checkpoints; 0 for none.
        bf16: autocast the networks to bfloat16 where the hardware multiplies it; elsewhere they stay in float32.
        device: where the model lives.
        patience: windows of ``log_every`` steps without a valid example, or steps in a row with non-finite gradients, before stopping.
    """

    steps: int
    lr: float
    warmup: int
    optimizer: str = "adamw"
    clip: float = 1.0
    seed: int = 0
    log_every: int = 20
    checkpoint_every: int = 100
    bf16: bool = False
    device: str = "cpu"
    patience: int = 3


Report = Callable[[str, int, int, Metrics], None]


def fit(task: Task, options: LoopOptions, *, log: MetricsLog, checkpoints: CheckpointDirectory, report: Report) -> int:
    """Train ``task`` from its newest checkpoint, or from the start. Returns the number of finished steps.

    Raises:
        TrainingError: nothing valid in a whole window, or non-finite gradients several times in a row.
    """
    options = replace(options, bf16=options.bf16 and has_bf16(options.device))
    optimizer = OPTIMIZERS[options.optimizer].build([task.model], lr=options.lr)
    window = _Window(task.name, options)
    task.kept_states = checkpoints.task_states
    start = _resume(task, window, optimizer, checkpoints, log)
    for step in range(start, options.steps):
        _between(task, step, options.steps, log, report)
        if task.finished(step):
            return step
        window.add(_one_step(task, step, optimizer, options))
        done = step + 1
        if done % options.log_every == 0 or done == options.steps:
            values = window.close(optimizer.param_groups[0]["lr"]) | task.row(done, options.steps)
            log.write(task.name, done, **values)
            report(task.name, done, options.steps, values)
        if options.checkpoint_every and done % options.checkpoint_every == 0 and done < options.steps:
            checkpoints.save(done, task.model, optimizer, {"task": task.state(), "window": window.state(), "rows": log.count(task.name)})
    _between(task, options.steps, options.steps, log, report)
    return options.steps


def _resume(task: Task, window: "_Window", optimizer: torch.optim.Optimizer, checkpoints: CheckpointDirectory, log: MetricsLog) -> int:
    restored = checkpoints.restore(task.model, optimizer)
    if restored is None:
        log.rewind(task.name, 0)
        return 0
    task.restore(restored.extra["task"])
    window.restore(restored.extra["window"])
    log.rewind(task.name, restored.extra["rows"])
    return restored.step


def _between(task: Task, step: int, steps: int, log: MetricsLog, report: Report) -> None:
    values = task.between(step)
    if values:
        log.write(task.name, step, **values)
        report(task.name, step, steps, values)


def _one_step(task: Task, step: int, optimizer: torch.optim.Optimizer, options: LoopOptions) -> StepResult:
    """One forward, backward and update. A step with non-finite gradients changes nothing and is counted."""
    torch.manual_seed(int(generator(options.seed, task.name, "step", step).integers(2**62)))
    task.model.train()
    factor = OPTIMIZERS[options.optimizer].schedule(step, steps=options.steps, warmup=options.warmup)
    for group in optimizer.param_groups:
        group["lr"] = options.lr * factor
    with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.bf16):
        result = task.step(step)
    if result.valid == 0:
        return StepResult(result.loss.detach(), 0, result.metrics)
    optimizer.zero_grad(set_to_none=True)
    result.loss.backward()
    norm = nn.utils.clip_grad_norm_([p for p in task.model.parameters() if p.requires_grad], options.clip)
    finite = bool(torch.isfinite(norm)) and bool(torch.isfinite(result.loss))
    if finite:
        optimizer.step()
    metrics = {**result.metrics, "grad_norm": float(norm) if finite else 0.0, "skipped": 0.0 if finite else 1.0}
    return StepResult(result.loss.detach(), result.valid, metrics)


class _Window:
    """Means over the steps since the last log row, and the alarms that need more than one step."""

    def __init__(self, name: str, options: LoopOptions):
        self.name = name
        self.options = options
        self.results: list[tuple[float, int, Metrics]] = []
        self.empty_windows = 0
        self.skipped = 0

    def add(self, result: StepResult) -> None:
        self.skipped = self.skipped + 1 if result.metrics.get("skipped") else 0
        if self.skipped >= self.options.patience:
            cure = "Lower the learning rate, or look for damaged weights."
            raise TrainingError(f"{self.name}: {self.skipped} steps in a row had non-finite gradients", cure=cure)
        self.results.append((float(result.loss), result.valid, result.metrics))

    def state(self) -> dict[str, Any]:
        """Open results and alarm counts as JSON, so that a checkpoint between two log rows changes no mean and no alarm."""
        results = [[_json(loss), valid, {k: _json(v) for k, v in metrics.items()}] for loss, valid, metrics in self.results]
        return {"results": results, "empty_windows": self.empty_windows, "skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        self.results = [(_number(loss), valid, {k: _number(v) for k, v in metrics.items()}) for loss, valid, metrics in state["results"]]
        self.empty_windows, self.skipped = state["empty_windows"], state["skipped"]

    def close(self, lr: float) -> Metrics:
        """The means over the window, which starts anew.

        Raises:
            TrainingError: several windows in a row had no valid example.
        """
        valid = [r for r in self.results if r[1] > 0]
        self.empty_windows = 0 if valid else self.empty_windows + 1
        if self.empty_windows >= self.options.patience:
            cure = "Look at the answers or spans of the data: nothing in them can be learnt."
            raise TrainingError(f"{self.name}: no valid example in {self.empty_windows * self.options.log_every} steps", cure=cure)
        names = sorted({name for _, _, metrics in valid for name in metrics})
        values: Metrics = {"loss": _mean([loss for loss, _, _ in valid]), "lr": lr}
        for name in names:
            values[name] = _mean([metrics[name] for _, _, metrics in valid if name in metrics])
        values["valid"] = _mean([float(count) for _, count, _ in self.results])
        self.results = []
        return values


def _json(value: float) -> float | None:
    """``value``, or None where JSON has no number for it; :func:`_mean` passes over both alike."""
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _mean(values: list[float]) -> float:
    finite = [v for v in values if math.isfinite(v)]
    return sum(finite) / len(finite) if finite else math.nan
