"""Means over the steps since the last log row, and the alarms that need more than one step."""

import math
from pathlib import Path
from typing import Any

from realm.errors import TrainingError
from realm.storage.files import write_json
from realm.train.distributed import is_first
from realm.train.stepping import Outcome
from realm.train.task import LoopOptions, Metrics, Task


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
        """The means over the window, which starts anew. Raises TrainingError: several windows in a row had no valid example."""
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
