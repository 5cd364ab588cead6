"""Networks stored as what training changed in a published body: a third of the bytes, or less.

``difference.safetensors`` beside a ``config.json`` holds, by the names of a :class:`realm.models.model.RealmModel`,

- nothing for a tensor that is the body's own, as its word table is where that is frozen;
- for a changed matrix whole numbers of 8 bits (int8) or of 4 (uint8, two in a byte, the first in the lower half), each times its row's
  ``NAME:scale``, to be added to the body's matrix;
- any other tensor as it is: vectors, and what the body does not have, in float32.

Its metadata, one JSON object, names the body and the SHA-256 of the weights it counts from.
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

SCALE = ":scale"
MODEL = ".body.model."
"""What stands in a tensor's name between a network's and the body's own."""
FACTS = "difference"
AGAIN = "Install realm-qa again."


def rounded(values: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """A matrix [r, c] as whole numbers of a scale for each row.

    Args:
        bits: 8 or 4. c is even for 4.

    Returns:
        int8 [r, c] or uint8 [r, c / 2], and float32 [r, 1].
    """
    most = 2 ** (bits - 1) - 1
    scale = values.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / most
    whole = (values / scale).round().clamp(-most, most).to(torch.int8)
    return (whole if bits == 8 else _packed(whole)), scale


def restored(whole: Tensor, scale: Tensor) -> Tensor:
    """The float32 matrix [r, c] that :func:`rounded` turned into integers."""
    return (whole if whole.dtype == torch.int8 else _unpacked(whole)).float() * scale


def write_difference(state: Mapping[str, Tensor], base: str, out: Path, bits: Mapping[str, int]) -> None:
    """Write networks as what they differ by from a published body.

    Args:
        state: of a RealmModel.
        base: a known body, on this machine.
        out: a directory.
        bits: 8 or 4, for the changed matrices of each network.

    Raises:
        ConfigError: the body is not here, or is not the published one.
    """
    directory = body_directory(base)
    published, stored = open_weights(directory), dict[str, Tensor]()
    for name, value in state.items():
        network, _, own = name.partition(MODEL)
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
    save_tensors(stored, out / DIFFERENCE, metadata={FACTS: facts})


def read_difference(directory: Path, names: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """The tensors of networks that :func:`write_difference` wrote.

    Args:
        names: what the networks are made of, with shapes.

    Raises:
        ConfigError: the body is not on this machine, or has other weights.
        RunError: the file is damaged.
    """
    path = directory / DIFFERENCE
    try:
        with safe_open(path, framework="pt") as file:
            facts = json_value((file.metadata() or {})[FACTS])
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise RunError(f"the weights cannot be read: {' '.join(str(error).splitlines()[:1])}", path=path, cure=AGAIN) from error
    base = body_directory(facts["base"])
    check_digest(base / WEIGHTS, facts["sha256"])
    published, found = open_weights(base), dict[str, Tensor]()
    for name, shape in names.items():
        own, value = name.partition(MODEL)[2], stored.get(name)
        if value is not None and value.is_floating_point():
            found[name] = value
        elif own in published.shapes and published.shapes[own] == tuple(shape):
            if value is not None and name + SCALE not in stored:
                raise RunError(f"the tensor {name} has no scale", path=path, cure=AGAIN)
            start = published.read(own).float()
            found[name] = start if value is None else start + restored(value, stored[name + SCALE])
    return found


def _packed(whole: Tensor) -> Tensor:
    """Numbers from -7 to 7, int8 [r, c], as two in a byte, uint8 [r, c / 2]."""
    low, high = (whole[:, ::2] + 8).to(torch.uint8), (whole[:, 1::2] + 8).to(torch.uint8)
    return low | (high << 4)


def _unpacked(packed: Tensor) -> Tensor:
    """What :func:`_packed` packed."""
    pairs = torch.stack([packed & 15, packed >> 4], 2).flatten(1)
    return pairs.to(torch.int8) - 8
