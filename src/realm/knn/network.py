"""A language or translation model of transformers behind what kNN needs: keys and log-probabilities where tokens are wanted.

A key is the state at one module, found by name and tapped by a hook: by default the input of the decoder's last feed-forward block
(Khandelwal et al. 2020), whatever the family calls it.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from realm.errors import ConfigError
from realm.knn.windows import Window
from realm.nn.bodies import at_least_float32
from realm.nn.model import state_sha256

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


Kind = Literal["causal", "translation", "masked"]


@dataclass(frozen=True)
class States:
    """What a model says where tokens are wanted, window after window.

    keys: float32 [r,d]. log_probs: [r,v] in float32 or wider, None if not asked for.
    """

    keys: Tensor
    log_probs: Tensor | None


class Network(ABC):
    """A model with a layer whose states are keys.

    Attributes:
        name: where it came from: a directory, a hub name, a run.
        vocab_size: v, of its distributions.
        module: whose parameters make its identity.
        probe: any window: tells d.
    """

    kind: Kind
    name: str
    layer: Layer
    vocab_size: int
    module: nn.Module
    probe: Window

    @cached_property
    def dim(self) -> int:
        """d, of keys."""
        return int(self.read([self.probe], log_probs=False).keys.shape[1])

    @cached_property
    def sha256(self) -> str:
        return state_sha256(self.module)

    @property
    @abstractmethod
    def tokenizer_sha256(self) -> str: ...

    @abstractmethod
    def read(self, windows: Sequence[Window], *, log_probs: bool) -> States:
        """Keys of the wanted tokens of all windows, and if asked for the log-probabilities of the vocabulary there."""


class HubNetwork(Network):
    """A causal or encoder-decoder model of transformers. Puts the model into evaluation mode. Raises ConfigError: no such layer."""

    def __init__(self, model: Any, tokenizer: Any, *, layer: str = "", name: str = ""):
        self.model: Any = model.eval()
        self.module = self.model
        self.tokenizer: Any = tokenizer
        self.name = name or type(model).__name__
        self.kind = "translation" if model.config.is_encoder_decoder else "causal"
        self.layer = find_layer(model, layer, decoder=self.kind == "translation")
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        ids = np.zeros(2, np.int32)
        self.probe = Window(ids, np.arange(2), ids, ids if self.kind == "translation" else ids[:0])

    @cached_property
    def tokenizer_sha256(self) -> str:
        """The whole state of a fast tokenizer, else the vocabulary. Padding and truncation are left out: a call sets them."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            state: Any = sorted(self.tokenizer.get_vocab().items())
        else:
            state = json.loads(backend.to_str()) | {"padding": 0, "truncation": 0}
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode("utf-8")).hexdigest()

    @property
    def device(self) -> torch.device:
        return torch.device(next(self.model.parameters()).device)

    @property
    def longest(self) -> int | None:
        """Most tokens that the model reads at once; None if it has no limit."""
        sizes = [getattr(self.model.config, name, None) for name in ("max_position_embeddings", "n_positions")]
        return next((int(size) for size in sizes if size), None)

    @torch.inference_mode()
    def read(self, windows: Sequence[Window], *, log_probs: bool) -> States:
        inputs = self._inputs(windows)
        # Keys alone need no projection to the vocabulary.
        runs: nn.Module = self.model if log_probs else self.model.base_model
        with KeyTap(self.layer) as tap:
            output = runs(**inputs, use_cache=False)
            states = tap.states(len(windows))
        row = np.repeat(np.arange(len(windows)), [len(window.places) for window in windows])
        at = torch.from_numpy(row).to(states.device), torch.from_numpy(np.concatenate([w.places for w in windows])).to(states.device).long()
        logits = at_least_float32(output.logits[at]) if log_probs else None
        return States(states[at].float(), None if logits is None else torch.log_softmax(logits, -1))

    def _inputs(self, windows: Sequence[Window]) -> dict[str, Tensor]:
        """Padded on the right, where padding changes no state before it."""
        ids, mask = self.padded([window.ids for window in windows])
        if self.kind == "causal":
            return {"input_ids": ids, "attention_mask": mask}
        sources, source_mask = self.padded([window.source for window in windows])
        return {"input_ids": sources, "attention_mask": source_mask, "decoder_input_ids": ids, "decoder_attention_mask": mask}

    def padded(self, rows: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        """Token ids and attention mask, int64 [m,t] each, of m rows of any lengths, padded on the right."""
        lengths = torch.tensor([len(row) for row in rows])
        ids = pad_sequence([torch.from_numpy(np.array(row, np.int64)) for row in rows], batch_first=True)
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        return ids.to(self.device), mask.to(self.device)


def load_network(source: str | Path, *, tokenizer: str = "", layer: str = "", device: str = "cpu", seed: int = 0) -> HubNetwork:
    """A model of transformers with its tokenizer. Only safetensors are read, and no remote code runs.

    Args:
        source: a directory or hub name; or a config.json, for random weights from ``seed``.

    Raises:
        ConfigError: no model or no tokenizer there, or no such layer.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    path = Path(source)
    try:
        config = AutoConfig.from_pretrained(str(source))
        family = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        if path.is_file():
            torch.manual_seed(seed)
            model = family.from_config(config)
        else:
            with _no_bars():
                model = family.from_pretrained(str(source), use_safetensors=True)
        reader = AutoTokenizer.from_pretrained(tokenizer or str(path.parent if path.is_file() else source))
    except (OSError, ValueError, KeyError, ImportError, RecursionError) as error:
        cure = "Give a directory with config.json, model.safetensors and a tokenizer, a config.json, or a hub name while online."
        problem = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"no language or translation model can be loaded from '{source}': {problem}", cure=cure) from error
    return HubNetwork(model.to(torch.device(device)), reader, layer=layer, name=str(source))


@contextmanager
def _no_bars() -> Iterator[None]:
    """transformers draws bars on standard error, where one line says what was wrong."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
