"""AdamW with BERT's decay groups and a schedule that is a pure function of the step."""

from collections.abc import Iterable

import torch
from torch import nn

NO_DECAY = ("bias", "norm", "layernorm")


def schedule(step: int, *, steps: int, warmup: int) -> float:
    """The factor on the learning rate at ``step`` (from 0): linear warm-up, then linear decay to 0 at ``steps``."""
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))


def adamw(modules: Iterable[nn.Module], *, lr: float, weight_decay: float = 0.01) -> torch.optim.AdamW:
    """Fused AdamW (betas .9 and .999, eps 1e-6) over the trainable parameters; biases and LayerNorms do not decay, as in BERT."""
    decay: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for module in modules:
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                (plain if any(key in name.lower() for key in NO_DECAY) else decay).append(parameter)
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.999), eps=1e-6, fused=True)
