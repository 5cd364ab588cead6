"""One optimiser step: the parts of a batch one after the other, gradients summed over ranks, clipped, checked, and only then applied.

What is drawn in a part depends on the part alone: dropout is the same whether four parts are computed by one rank or by four.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from realm.data.loader import Share, generator
from realm.train.distributed import exchange, rank, sum_gradients, world
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
    factor = learning_rate_factor(options, step)
    for group in optimizer.param_groups:
        group["lr"] = options.lr * factor * group.get("rate", 1.0)
    optimizer.zero_grad(set_to_none=True)
    parts = [_part(task, step, share, options) for share in own_shares(options.accumulate)]
    everything = [part for parts_of_rank in exchange(parts) for part in parts_of_rank]
    outcome, weight = _combined(everything)
    if outcome.valid == 0:
        return outcome
    learnt = [p for p in task.model.parameters() if p.requires_grad]
    sum_gradients(learnt)
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
    with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.bf16):
        result = task.step(step, share)
    if result.valid:
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
