"""RealmModel: the networks of one run in one directory that others can load.

``model.safetensors`` holds the weights, ``config.json`` the specification (:mod:`realm.models.spec`), ``tokenizer.json`` the wordpieces."""

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn

from realm.errors import ConfigError, RunError
from realm.models.bodies.body import Network, load_body
from realm.models.bodies.init import Undrawn
from realm.models.embedder import Embedder
from realm.models.encoder import KnowledgeAugmentedEncoder
from realm.models.hub import download, is_own, model_card
from realm.models.networks import build_network
from realm.models.published.models import CODE_KEYS, MODULES_FILE, Published, load_published, read_config
from realm.models.published.names import mask_head_name
from realm.models.reader import Reader, ReadingNetwork
from realm.models.runtime.weights import open_weights, tensors_sha256
from realm.models.spec import PARTS, EmbedderSpec, ModelSpec, NetworkSpec, ReaderSpec, read_spec, spec_to_json
from realm.models.tensor_files import open_weights as open_published, save_tensors
from realm.storage.files import write_atomic, write_json

RESTORE_CURE = "Restore the file."
LOADING_EXAMPLE = """```python
from realm import RealmModel
model = RealmModel.from_pretrained("this directory or hub name")
```"""


class RealmModel(nn.Module):
    """The networks of one run, of ``PARTS``; asking for a missing one raises RunError.

    >>> from realm.models.spec import BodySpec, one_body
    >>> body = BodySpec({"model_type": "bert", "vocab_size": 99, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2})
    >>> model = RealmModel(one_body(body, projection=8))
    >>> model.has("encoder"), model.has("reader")
    (True, False)

    ``embedder`` is the live one (the question embedder after fine-tuning), ``document_embedder`` the frozen fork of the index; before
    fine-tuning there is none, because one embedder then serves both sides."""

    def __init__(self, spec: ModelSpec, *, drawn: bool = True):
        """Build networks with random weights, or zeros if not ``drawn``, for weights that are loaded next."""
        super().__init__()
        with nullcontext() if drawn else Undrawn():
            for part, network in spec.networks.items():
                setattr(self, part, build_network(part, network, drawn=drawn))

    @property
    def spec(self) -> ModelSpec:
        """Specification of these networks."""
        found: dict[str, Any] = {part: network.spec for part, network in self._modules.items() if network is not None}
        return ModelSpec(**found)

    def has(self, part: str) -> bool:
        """True if the model has this network, of ``PARTS``."""
        return part in self._modules

    @property
    def embedder(self) -> Embedder:
        """The live embedder."""
        return self._part("embedder", Embedder)

    @property
    def document_embedder(self) -> Embedder:
        """The frozen embedder of the document side."""
        return self._part("document_embedder", Embedder)

    @property
    def encoder(self) -> KnowledgeAugmentedEncoder:
        """The encoder that fills masks in pre-training."""
        return self._part("encoder", KnowledgeAugmentedEncoder)

    @property
    def reader(self) -> Reader:
        """The reader that finds answers after fine-tuning."""
        return self._part("reader", Reader)

    def documents_sha256(self) -> str:
        """Identity of the document side's parameters."""
        return state_sha256(self.documents)

    def reading(self, *, bf16: bool) -> ReadingNetwork:
        """The reader as an answerer calls it; its weights do not change any more."""
        return ReadingNetwork(self.reader, bf16=bf16, rounded=True)

    @property
    def documents(self) -> Embedder:
        """The embedder of the document side: the frozen fork, or the one embedder of both sides."""
        return self.document_embedder if self.has("document_embedder") else self.embedder

    def _part(self, name: str, kind: type[Network]) -> Network:
        found = self._modules.get(name)
        if found is None:
            raise RunError(f"this model has no {name.replace('_', ' ')}")
        return cast(Network, found)

    def with_parts(self, **parts: nn.Module | None) -> "RealmModel":
        """Replace or remove (None) parts; the others are shared, not copied."""
        chosen = {name: parts.get(name, self._modules.get(name)) for name in PARTS}
        model = RealmModel(ModelSpec())
        for name, module in chosen.items():
            if module is not None:
                setattr(model, name, module)
        return model

    def only(self, *parts: str) -> "RealmModel":
        """Keep at most these networks; they are shared, not copied."""
        return self.with_parts(**dict.fromkeys(set(PARTS) - set(parts)))

    def fork_document_embedder(self) -> "RealmModel":
        """The model at the start of fine-tuning: its document embedder, or else a copy of the one embedder, is frozen."""
        frozen = self.document_embedder if self.has("document_embedder") else copy.deepcopy(self.embedder)
        return self.with_parts(document_embedder=frozen.requires_grad_(False))

    def with_reader(
        self, generator_seed: int, *, span_hidden: int, max_span: int, pointer: bool = False, marks: bool = False, titles: bool = False
    ) -> "RealmModel":
        """Turn the encoder into a reader: its body with a fresh span head, without the MLM head; flags as in ReaderSpec."""
        body = copy.deepcopy(self.encoder.body)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator_seed)
            reader = Reader(body, ReaderSpec(body.spec, span_hidden, max_span, pointer=pointer, marks=marks, titles=titles))
        return self.with_parts(encoder=None, reader=reader)

    def save_pretrained(self, directory: Path, *, tokenizer: Any = None, card: Mapping[str, Any] | None = MappingProxyType({})) -> None:
        """Write weights, configuration, tokenizer and model card into ``directory``.

        Args:
            tokenizer: anything with ``save(directory)``; None leaves it out.
            card: facts for the model card (corpus, steps, metrics); None leaves it out."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        save_tensors({k: v.detach().contiguous().cpu() for k, v in self.state_dict().items()}, directory / "model.safetensors")
        write_json(directory / "config.json", spec_to_json(self.spec))
        if card is not None:
            write_atomic(directory / "README.md", model_card(part_sizes(self), dict(card), load=LOADING_EXAMPLE))
        if tokenizer is not None:
            tokenizer.save(directory)

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None, token: str | bool | None = None) -> "RealmModel":
        """Load the files of :meth:`save_pretrained`, or a published model (google/realm-*, BERT), from a directory or the hub.

        Args:
            source: a directory, or a hub name.
            revision, token: of the hub, as in huggingface_hub.

        Raises:
            RunError: no such model, another format, weights that do not fit the configuration, or changed files; it names the file.
            DataError, ConfigError: as for :func:`realm.models.published.models.load_published`."""
        directory = Path(source)
        if not directory.is_dir():
            directory = download(str(source), revision=revision, token=token)
        return cls._from_own(directory) if is_own(directory) else cls.from_published(load_published(directory))

    @classmethod
    def from_published(cls, published: Published) -> "RealmModel":
        """Networks of a published model, in evaluation mode; missing tensors are the same in every import.

        Raises:
            DataError: a tensor has numbers that are not finite, or tied tensors differ."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = cls(published.spec)
        missing, unexpected = model.load_state_dict(published.tensors(), strict=False)
        if unexpected or set(missing) != set(published.fresh):  # the plan has compared names and shapes: this would be a fault of ours
            raise RuntimeError(f"plan and model differ: missing {missing}, unexpected {unexpected}")
        return model.eval()

    @classmethod
    def _from_own(cls, directory: Path) -> "RealmModel":
        config, weights = directory / "config.json", directory / "model.safetensors"
        spec = read_spec(config)
        try:
            model = cls(spec, drawn=False)
        except (ConfigError, KeyError) as error:
            problem = getattr(error, "problem", f"the body lacks {error}")
            raise RunError(f"the model's configuration does not fit: {problem}", path=config, cure=RESTORE_CURE) from error
        try:
            stored = open_weights(directory)
            missing, unexpected = model.load_state_dict(
                {name: torch.from_numpy(np.array(stored.array(name))) for name in stored.names()}, strict=False
            )
        except (OSError, SafetensorError, RuntimeError) as error:
            # torch names the first tensor that does not fit in the second line.
            problem = " ".join(str(error).splitlines()[:2])
            raise RunError(f"the weights cannot be read: {problem}", path=weights, cure=RESTORE_CURE) from error
        if missing or unexpected:
            raise RunError(f"missing tensors {missing[:3]}, unknown tensors {unexpected[:3]}", path=weights, cure=RESTORE_CURE)
        return model


