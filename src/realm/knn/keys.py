"""Where keys come from: the state at one module of a transformer, found by name and tapped by a hook.

The default is the input of the last feed-forward block of the decoder (Khandelwal et al. 2020), whatever the family calls it.
"""

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from realm.errors import ConfigError

FEED_FORWARD = ("mlp", "fc1", "DenseReluDense", "ffn", "feed_forward", "intermediate", "ff", "moe", "block_sparse_moe")
"""What families call the block: GPT-2, Llama, GPT-NeoX (mlp); BART, Marian, OPT (fc1); T5; XLM, DistilBERT (ffn); BERT (intermediate)."""
OUTPUT = ":output"
SHOWN = 12


@dataclass(frozen=True)
class Layer:
    """A module whose input (or output) is the key. ``name`` is its path, with ":output" behind it for the output."""

    name: str
    module: nn.Module


def feed_forward_blocks(model: nn.Module, *, decoder: bool) -> list[str]:
    """Paths of the feed-forward blocks, first layer first; ``decoder``: only those of a decoder (of an encoder-decoder model)."""
    found = []
    for place, (path, _) in enumerate(model.named_modules()):
        parts = path.split(".")
        numbers = tuple(int(part) for part in parts if re.fullmatch(r"[0-9]+", part))
        if numbers and parts[-1] in FEED_FORWARD and (not decoder or "decoder" in parts):
            found.append((numbers, -place, path))
    return [path for _, _, path in sorted(found)]


def find_layer(model: nn.Module, name: str = "", *, decoder: bool = False) -> Layer:
    """The module whose state is the key.

    Args:
        name: a module's path: its input is the key; with ":output" behind it its output. Empty: the last feed-forward block.
        decoder: the model is an encoder-decoder one, whose decoder is meant.

    Raises:
        ConfigError: no such module; the message lists the feed-forward blocks.
    """
    blocks = feed_forward_blocks(model, decoder=decoder)
    if not name:
        if not blocks:
            known = ", ".join(path for path, module in model.named_modules() if path and not list(module.children()))
            cure = f"Name the layer whose input is the key, one of: {known[:400]}"
            raise ConfigError("the model has no feed-forward block that this version knows by name", cure=cure)
        name = blocks[-1]
    module = dict(model.named_modules()).get(name.removesuffix(OUTPUT))
    if module is None or name == OUTPUT:
        cure = f"Name one of its modules, e.g. the feed-forward blocks: {', '.join(blocks[-SHOWN:]) or 'none found'}"
        raise ConfigError(f"the model has no layer '{name}'", cure=cure)
    return Layer(name, module)


class KeyTap:
    """Keeps the newest state at a layer while it is open.

    Attributes:
        state: what came by last, as the model had it; None before.
    """

    def __init__(self, layer: Layer):
        self.layer = layer
        self.state: Tensor | None = None
        self._handle: Any = None

    def __enter__(self) -> "KeyTap":
        module = self.layer.module
        if self.layer.name.endswith(OUTPUT):
            self._handle = module.register_forward_hook(lambda module, args, output: self._keep(output))
        else:
            self._handle = module.register_forward_pre_hook(
                lambda module, args, named: self._keep((*args, *named.values())), with_kwargs=True
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()
        self.state = None

    def states(self, rows: int) -> Tensor:
        """The newest state as [rows, t, h]; families that flatten batch and time are unfolded.

        Raises:
            ConfigError: the layer did not run, what it takes is no state of every token, or it ran on other rows.
        """
        state = self.state
        if state is None or state.ndim < 2 or not state.is_floating_point() or state.numel() % max(1, rows * state.shape[-1]):
            found = "it does not run" if state is None else f"it takes {state.dtype} {list(state.shape)}"
            raise ConfigError(f"the layer '{self.layer.name}' gives no state of every token: {found}", cure="Name another layer.")
        if state.ndim > 2 and len(state) != rows:
            problem = f"the model ran on {len(state)} rows where {rows} are asked for"
            raise ConfigError(problem, cure="Use greedy search, beams or sampling, which call the model once a step.")
        return state.reshape(rows, -1, state.shape[-1])

    def _keep(self, values: Any) -> None:
        """The first tensor of what goes in or comes out."""
        values = values if isinstance(values, (tuple, list)) else [values]
        self.state = next((value.detach() for value in values if isinstance(value, torch.Tensor)), None)
