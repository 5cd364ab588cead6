"""Keys and log-probabilities of a language or translation model of transformers, where tokens are wanted.

A key is the state at one module, tapped by a hook: by default the input of the last feed-forward block (Khandelwal et al. 2020)."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from realm.errors import ConfigError, said
from realm.models.bodies.body import at_least_float32, refuse_kernels
from realm.models.model import state_sha256

FEED_FORWARD = ("mlp", "fc1", "DenseReluDense", "ffn", "feed_forward", "intermediate", "ff", "moe", "block_sparse_moe")
"""Names of the block: GPT-2, Llama, GPT-NeoX (mlp); BART, Marian, OPT (fc1); T5; XLM, DistilBERT (ffn); BERT (intermediate)."""
SHOWN = 12


@dataclass(frozen=True)
class Window:
    """One input of a model, int32: ``ids`` [t], ``places`` [r], ascending, of the keys, ``targets`` [r], the token wanted at each.

    ``source`` [s]: input of the encoder of an encoder-decoder model; empty for others."""

    ids: np.ndarray
    places: np.ndarray
    targets: np.ndarray
    source: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))


@dataclass(frozen=True)
class Layer:
    """A module whose input is the key, by its path."""

    name: str
    module: nn.Module


def find_layer(model: nn.Module, name: str = "", *, decoder: bool = False) -> Layer:
    """The module ``name`` whose state is the key; empty: the last feed-forward block, of the ``decoder``. Raises ConfigError: none."""
    modules = dict(model.named_modules())
    found = []
    for place, path in enumerate(modules):
        parts = path.split(".")
        numbers = tuple(int(part) for part in parts if re.fullmatch(r"[0-9]+", part))
        if numbers and parts[-1] in FEED_FORWARD and (not decoder or "decoder" in parts):
            found.append((numbers, -place, path))
    blocks = [path for _, _, path in sorted(found)]
    name = name or (blocks or [""])[-1]
    if not name or name not in modules:
        known = blocks or [path for path, module in modules.items() if path and not list(module.children())]
        problem = f"no layer '{name}'" if name else "no feed-forward block that this version knows by name"
        raise ConfigError(f"the model has {problem}", cure=f"Name one of its modules, e.g. {', '.join(known[-SHOWN:])}")
    return Layer(name, modules[name])


class KeyTap:
    """Tap of the newest state at a layer while it is open; None before."""

    def __init__(self, layer: Layer):
        self.layer = layer
        self.state: Tensor | None = None
        self._handle: Any = None

    def __enter__(self) -> Self:
        self._handle = self.layer.module.register_forward_pre_hook(self._keep, with_kwargs=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()
        self.state = None

    def states(self, rows: int) -> Tensor:
        """The newest state as [rows, t, h]. Raises ConfigError: it did not run, has no state of every token, or other rows."""
        state = self.state
        if state is None or state.ndim < 2 or not state.is_floating_point() or state.numel() % max(1, rows * state.shape[-1]):
            found = "it does not run" if state is None else f"it takes {state.dtype} {list(state.shape)}"
            raise ConfigError(f"the layer '{self.layer.name}' gives no state of every token: {found}", cure="Name another layer.")
        if state.ndim > 2 and len(state) != rows:
            problem = f"the model ran on {len(state)} rows where {rows} are asked for"
            raise ConfigError(problem, cure="Use greedy search, beams or sampling, which call the model once a step.")
        return state.reshape(rows, -1, state.shape[-1])

    def _keep(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.state = next((value.detach() for value in (*args, *named.values()) if isinstance(value, torch.Tensor)), None)


Kind = Literal["causal", "translation"]


@dataclass(frozen=True)
class States:
    """Keys float32 [r,d] where tokens are wanted, window after window, and log_probs [r,v] in float32 or wider, None if not asked for."""

    keys: Tensor
    log_probs: Tensor | None


class Network(ABC):
    """A model with a layer whose states are keys. The parameters of ``module`` are its identity; ``probe`` is any window, which shows d."""

    kind: Kind
    name: str
    layer: Layer
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
    def decoder_start(self) -> int:
        """First token of a decoder. Raises ConfigError: the model's configuration does not name one."""
        start: int | None = getattr(self.model.config, "decoder_start_token_id", None)
        if start is None and (start := getattr(self.model.config, "bos_token_id", None)) is None:
            raise ConfigError("the model's configuration has no decoder_start_token_id", cure="Set it in its config.json.")
        return start

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
        runs: nn.Module = self.model if log_probs else self.model.base_model  # keys need no projection to the vocabulary
        with KeyTap(self.layer) as tap:
            output = runs(**inputs, use_cache=False)
            states = tap.states(len(windows))
        row = np.repeat(np.arange(len(windows)), [len(window.places) for window in windows])
        at = torch.from_numpy(row).to(states.device), torch.from_numpy(np.concatenate([w.places for w in windows])).to(states.device).long()
        logits = at_least_float32(output.logits[at]) if log_probs else None
        return States(states[at].float(), None if logits is None else torch.log_softmax(logits, -1))

    def _inputs(self, windows: Sequence[Window]) -> dict[str, Tensor]:
        ids, mask = self.padded([window.ids for window in windows])
        if self.kind == "causal":
            return {"input_ids": ids, "attention_mask": mask}
        sources, source_mask = self.padded([window.source for window in windows])
        return {"input_ids": sources, "attention_mask": source_mask, "decoder_input_ids": ids, "decoder_attention_mask": mask}

    def padded(self, rows: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        """Token ids and attention mask, int64 [m,t] each, of m rows; padding on the right changes no state before it."""
        lengths = torch.tensor([len(row) for row in rows])
        ids = pad_sequence([torch.from_numpy(np.array(row, np.int64)) for row in rows], batch_first=True)
        return ids.to(self.device), (torch.arange(ids.shape[1]) < lengths[:, None]).long().to(self.device)


def load_network(source: str | Path, *, layer: str = "", device: str = "cpu") -> HubNetwork:
    """A model of transformers with tokenizer, safetensors only, no remote code. Raises ConfigError: none there, or no such layer."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    try:
        config = AutoConfig.from_pretrained(str(source), trust_remote_code=False)
        refuse_kernels(config)
        family = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        disable_progress_bar()  # standard error is for one line of what is wrong
        model = family.from_pretrained(str(source), use_safetensors=True, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(str(source), trust_remote_code=False)
    except Exception as error:  # transformers raises whatever a strange file makes its parts raise
        cure = "Give a directory with config.json, model.safetensors and a tokenizer, or a hub name while online."
        raise ConfigError(f"no language or translation model can be loaded from '{source}': {said(error)}", cure=cure) from error
    return HubNetwork(model.to(torch.device(device)), tokenizer, layer=layer, name=str(source))
