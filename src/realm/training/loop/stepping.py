"""One optimiser step: the parts of a batch in turn, gradients summed over ranks, clipped, checked, then applied.

Draws depend on the part alone: dropout is the same for four parts on one rank or on four. Deferred steps read nothing back from the
accelerator:
results stay there as :class:`Pending`, and the window reads all of its steps in one transfer."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from realm.errors import TrainingError
from realm.models.bodies.body import multiplying
from realm.recipe.seeds import generator
from realm.training.loop.distributed import exchange, rank, sum_gradients, total, world
from realm.training.loop.optim import OPTIMIZERS
from realm.training.loop.task import LoopOptions, Metrics, Task
from realm.training.order import Share


@dataclass(frozen=True)
class Outcome:
    """Mean loss, valid examples and mean metrics of a step over all its parts and ranks. ``skipped``: nothing was learnt."""

    loss: float
    valid: int
    metrics: Metrics = field(default_factory=dict)
    skipped: bool = False


@dataclass(frozen=True)
class Pending:
    """A step's unread results on this rank: its parts, and the norm of the whole gradient."""

    parts: list[dict[str, Any]]
    norm: Tensor


def one_step(task: Task, step: int, optimizer: torch.optim.Optimizer, options: LoopOptions) -> Outcome | Pending:
    """One forward, backward and update. A step whose loss or gradient is not finite changes nothing and is counted."""
    task.model.train()
    begin, end = task.phase(step, options.steps)
    factor = OPTIMIZERS[options.optimizer].schedule(step - begin, steps=end - begin, warmup=options.warmup)
    for group in optimizer.param_groups:
        group["lr"] = options.lr * factor * group.get("rate", 1.0)
    optimizer.zero_grad(set_to_none=True)
    parts = [_part(task, step, share, options) for share in own_shares(options.accumulate)]
    learnt = [p for p in task.model.parameters() if p.requires_grad]
    if options.deferred:
        return Pending(parts, _update_unread(parts, learnt, optimizer, options.clip))
    outcome, weight = _combined(_of_all_ranks(as_numbers(parts)))
    if outcome.valid == 0:
        return outcome
    norm = float(_clipped(learnt, weight, options.clip))
    outcome = _judged(outcome, norm)
    if not outcome.skipped:
        optimizer.step()
    return outcome


def read(steps: list[Pending]) -> list[Outcome]:
    """The outcomes of steps that were deferred; every rank reads the same ones. All their numbers come in one transfer."""
    numbers = as_numbers([[pending.parts, pending.norm] for pending in steps])
    outcomes = []
    for parts, norm in numbers:
        outcome, _ = _combined(_of_all_ranks(parts))
        outcomes.append(_judged(outcome, norm) if outcome.valid else outcome)
    return outcomes


def as_numbers(values: Any) -> Any:
    """Lists and dicts with every tensor of one number in them replaced by the number, all read in one transfer from their device."""
    found: list[Tensor] = []

    def gathered(value: Any) -> Any:
        if isinstance(value, Tensor):
            found.append(value.detach())
            return len(found) - 1, Tensor
        if isinstance(value, dict):
            return {name: gathered(inner) for name, inner in value.items()}
        return [gathered(inner) for inner in value] if isinstance(value, list) else value

    def filled(value: Any) -> Any:
        if isinstance(value, tuple):
            return numbers[value[0]]
        if isinstance(value, dict):
            return {name: filled(inner) for name, inner in value.items()}
        return [filled(inner) for inner in value] if isinstance(value, list) else value

    places = gathered(values)
    numbers = torch.stack([value.double() for value in found]).tolist() if found else []
    return filled(places)


