"""Files of tensors: safetensors whole or in shards, and ``pytorch_model.bin`` through torch's weights-only unpickler;
our own in 8 bits, which ``models/runtime/weights.py`` reads.

Others' files are opened without trusting them: names and shapes first, then one tensor at a time."""

import os
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from realm.errors import DataError
from realm.storage.files import json_value

Shape = tuple[int, ...]
FETCH_CURE = "Fetch the checkpoint again."
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")


class TensorFile(Protocol):
    """Tensors by name; ``path`` is for messages."""

    path: Path
    shapes: dict[str, Shape]

    def read(self, name: str) -> Tensor:
        """One whole tensor."""
        ...


def open_weights(directory: Path) -> TensorFile:
    """Open the weights of a model directory: safetensors first, then torch's. Nothing in them is executed.

    Raises DataError: no weights, or a file that is damaged, cut short, or of another kind than its name says."""
    for name in WEIGHT_FILES:
        opener: Callable[[Path], TensorFile] = Safetensors if name.endswith(".safetensors") else TorchFile
        if (directory / f"{name}.index.json").is_file():
            return Shards(directory / f"{name}.index.json", opener)
        if (directory / name).is_file():
            return opener(directory / name)
    cure = f"Name a directory that holds {' or '.join(WEIGHT_FILES)}."
    raise DataError("no weights of a published model here", path=directory, cure=cure)


class Safetensors:
    """One safetensors file; the library checks its header against its size."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._file: Any = safe_open(path, framework="pt")
            self.shapes: dict[str, Shape] = {name: tuple(self._file.get_slice(name).get_shape()) for name in self._file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError) as error:
            raise DataError(f"not a complete safetensors file ({_first_line(error)})", path=path, cure=FETCH_CURE) from error

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        return tensor


class TorchFile:
    """A file of ``torch.save``, read by torch's weights-only unpickler, which knows tensors and refuses every other global."""

    def __init__(self, path: Path):
        self.path = path
        state = self._load()
        if not isinstance(state, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()):
            raise DataError("it does not hold tensors by name", path=path, cure="Name a file that torch.save made of a state_dict.")
        for name, tensor in state.items():
            # A view can claim any size over a few bytes; what is stored must be there.
            if tensor.layout != torch.strided or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
                raise DataError(f"the tensor {name} claims more than the file holds", path=path, cure=FETCH_CURE)
        self._state: dict[str, Tensor] = state
        self.shapes: dict[str, Shape] = {name: tuple(tensor.shape) for name, tensor in state.items()}

    def read(self, name: str) -> Tensor:
        return self._state[name]

    def _load(self) -> Any:
        """Memory-map the file if its format allows it; formats before torch 1.6 are read whole."""
        try:
            # The one place of this package that reads a pickle: published weights are in it, and weights_only unpickles tensors alone.
            mapped = zipfile.is_zipfile(self.path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is wrong is said in one line, below
                return torch.load(self.path, map_location="cpu", weights_only=True, mmap=mapped)  # noqa: TID251
        except Exception as error:  # the unpickler raises many kinds for damaged and for hostile files
            problem = f"not a plain file of weights; no code in it was run ({_first_line(error)})"
            raise DataError(problem, path=self.path, cure="Convert it to safetensors where you trust it.") from error


class Shards:
    """Several files of tensors with their index."""

    def __init__(self, index: Path, opener: Callable[[Path], TensorFile]):
        self.path = index
        try:
            places = json_value(index.read_text("utf-8"))["weight_map"]
            if not all(isinstance(n, str) and isinstance(f, str) and Path(f).name == f for n, f in places.items()):
                raise ValueError("not a plain file name")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"no index of weights ({_first_line(error)})", path=index, cure=FETCH_CURE) from error
        files = {name: opener(index.parent / name) for name in sorted(set(places.values()))}
        self._places: dict[str, TensorFile] = {name: files[file] for name, file in places.items()}
        if lost := [name for name, file in self._places.items() if name not in file.shapes]:
            raise DataError(f"the tensor {lost[0]} is not in {places[lost[0]]}", path=index, cure=FETCH_CURE)
        self.shapes: dict[str, Shape] = {name: file.shapes[name] for name, file in self._places.items()}

    def read(self, name: str) -> Tensor:
        return self._places[name].read(name)


def save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write named tensors, contiguous and on the CPU, into one file. Raises OSError: the disk is full or refuses."""
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:160]
