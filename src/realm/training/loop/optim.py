"""Optimisers with their schedules, pure functions of the step: AdamW as torch has it, and as BERT published it.

BERT's differs in the first thousands of steps: no correction of the moments for their start at zero, warm-up from exactly 0, and decay that
counts from step 0, so that the rate jumps down after the warm-up."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from realm.training.loop.task import ALIKE, Rates

NO_DECAY = ("bias", "norm", "layernorm", "log_scale", "null_offset")
BETAS, EPS = (0.9, 0.999), 1e-6


def schedule(step: int, *, steps: int, warmup: int) -> float:
    """The factor on the learning rate at ``step`` (from 0): linear warm-up, then linear decay to 0 at ``steps``."""
    return (step + 1) / warmup if step < warmup else max(0.0, (steps - step) / max(1, steps - warmup))


def bert_schedule(step: int, *, steps: int, warmup: int) -> float:
    """The published factor: step / warmup, then 1 - step / steps, which at the end of the warm-up is a jump down."""
    return step / warmup if step < warmup else max(0.0, 1 - step / max(1, steps))


def adamw(modules: Iterable[nn.Module], *, lr: float, weight_decay: float = 0.01, rates: Rates = ALIKE) -> torch.optim.Optimizer:
    """Fused AdamW (betas .9 and .999, eps 1e-6) over the trainable parameters; biases and LayerNorms do not decay, as in BERT."""
    return torch.optim.AdamW(parameter_groups(modules, weight_decay, rates), lr=lr, betas=BETAS, eps=EPS, fused=True)


def bert_adamw(modules: Iterable[nn.Module], *, lr: float, weight_decay: float = 0.01, rates: Rates = ALIKE) -> torch.optim.Optimizer:
    """:class:`BertAdamW` over the same groups of parameters."""
    return BertAdamW(parameter_groups(modules, weight_decay, rates), lr=lr)


def parameter_groups(modules: Iterable[nn.Module], weight_decay: float, rates: Rates = ALIKE) -> list[dict[str, Any]]:
    """Trainable parameters by rate and decay, unnamed ones first; ``rates``: factors by the first part of a parameter's name."""
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {(1.0, True): [], (1.0, False): []}
    for name, parameter in (named for module in modules for named in module.named_parameters()):
        if parameter.requires_grad:
            decays = not any(key in name.lower() for key in NO_DECAY)
            groups.setdefault((rates.get(name.split(".")[0], 1.0), decays), []).append(parameter)
    return [{"params": chosen, "weight_decay": weight_decay * decays, "rate": rate} for (rate, decays), chosen in groups.items()]


class BertAdamW(torch.optim.Optimizer):
    """AdamW as BERT published it (google-research/bert, optimization.py): no correction of the moments for their start at zero.

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w = w - lr (m / (sqrt(v) + eps) + decay w)

    ``found_inf``: a tensor of one number, or None; where it is not 0 a step changes nothing, as torch's fused optimisers have it."""

    found_inf: Tensor | None = None

    def __init__(self, params: Any, *, lr: float):
        super().__init__(params, {"lr": lr, "betas": BETAS, "eps": EPS, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. No closure is taken."""
        assert closure is None
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                mean, square = state["exp_avg"], state["exp_avg_sq"]
                before = None if self.found_inf is None else [value.clone() for value in (mean, square, parameter)]
                mean.mul_(b1).add_(parameter.grad, alpha=1 - b1)
                square.mul_(b2).addcmul_(parameter.grad, parameter.grad, value=1 - b2)
                update = mean / square.sqrt().add_(group["eps"])
                parameter.sub_(update.add_(parameter, alpha=group["weight_decay"]), alpha=group["lr"])
                if self.found_inf is not None and before is not None:
                    for value, old in zip((mean, square, parameter), before, strict=True):
                        value.copy_(torch.where(self.found_inf.bool(), old, value))


@dataclass(frozen=True)
class Optimisation:
    """An optimiser and the schedule that was published with it."""

    build: Callable[..., torch.optim.Optimizer]
    schedule: Callable[..., float]


OPTIMIZERS = {"adamw": Optimisation(adamw, schedule), "bert": Optimisation(bert_adamw, bert_schedule)}
