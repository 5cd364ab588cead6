"""In which numbers networks multiply."""

import copy
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def has_bf16(device: str) -> bool:
    """Whether ``device`` ("cpu" or "cuda") multiplies bfloat16 in hardware; emulated, it is forty times slower than float32 on CPUs."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # AVX512-BF16, AMX-BF16 and the bf16 extension of Arm are what oneDNN multiplies bfloat16 with.
    return any(present for name, present in torch.cpu.get_capabilities().items() if "bf16" in name and isinstance(present, bool))


def multiplying(device: str, *, bf16: bool) -> torch.autocast:
    """Networks multiply in bfloat16 inside of it if that is wanted and ``device`` does so in hardware; else all is as it was."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=bf16 and has_bf16(device))


def rounded_once(network: Network, device: str) -> Network:
    """A network for use inside ``multiplying(device, bf16=True)`` only, whose linear layers hold their weights in bfloat16.

    They would be rounded anew at every call. What comes out is the same, bit for bit; all other weights are shared with ``network``, which
    stays as it is, and is returned where ``device`` does not multiply so.
    """
    if not has_bf16(device):
        return network
    kept = {id(parameter): parameter for parameter in network.parameters()}
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            for parameter in layer.parameters():
                kept[id(parameter)] = nn.Parameter(parameter.detach().to(torch.bfloat16), requires_grad=False)
    return copy.deepcopy(network, kept)