INITIAL_UNIT_SCALE = 20.0  # initial scale of unit vectors; sentence embedders are trained at this inverse temperature


def start_from_body(spec: ModelSpec, directory: Path, *, dropout: float, attention_dropout: float) -> RealmModel:
    """Model with an embedder and an encoder that both start from published weights.

    A sentence embedder keeps its pooling and head, and gets a learned scale if its vectors have length 1. An encoder gets the published MLM
    head if the weights hold one. ``spec`` has all that the published directory does not state; the dropout rates are for training. Raises
    ConfigError, DataError: no such body, an unknown pooling or family, or damaged weights."""
    assert spec.embedder is not None and spec.encoder is not None
    first, second = _published_embedder(spec.embedder, directory), spec.encoder.body
    pooling, segments = first.body.pooling, first.body.segments
    rates = {"dropout": dropout, "attention_dropout": attention_dropout}
    body = load_body(directory, pooling=pooling, segments=segments, pooler=pooling == "pooler", **rates)
    embedder = Embedder(body, first)
    encoder = KnowledgeAugmentedEncoder(body.copied(pooling=second.pooling, segments=second.segments and _has_segments(directory)))
    file = open_published(directory)
    names = {ours: theirs for theirs in file.shapes if (ours := mask_head_name(theirs)) is not None}
    if set(names) == set(encoder.head.state_dict()):
        encoder.head.load_state_dict({ours: file.read(theirs) for ours, theirs in names.items()})
    return RealmModel(ModelSpec()).with_parts(embedder=embedder, encoder=encoder)


