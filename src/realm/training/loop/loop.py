"""The training loop shared by every stage: step, clip, finite check, checkpoint, metrics and their mirrors.

The random state is set from (seed, stage, step, share) before each part of a step, so a resumed run draws what the uninterrupted one drew.
All ranks run this loop; the first one writes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from realm.errors import TrainingError
from realm.models.model import state_sha256
from realm.storage.metrics import MetricsLog
from realm.training.loop.checkpoint import BestWeights, CheckpointDirectory
from realm.training.loop.distributed import exchange, is_first, on_first, world
from realm.training.loop.optim import OPTIMIZERS
from realm.training.loop.stepping import StepWindow, one_step as _one_step
from realm.training.loop.task import LoopOptions, Metrics, Task

Report = Callable[[str, int, int, Metrics], None]


@dataclass(frozen=True)
class _Stage:
    """One stage in training, and where its numbers and weights go."""

    task: Task
    options: LoopOptions
    optimizer: torch.optim.Optimizer
    window: StepWindow
    best: BestWeights
    log: MetricsLog
    checkpoints: CheckpointDirectory
    report: Report

    def tell(self, step: int, values: Metrics) -> None:
        if is_first():
            self.log.write(self.task.name, step, **values)
            self.report(self.task.name, step, self.options.steps, values)

    def between(self, step: int) -> None:
        """Run the task's work between steps; keep weights that are the best so far."""
        values = self.task.between(step)
        if not values or not is_first():
            return
        self.tell(step, values)
        if self.task.best_by in values:
            self.best.offer(step, values[self.task.best_by], self.task.model)

    def checkpoint(self, done: int) -> None:
        """Publish all that exact resume needs after ``done`` steps."""
        self.assert_ranks_equal(done)
        if is_first():
            rows = self.log.count(self.task.name)
            self.log.sync()
            extra = {"task": self.task.state(), "window": self.window.state(), "best": self.best.state, "rows": rows}
            self.checkpoints.save(done, self.task.model, self.optimizer, extra)
            self.best.prune([state.get("best") for state in self.checkpoints.states()])

    def assert_ranks_equal(self, step: int) -> None:
        """Compare the weights of all ranks. Raises TrainingError: they have diverged."""
        if world() > 1 and len(set(exchange(state_sha256(self.task.model)))) > 1:
            cure = "Start all ranks with the same version, data and kind of device."
            raise TrainingError(f"{self.task.name}: the ranks have diverged: their weights differ at step {step}", cure=cure)

    def resume(self) -> int:
        """Go back to the newest checkpoint. Returns its step, 0 without one."""
        restored = self.checkpoints.restore(self.task.model, self.optimizer)
        if restored is not None:
            self.task.restore(restored.extra["task"])
            self.window.restore(restored.extra["window"])
            self.best.state = restored.extra["best"]
        if is_first():
            self.log.rewind(self.task.name, 0 if restored is None else restored.extra["rows"])
        start = 0 if restored is None else restored.step
        self.assert_ranks_equal(start)
        return start


def fit(task: Task, options: LoopOptions, *, log: MetricsLog, checkpoints: CheckpointDirectory, report: Report) -> int:
    """Train ``task`` from its newest checkpoint, or from the start. Returns the number of finished steps.

    Raises TrainingError: nothing valid in a whole window, several non-finite steps in a row, or a silent rank."""
    optimizer = OPTIMIZERS[options.optimizer].build([task.model], lr=options.lr, rates=task.rates)
    window = StepWindow(task, options)
    stage = _Stage(task, options, optimizer, window, BestWeights(checkpoints.path), log, checkpoints, report)
    task.kept_states = lambda: [state["task"] for state in checkpoints.states() if "task" in state]
    step = stage.resume()
    while step < options.steps:
        stage.between(step)
        if on_first(partial(task.finished, step)):
            break
        window.add(step, _one_step(task, step, optimizer, options))
        step += 1
        if step % options.log_every == 0 or step == options.steps:
            stage.tell(step, window.close(optimizer.param_groups[0]["lr"]) | task.row(step, options.steps))
        if options.checkpoint_every and step % options.checkpoint_every == 0 and step < options.steps:
            stage.checkpoint(step)
    else:
        stage.between(step)
    if is_first():
        stage.best.prune([])
        log.sync()
    return step
