"""Networks stored as their difference from a published body: a third of the bytes, or less.

``difference.safetensors`` holds, for a changed matrix, its difference in 8 bits (int8) or 4 bits (uint8, two in a byte, the first in the
lower half) times the row's ``NAME:scale``, nothing for an equal tensor, and others in float32; its metadata names the body and the SHA-256
of its weights. ``runtime/weights.py`` reads them.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from realm.models.bodies.known import DIFFERENCE, WEIGHTS, body_directory, file_digest
from realm.models.runtime.weights import BODY_INFIX, FACTS_KEY, SCALE
from realm.models.tensor_files import open_weights, save_tensors


def rounded(values: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Quantise a matrix [r, c] to ``bits`` 8 or 4 (c even): int8 [r, c] or uint8 [r, c / 2], and scales float32 [r, 1]."""
    most = 2 ** (bits - 1) - 1
    scale = values.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / most
    whole = (values / scale).round().clamp(-most, most).to(torch.int8)
    return (whole if bits == 8 else _packed(whole)), scale


def write_difference(state: Mapping[str, Tensor], base: str, out: Path, bits: Mapping[str, int]) -> None:
    """Write a RealmModel's state as its difference from a known body, ``bits`` by network. Raises ConfigError: no such body."""
    directory = body_directory(base)
    published, stored = open_weights(directory), dict[str, Tensor]()
    for name, value in state.items():
        network, _, own = name.partition(BODY_INFIX)
        value = value.detach().cpu().float().contiguous()
        start = published.read(own).float() if published.shapes.get(own) == tuple(value.shape) else None
        if start is not None and torch.equal(start, value):
            continue
        if start is not None and value.dim() == 2:
            stored[name], stored[name + SCALE] = rounded(value - start, bits[network])
        else:
            stored[name] = value
    # One entry: safetensors writes several in an order that changes from time to time.
    facts = json.dumps({"base": base, "sha256": file_digest(directory / WEIGHTS)})
    save_tensors(stored, out / DIFFERENCE, metadata={FACTS_KEY: facts})


def _packed(whole: Tensor) -> Tensor:
    """Pack integers from -7 to 7, int8 [r, c], into pairs, uint8 [r, c / 2]."""
    low, high = (whole[:, ::2] + 8).to(torch.uint8), (whole[:, 1::2] + 8).to(torch.uint8)
    return low | (high << 4)
