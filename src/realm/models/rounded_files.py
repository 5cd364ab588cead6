"""A model's weights in 8 bits: each matrix as int8 with a float32 scale for each row, equal matrices once, all else in float32.

``models/runtime/weights.py`` reads them.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from realm.models.runtime.weights import SCALE, SHARED, rounded
from realm.models.tensor_files import save_tensors


def write_rounded(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a model's state with its matrices in 8 bits; of equal matrices only the first is stored."""
    stored, shared, first = dict[str, Tensor](), dict[str, str](), dict[bytes, str]()
    for name, value in state.items():
        value = value.detach().cpu().float().contiguous()
        if value.dim() != 2:
            stored[name] = value
            continue
        bits = (value + 0.0).numpy().tobytes()  # a zero has one sign
        earlier = first.setdefault(hashlib.sha256(f"{value.shape}".encode() + bits).digest(), name)
        if earlier != name:
            shared[name] = earlier
            continue
        whole, scales = rounded(value.numpy())
        stored[name], stored[name + SCALE] = torch.from_numpy(whole), torch.from_numpy(scales[:, None])
    # One entry: safetensors writes several in an order that changes from time to time.
    save_tensors(stored, path, metadata={SHARED: json.dumps(shared)})
