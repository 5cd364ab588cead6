"""Gradient checkpointing: the layers of the bodies are computed again in the backward pass, and their activations are not kept."""

from torch import nn


def recompute_layers(module: nn.Module) -> None:
    """Switch it on in every transformers model below ``module``. Gradients stay the same, dropout included; evaluation is untouched."""
    for part in module.modules():
        # The older of the two names is what the first releases of transformers 5 have.
        names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
        name = next((name for name in names if hasattr(part, name)), None)
        if name is not None:
            getattr(part, name)({"use_reentrant": False})
