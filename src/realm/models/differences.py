"""Networks stored as their difference from a published body: a third of the bytes, or less.

``difference.safetensors`` holds, for a changed matrix, its difference in 8 bits (int8) or 4 bits (uint8, two in a byte, the first in the
lower half) times the row's ``NAME:scale``, nothing for an equal tensor, and others in float32; its metadata names the body and the SHA-256
of its weights.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from realm.errors import RunError
from realm.models.bodies.known import DIFFERENCE, WEIGHTS, body_directory, check_digest, file_digest
from realm.models.tensor_files import open_weights, save_tensors
from realm.storage.decoding import json_value

SCALE_SUFFIX = ":scale"
BODY_INFIX = ".body.model."  # between a network's name and the body's own name of a tensor
FACTS_KEY = "difference"
REINSTALL_CURE = "Install realm-qa again."


def rounded(values: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Quantise a matrix [r, c] to ``bits`` 8 or 4 (c even): int8 [r, c] or uint8 [r, c / 2], and scales float32 [r, 1]."""
    most = 2 ** (bits - 1) - 1
    scale = values.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / most
    whole = (values / scale).round().clamp(-most, most).to(torch.int8)
    return (whole if bits == 8 else _packed(whole)), scale


def restored(whole: Tensor, scale: Tensor) -> Tensor:
    """Float32 matrix [r, c] from the integers and scales of :func:`rounded`."""
    return (whole if whole.dtype == torch.int8 else _unpacked(whole)).float() * scale


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
            stored[name], stored[name + SCALE_SUFFIX] = rounded(value - start, bits[network])
        else:
            stored[name] = value
    # One entry: safetensors writes several in an order that changes from time to time.
    facts = json.dumps({"base": base, "sha256": file_digest(directory / WEIGHTS)})
    save_tensors(stored, out / DIFFERENCE, metadata={FACTS_KEY: facts})


def read_difference(directory: Path, names: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """Tensors written by :func:`write_difference`; ``names`` are the networks' tensors with their shapes.

    Raises ConfigError: the body is not on this machine, or has other weights. Raises RunError: the file is damaged.
    """
    path = directory / DIFFERENCE
    try:
        with safe_open(path, framework="pt") as file:
            facts = json_value((file.metadata() or {})[FACTS_KEY])
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise RunError(f"the weights cannot be read: {' '.join(str(error).splitlines()[:1])}", path=path, cure=REINSTALL_CURE) from error
    base = body_directory(facts["base"])
    check_digest(base / WEIGHTS, facts["sha256"])
    published, found = open_weights(base), dict[str, Tensor]()
    for name, shape in names.items():
        own, value = name.partition(BODY_INFIX)[2], stored.get(name)
        if value is not None and value.is_floating_point():
            found[name] = value
        elif own in published.shapes and published.shapes[own] == tuple(shape):
            if value is not None and name + SCALE_SUFFIX not in stored:
                raise RunError(f"the tensor {name} has no scale", path=path, cure=REINSTALL_CURE)
            start = published.read(own).float()
            found[name] = start if value is None else start + restored(value, stored[name + SCALE_SUFFIX])
    return found


def _packed(whole: Tensor) -> Tensor:
    """Pack integers from -7 to 7, int8 [r, c], into pairs, uint8 [r, c / 2]."""
    low, high = (whole[:, ::2] + 8).to(torch.uint8), (whole[:, 1::2] + 8).to(torch.uint8)
    return low | (high << 4)


def _unpacked(packed: Tensor) -> Tensor:
    pairs = torch.stack([packed & 15, packed >> 4], 2).flatten(1)
    return pairs.to(torch.int8) - 8
