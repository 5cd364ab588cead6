"""In which numbers networks multiply."""

import torch


def has_bf16(device: str) -> bool:
    """Whether ``device`` ("cpu" or "cuda") multiplies bfloat16 in hardware; emulated, it is forty times slower than float32 on CPUs."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # AVX512-BF16, AMX-BF16 and the bf16 extension of Arm are what oneDNN multiplies bfloat16 with.
    return any(present for name, present in torch.cpu.get_capabilities().items() if "bf16" in name and isinstance(present, bool))


def multiplying(device: str, *, bf16: bool) -> torch.autocast:
    """Networks multiply in bfloat16 inside of it if that is wanted and ``device`` does so in hardware; else all is as it was."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=bf16 and has_bf16(device))
