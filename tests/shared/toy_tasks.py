"""A task of the loop that learns in milliseconds, and the loop over any task."""

import torch
from torch import nn

from realm.models.model import state_sha256
from realm.storage.metrics import MetricsLog
from realm.training.loop.checkpoint import CheckpointDirectory
from realm.training.loop.loop import fit
from realm.training.loop.task import StepResult, Task
from realm.training.order import WHOLE


class Killed(BaseException):
    """Stands for a process that dies here."""


class Regression(Task):
    """Linear regression with dropout and noisy data that dies in step ``killed_at``: each random source must come back.

    Losses are not finite in ``broken`` steps; nothing is valid in ``empty`` ones and in a part of ``half``."""

    name = "toy"

    def __init__(self, killed_at=-1, broken=frozenset(), empty=frozenset(), half=frozenset(), ends=10**9):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.LayerNorm(8), nn.Linear(8, 1))
        self.killed_at, self.broken, self.empty, self.half, self.ends = killed_at, broken, empty, half, ends
        self.drawn = 0.0
        self.calls = []

    def step(self, step, share=WHOLE):
        if step == self.killed_at:
            raise Killed
        assert self.model.training
        x = torch.randn(5, 3)
        self.drawn += float(x.sum())
        loss = (self.model(x).squeeze(-1) - x.sum(-1)).pow(2)
        valid = torch.full((5,), step not in self.empty and (step not in self.half or share.index > 0))
        loss = torch.where(valid, loss, 0.0).sum() * (float("nan") if step in self.broken else 1.0)
        metrics = {"drawn": self.drawn, "mean": x.mean(), "odd": float(step % 2)}
        if step % 2:
            metrics["sometimes"] = loss.detach() / 2
        return StepResult(loss, valid.sum(), metrics, valid.sum())

    def between(self, step):
        self.calls.append(step)
        return {"checked": float(step)} if step and step % 5 == 0 else None

    def finished(self, step):
        return step >= self.ends

    def state(self):
        return {"drawn": self.drawn}

    def restore(self, state):
        self.drawn = state["drawn"]


def checkpoints_of(run, fingerprint="f"):
    return CheckpointDirectory(run / "checkpoints", fingerprint=fingerprint)


def train(task, run, options, fingerprint="f", report=lambda *row: None):
    """Steps made."""
    log = MetricsLog(run / "metrics.jsonl")
    return fit(task, options, log=log, checkpoints=checkpoints_of(run, fingerprint), report=report)


def rows(run):
    return [{k: v for k, v in row.items() if k != "time"} for row in MetricsLog(run / "metrics.jsonl").rows()]


def outcome(task, run):
    """Weights and log: what must not depend on who was killed when."""
    return state_sha256(task.model), rows(run)
