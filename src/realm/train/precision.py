"""Where bfloat16 pays: only on hardware that multiplies it. Elsewhere it is emulated, on CPUs some forty times slower than float32."""

import torch


def has_bf16(device: str) -> bool:
    """Whether ``device`` ("cpu" or "cuda") multiplies bfloat16 in hardware."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # AVX512-BF16, AMX-BF16 and the bf16 extension of Arm are what oneDNN multiplies bfloat16 with.
    return any(present for name, present in torch.cpu.get_capabilities().items() if "bf16" in name and isinstance(present, bool))
