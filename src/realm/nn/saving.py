"""Tensors written as safetensors, with what the disk refuses said as the operating system says it."""

import os
import re
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write named tensors, contiguous and on the CPU, into one file.

    Raises:
        OSError: the disk is full or refuses; safetensors raises an error of its own for that.
    """
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error
