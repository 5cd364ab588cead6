"""Weights of a network from safetensors, mapped into memory: float32 as training wrote them, or int8 with a scale for each row."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import RunError

SCALE = ":scale"
"""After the name of an int8 matrix: the name of its scales, float32 [r, 1]."""
SHARED = "shared"
"""In a file's metadata: JSON of tensors that stand under another name."""
AGAIN = "Fetch or train the model again."


class SafetensorWeights:
    """Tensors of one network in a safetensors file.

    Args:
        path: the file.
        prefix: what stands before each of the network's names.

    Raises:
        RunError: the file is damaged.
    """

    def __init__(self, path: Path, prefix: str = ""):
        from safetensors import SafetensorError, safe_open

        self.path, self.prefix = path, prefix
        try:
            self._file: Any = safe_open(path, framework="numpy")
            self._names = frozenset(self._file.keys())
        except (OSError, SafetensorError) as error:
            raise RunError(f"the weights cannot be read: {str(error).splitlines()[0]}", path=path, cure=AGAIN) from error

    @cached_property
    def _shared(self) -> dict[str, str]:
        import json

        found: dict[str, str] = json.loads((self._file.metadata() or {}).get(SHARED, "{}"))
        return found

    def _stored(self, name: str) -> str:
        """Return the name in the file. Raises RunError: there is no such tensor."""
        whole = self.prefix + name
        whole = self._shared.get(whole, whole)
        if whole not in self._names:
            raise RunError(f"the tensor {whole} is missing", path=self.path, cure=AGAIN)
        return whole

    def has(self, name: str) -> bool:
        """Return whether the network has a tensor of this name."""
        whole = self.prefix + name
        return self._shared.get(whole, whole) in self._names

    def below(self, prefix: str) -> "SafetensorWeights":
        """Return the tensors of a part of the network."""
        part = object.__new__(SafetensorWeights)
        part.__dict__.update(self.__dict__, prefix=self.prefix + prefix)
        return part

    def array(self, name: str) -> np.ndarray:
        """Return a tensor in float32."""
        stored = self._stored(name)
        values: np.ndarray = self._file.get_tensor(stored)
        return values * self._file.get_tensor(stored + SCALE) if values.dtype == np.int8 else values.astype(np.float32, copy=False)

    def rounded(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a matrix [r, c] as int8 and float32 scales [r]; one that is stored in float32 is rounded now."""
        stored = self._stored(name)
        values: np.ndarray = self._file.get_tensor(stored)
        return (values, self._file.get_tensor(stored + SCALE)[:, 0]) if values.dtype == np.int8 else rounded(values)

    def rows(self, name: str, ids: np.ndarray) -> np.ndarray:
        """Return some rows of a matrix in float32."""
        table, scales = self._tables(self._stored(name))
        return table[ids].astype(np.float32) if scales is None else table[ids] * scales[ids]

    def _tables(self, stored: str) -> tuple[np.ndarray, np.ndarray | None]:
        kept = self.__dict__.setdefault("_kept", {})
        if stored not in kept:
            table = self._file.get_tensor(stored)
            kept[stored] = table, self._file.get_tensor(stored + SCALE) if table.dtype == np.int8 else None
        found: tuple[np.ndarray, np.ndarray | None] = kept[stored]
        return found


def rounded(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix [r, c] as int8 and the float32 scale of each row, [r]."""
    scales = np.maximum(np.abs(values).max(1), np.finfo(np.float32).tiny) / 127
    return np.clip(np.rint(values / scales[:, None]), -127, 127).astype(np.int8), scales.astype(np.float32)