def published_spec(spec: ModelSpec, directory: Path) -> ModelSpec:
    """Specification of :func:`start_from_body`, without reading weights."""
    config = {key: value for key, value in read_config(directory).items() if key not in CODE_KEYS}
    fed = _has_segments(directory)

    def known(network: NetworkSpec) -> NetworkSpec:
        if isinstance(network, EmbedderSpec):
            network = _published_embedder(network, directory)
        body = replace(network.body, config=config or network.body.config, segments=network.body.segments and fed)
        return replace(network, body=body)

    found: dict[str, Any] = {part: known(network) for part, network in spec.networks.items()}
    return ModelSpec(**found)


def _published_embedder(wanted: EmbedderSpec, directory: Path) -> EmbedderSpec:
    """Embedder of a sentence-transformers directory, completed from ``wanted``; of any other body, ``wanted`` itself."""
    found = load_published(directory).spec.embedder if (directory / MODULES_FILE).is_file() else None
    if found is None:
        return wanted
    scale = INITIAL_UNIT_SCALE if found.head == "unit" else None
    return replace(found, dropout=wanted.dropout, scale=scale, null_offset=wanted.null_offset)


def _has_segments(directory: Path) -> bool:
    """True for bodies with a second segment embedding: BERTs, but not XLM-Rs and ModernBERTs."""
    values = read_config(directory)
    return int(values.get("type_vocab_size", 2 if values.get("model_type") == "bert" else 0)) > 1


def part_sizes(model: RealmModel) -> dict[str, int]:
    """Parameters of each part."""
    return {name: sum(p.numel() for p in getattr(model, name).parameters()) for name in model.spec.parts}


def state_sha256(module: nn.Module) -> str:
    """Identity of a module's parameters and buffers, as ``tensors_sha256`` has it."""
    tensors = ((name, value.detach().cpu().contiguous()) for name, value in sorted(module.state_dict().items()))
    return tensors_sha256((name, str(v.dtype), tuple(v.shape), v.reshape(-1).view(torch.uint8).numpy()) for name, v in tensors)