def _of_all_ranks(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [part for parts_of_rank in exchange(parts) for part in parts_of_rank]


def _clipped(learnt: list[nn.Parameter], weight: float | Tensor, clip: float) -> Tensor:
    """Sum the gradients over ranks, divide them by the step's weight and clip them. Returns the norm before that."""
    sum_gradients(learnt)
    if gradients := [p.grad for p in learnt if p.grad is not None]:
        torch._foreach_div_(gradients, weight)
    return nn.utils.clip_grad_norm_(learnt, clip)


def _update_unread(parts: list[dict[str, Any]], learnt: list[nn.Parameter], optimizer: torch.optim.Optimizer, clip: float) -> Tensor:
    """Clip and update without reading; the optimiser skips non-finite steps and those without a valid example. Returns the norm."""
    like: Tensor = parts[0]["loss"]
    loss, valid, weight = (
        total(torch.stack([torch.as_tensor(part[name], dtype=like.dtype, device=like.device).detach() for part in parts]).sum())
        for name in ("loss", "valid", "weight")
    )
    norm = _clipped(learnt, torch.where(weight > 0, weight, 1.0), clip)
    usable = torch.isfinite(norm) & torch.isfinite(loss) & (valid > 0)
    unscaling: Any = optimizer  # what torch.amp.GradScaler tells an optimiser by, too
    unscaling.found_inf = (~usable).to(torch.float32)
    optimizer.step()
    return norm


def _judged(outcome: Outcome, norm: float) -> Outcome:
    """The outcome with what the gradient's norm says of it."""
    finite = math.isfinite(norm) and math.isfinite(outcome.loss)
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
    """Forward and backward of one share; its numbers, read or not. Deferred, a loss without valid examples has a gradient of 0."""
    seed_share(options.seed, task.name, step, share)
    with multiplying(options.device, bf16=options.bf16):
        result = task.step(step, share)
    learns = result.loss.requires_grad if options.deferred else bool(result.valid)
    if learns:
        result.loss.backward()
    return {"loss": result.loss.detach(), "valid": result.valid, "weight": result.weight, "metrics": dict(result.metrics)}


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
    return Outcome(loss, int(sum(part["valid"] for part in parts)), metrics), weight


class StepWindow:
    """Outcomes of steps."""

    def __init__(self, task: Task, options: LoopOptions):
        self.task = task
        self.options = options
        self.results: list[tuple[float, int, Metrics]] = []
        self.unread: list[tuple[int, Pending]] = []
        self.empty_windows = 0
        self.skipped = 0

    def add(self, step: int, found: Outcome | Pending) -> None:
        """Take in what step ``step`` gave; raises as :meth:`settle` does, where it has been read."""
        if isinstance(found, Pending):
            self.unread.append((step, found))
        else:
            self._add(step, found)

    def settle(self) -> None:
        """Read the unread steps. Raises TrainingError: several in a row were not finite; their batches are written down first."""
        unread, self.unread = self.unread, []
        for (step, _), outcome in zip(unread, read([pending for _, pending in unread]), strict=True):
            self._add(step, outcome)

    def _add(self, step: int, outcome: Outcome) -> None:
        self.skipped = self.skipped + 1 if outcome.skipped else 0
        if self.skipped >= self.options.patience:
            raise self._given_up(range(step + 1 - self.skipped, step + 1))
        self.results.append((outcome.loss, outcome.valid, outcome.metrics))

    def state(self) -> dict[str, Any]:
        """Open results and alarm counts as JSON, so that a checkpoint between two log rows changes no mean and no alarm."""
        self.settle()
        results = [[_json(loss), valid, {k: _json(v) for k, v in metrics.items()}] for loss, valid, metrics in self.results]
        return {"results": results, "empty_windows": self.empty_windows, "skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        self.results = [(_number(loss), valid, {k: _number(v) for k, v in metrics.items()}) for loss, valid, metrics in state["results"]]
        self.empty_windows, self.skipped = state["empty_windows"], state["skipped"]

    def close(self, lr: float) -> Metrics:
        """Means over the window, which starts again. Raises TrainingError: windows without a valid example, or as :meth:`settle`."""
        self.settle()
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
        problem = f"{self.task.name}: {len(steps)} steps in a row had a loss or gradients that were not finite (the last: step {steps[-1]})"
        return TrainingError(problem, cure="Lower the learning rate, or look for damaged weights.")


def _json(value: float) -> float | None:
    """``value``, or None where JSON has no number for it; :func:`_mean` passes over both alike."""
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _mean(values: list[float]) -> float:
    finite = [v for v in values if math.isfinite(v)]
    return sum(finite) / len(finite) if finite else math.nan
