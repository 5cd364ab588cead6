"""One optimiser step: the parts of a batch one after the other, gradients summed over ranks, clipped, checked, and only then applied.

What is drawn in a part depends on the part alone: dropout is the same whether four parts are computed by one rank or by four. A window of
steps has their means, and raises the alarms that need more than one step.
"""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from realm.data.loader import Share, generator
from realm.errors import TrainingError
from realm.nn.precision import multiplying
from realm.storage.files import write_json
from realm.timing import charged
from realm.train.distributed import exchange, is_first, rank, sum_gradients, world
from realm.train.optim import learning_rate_factor
from realm.train.task import LoopOptions, Metrics, Task


@dataclass(frozen=True)
class Outcome:
    """What a step gave over all its parts and ranks: the mean loss, valid examples, mean metrics. ``skipped``: nothing was learnt."""

    loss: float
    valid: int
    metrics: Metrics = field(default_factory=dict)
    skipped: bool = False


def one_step(task: Task, step: int, optimizer: torch.optim.Optimizer, options: LoopOptions) -> Outcome:
    """One forward, backward and update. A step whose loss or gradient is not finite changes nothing and is counted."""
    task.model.train()
    begin, end = task.phase(step, options.steps)
    factor = learning_rate_factor(replace(options, steps=end - begin), step - begin)
    for group in optimizer.param_groups:
        group["lr"] = options.lr * factor * group.get("rate", 1.0)
    optimizer.zero_grad(set_to_none=True)
    parts = [_part(task, step, share, options) for share in own_shares(options.accumulate)]
    with charged("waiting"):
        everything = [part for parts_of_rank in exchange(parts) for part in parts_of_rank]
    outcome, weight = _combined(everything)
    if outcome.valid == 0:
        return outcome
    learnt = [p for p in task.model.parameters() if p.requires_grad]
    with charged("waiting"):
        sum_gradients(learnt)
    with charged("optimiser"):
        torch._foreach_div_([p.grad for p in learnt if p.grad is not None], weight)
        norm = float(nn.utils.clip_grad_norm_(learnt, options.clip))
        finite = math.isfinite(norm) and math.isfinite(outcome.loss)
        if finite:
            optimizer.step()
    metrics = {**outcome.metrics, "grad_norm": norm if finite else 0.0, "skipped": 0.0 if finite else 1.0}
    return Outcome(outcome.loss, outcome.valid, metrics, skipped=not finite)


def own_shares(accumulate: int) -> list[Share]:
    """The shares of a batch that this rank computes."""
    count = world() * accumulate
    return [Share(rank() * accumulate + part, count) for part in range(accumulate)]


def seed_share(seed: int, name: str, step: int, share: Share) -> None:
    """Set torch's random state to that of one share of one step. The whole batch as one share draws what it always drew."""
    key = ("step", step) if share.count == 1 else ("step", step, "share", share.index, share.count)
    torch.manual_seed(int(generator(seed, name, *key).integers(2**62)))


def _part(task: Task, step: int, share: Share, options: LoopOptions) -> dict[str, Any]:
    """Forward and backward of one share; its numbers as JSON. Its gradient is added to the others'."""
    seed_share(options.seed, task.name, step, share)
    with charged("forward"), multiplying(options.device, bf16=options.bf16):
        result = task.step(step, share)
    if result.valid:
        with charged("backward"):
            result.loss.backward()
    return {"loss": float(result.loss.detach()), "valid": result.valid, "weight": float(result.weight), "metrics": result.metrics}


def _combined(parts: list[dict[str, Any]]) -> tuple[Outcome, float]:
    """The outcome of all parts of a step, and their weight."""
    weight = sum(part["weight"] for part in parts)
    valid = [part for part in parts if part["valid"]]
    metrics: Metrics = {}
    for name in dict.fromkeys(name for part in valid for name in part["metrics"]):
        having = [part for part in valid if name in part["metrics"]]
        whole = sum(part["weight"] for part in having)
        metrics[name] = sum(part["metrics"][name] * (part["weight"] / whole) for part in having)
    loss = sum(part["loss"] for part in parts) / weight if weight else 0.0
    return Outcome(loss, sum(part["valid"] for part in parts), metrics), weight


class StepWindow:
    """Collects the outcomes of steps.

    Args:
        task: whose steps; asked for its examples when a run of them is given up.
        options: how many steps make a window, and how much patience there is.
        study: directory for the batches of steps that were not finite.
    """

    def __init__(self, task: Task, options: LoopOptions, study: Path):
        self.task = task
        self.options = options
        self.study = study
        self.results: list[tuple[float, int, Metrics]] = []
        self.empty_windows = 0
        self.skipped = 0

    def add(self, step: int, outcome: Outcome) -> None:
        """Take in the outcome of step ``step``.

        Raises:
            TrainingError: it is the last of several in a row that were not finite; their batches are written down first.
        """
        self.skipped = self.skipped + 1 if outcome.skipped else 0
        if self.skipped >= self.options.patience:
            raise self._given_up(range(step + 1 - self.skipped, step + 1))
        self.results.append((outcome.loss, outcome.valid, outcome.metrics))

    def state(self) -> dict[str, Any]:
        """Open results and alarm counts as JSON, so that a checkpoint between two log rows changes no mean and no alarm."""
        results = [[_json(loss), valid, {k: _json(v) for k, v in metrics.items()}] for loss, valid, metrics in self.results]
        return {"results": results, "empty_windows": self.empty_windows, "skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        self.results = [(_number(loss), valid, {k: _number(v) for k, v in metrics.items()}) for loss, valid, metrics in state["results"]]
        self.empty_windows, self.skipped = state["empty_windows"], state["skipped"]

    def close(self, lr: float) -> Metrics:
        """The means over the window, which starts again. Raises TrainingError: several windows in a row had no valid example."""
        valid = [r for r in self.results if r[1] > 0]
        self.empty_windows = 0 if valid else self.empty_windows + 1
        if self.empty_windows >= self.options.patience:
            cure = "Look at the answers or spans of the data: nothing in them can be learnt."
            steps = self.empty_windows * self.options.log_every
            raise TrainingError(f"{self.task.name}: no valid example in {steps} steps", cure=cure)
        names = sorted({name for _, _, metrics in valid for name in metrics})
        values: Metrics = {"loss": _mean([loss for loss, _, _ in valid]), "lr": lr}
        for name in names:
            values[name] = _mean([metrics[name] for _, _, metrics in valid if name in metrics])
        values["valid"] = _mean([float(count) for _, count, _ in self.results])
        self.results = []
        return values

    def _given_up(self, steps: range) -> TrainingError:
        """The error that says where the batches of these steps were written."""
        name = self.task.name
        path = self.study / f"{name}.json"
        if is_first():
            write_json(path, {"stage": name, "steps": [{"step": step, "examples": self.task.examples(step)} for step in steps]})
        cure = "Lower the learning rate, or look for damaged weights; the file says which examples the steps had."
        problem = f"{name}: {len(steps)} steps in a row had a loss or gradients that were not finite (the last: step {steps[-1]})"
        return TrainingError(problem, path=path, cure=cure)


def _json(value: float) -> float | None:
    """``value``, or None where JSON has no number for it; :func:`_mean` passes over both alike."""
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _mean(values: list[float]) -> float:
    finite = [v for v in values if math.isfinite(v)]
    return sum(finite) / len(finite) if finite else math.nan
