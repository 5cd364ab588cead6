"""A model's weights in 8 bits: each matrix as int8 with a float32 scale for each row, equal matrices once, all else in float32.

``models/runtime/weights.py`` reads them.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from realm.models.runtime.weights import SCALE, SHARED
from realm.models.tensor_files import save_tensors


def rounded(values: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise a matrix [r, c] to int8 [r, c] and scales float32 [r, 1]."""
    scale = values.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
    return (values / scale).round().clamp(-127, 127).to(torch.int8), scale


def write_rounded(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a model's state with its matrices in 8 bits; of equal matrices only the first is stored."""
    stored, shared = dict[str, Tensor](), dict[str, str]()
    for name, value in state.items():
        value = value.detach().cpu().float().contiguous()
        if value.dim() != 2:
            stored[name] = value
        elif (earlier := _equal(value, state, name)) is not None:
            shared[name] = earlier
        else:
            stored[name], stored[name + SCALE] = rounded(value)
    # One entry: safetensors writes several in an order that changes from time to time.
    save_tensors(stored, path, metadata={SHARED: json.dumps(shared)})


def _equal(value: Tensor, state: Mapping[str, Tensor], name: str) -> str | None:
    """The first name before ``name`` of an equal tensor."""
    for earlier, other in state.items():
        if earlier == name:
            return None
        if other.shape == value.shape and torch.equal(other.detach().cpu().float(), value):
            return earlier
    return None
