"""Weights of a network from safetensors, mapped into memory: float32 as training wrote them, or int8 with a scale for each row."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import RunError
from realm.models.bodies.known import WEIGHTS
from realm.storage.files import json_value
from realm.storage.layout import DAMAGED
from realm.storage.manifests import check_sealed

SCALE = ":scale"  # after the name of an int8 matrix: the name of its scales, float32 [r, 1]
SHARED = "shared"  # in a file's metadata: JSON of tensors that stand under another name
TYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I8": np.int8}  # of tables, by safetensors' names
AGAIN = "Fetch or train the model again."


class SafetensorWeights:
    """Tensors of one network in a safetensors file, whose names have a prefix. Raises RunError: the file is damaged."""

    def __init__(self, path: Path, prefix: str = ""):
        from safetensors import SafetensorError, safe_open

        self.path, self.prefix = path, prefix
        self._mapped: dict[str, np.ndarray] = {}
        try:
            self._file: Any = safe_open(path, framework="numpy")
            self._data = np.asarray(np.memmap(path, np.uint8, "r"))  # from now on, whatever becomes of the file
            self._names = frozenset(self._file.keys())
            self.eight_bit = any(name.endswith(SCALE) for name in self._names)
        except (OSError, SafetensorError) as error:
            raise RunError(f"the weights cannot be read: {str(error).splitlines()[0]}", path=path, cure=AGAIN) from error

    @cached_property
    def _shared(self) -> dict[str, str]:
        found: dict[str, str] = json_value((self._file.metadata() or {}).get(SHARED, "{}"))
        return found

    def names(self) -> list[str]:
        """Return the names of all tensors, those that stand under another name among them."""
        return [name for name in (*self._names, *self._shared) if not name.endswith(SCALE)]

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

    def sha256(self) -> str:
        """Return the identity of the network's parameters."""
        names = sorted(name.removeprefix(self.prefix) for name in self.names() if name.startswith(self.prefix))
        arrays = ((name, np.asarray(self.array(name), order="C")) for name in names)
        return tensors_sha256((name, f"torch.{values.dtype}", values.shape, values) for name, values in arrays)

    def array(self, name: str) -> np.ndarray:
        """Return a tensor in float32."""
        values = self.read(name)
        return values * self.read(name, SCALE) if values.dtype == np.int8 else values.astype(np.float32, copy=False)

    def rounded(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a matrix [r, c] as int8 and float32 scales [r]; one that is stored in float32 is rounded now."""
        values = self.read(name)
        return (values, self.read(name, SCALE)[:, 0]) if values.dtype == np.int8 else rounded(values)

    def rows(self, name: str, ids: np.ndarray) -> np.ndarray:
        """Return some rows of a matrix in float32."""
        table = self.read(name, mapped=True)
        return table[ids].astype(np.float32) if table.dtype != np.int8 else table[ids] * self.read(name, SCALE, mapped=True)[ids]

    def read(self, name: str, of: str = "", *, mapped: bool = False) -> np.ndarray:
        """Return a tensor as it is stored, or its scales; ``mapped``: where the file lies, of which only what is looked at is read."""
        stored = self._stored(name) + of
        if stored not in self._names:
            raise RunError(f"the tensor {stored.removesuffix(of)} has no scale", path=self.path, cure=AGAIN)
        if mapped and stored not in self._mapped:
            length = int.from_bytes(self._data[:8].tobytes(), "little")
            facts = json_value(self._data[8 : 8 + length].tobytes().decode())[stored]
            start, end = (8 + length + at for at in facts["data_offsets"])
            self._mapped[stored] = self._data[start:end].view(TYPES[facts["dtype"]]).reshape(facts["shape"])
        return np.asarray(self._mapped[stored] if mapped else self._file.get_tensor(stored))


def tensors_sha256(tensors: Iterable[tuple[str, str, tuple[int, ...], np.ndarray]]) -> str:
    """SHA-256 over name, type, shape and contiguous values of tensors in the order of their names: the identity of a network."""
    digest = hashlib.sha256()
    for name, kind, shape, values in tensors:
        digest.update(f"{name} {kind} {shape}\n".encode())
        digest.update(values.data)
    return digest.hexdigest()


def in_eight_bits(state: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return a state with its float32 matrices as int8 and scales, and its file's metadata; of equal matrices only the first is stored."""
    stored, shared, first = dict[str, np.ndarray](), dict[str, str](), dict[bytes, str]()
    for name, values in state.items():
        if values.ndim != 2:
            stored[name] = np.asarray(values, order="C")
            continue
        bits = (values + 0.0).tobytes()  # a zero has one sign
        earlier = first.setdefault(hashlib.sha256(f"{values.shape}".encode() + bits).digest(), name)
        if earlier != name:
            shared[name] = earlier
            continue
        stored[name], scales = rounded(values)
        stored[name + SCALE] = scales[:, None]
    # One entry: safetensors writes several in an order that changes from time to time.
    return stored, {SHARED: json.dumps(shared)}


def rounded(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix [r, c] as int8 and the float32 scale of each row, [r]."""
    scales = np.maximum(np.abs(values).max(1), np.finfo(np.float32).tiny) / 127
    return np.clip(np.rint(values / scales[:, None]), -127, 127).astype(np.int8), scales.astype(np.float32)


def open_weights(directory: Path) -> SafetensorWeights:
    """Open the weights of a RealmModel's directory. Raises RunError: the file is damaged, or another than was published here."""
    check_sealed(directory, DAMAGED, WEIGHTS)
    return SafetensorWeights(directory / WEIGHTS)
