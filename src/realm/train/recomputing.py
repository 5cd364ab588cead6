"""Gradient checkpointing: the layers of the bodies are computed again in the backward pass, and their activations are not kept."""

from typing import Any

from torch import nn


def recompute_layers(module: nn.Module) -> None:
    """Switch it on in every transformers model below ``module``. Gradients stay the same, dropout included; evaluation is untouched."""
    for part in module.modules():
        switch: Any = getattr(part, "gradient_checkpointing_enable", None)
        if switch is not None:
            switch(gradient_checkpointing_kwargs={"use_reentrant": False})
