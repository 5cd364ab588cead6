"""RealmModel: the networks of one run in one directory that other people can load.

``model.safetensors`` holds the weights, ``config.json`` what to build, ``tokenizer.json`` the wordpieces, ``README.md`` the model card.
"""

import copy
import hashlib
import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from realm.errors import ConfigError, RunError
from realm.nn.bodies import Body, BodySpec, build_body, load_body
from realm.nn.embedder import Embedder
from realm.nn.encoder import KnowledgeAugmentedEncoder
from realm.nn.hub import download, is_own, model_card, upload
from realm.nn.reader import Reader
from realm.nn.saving import save_tensors
from realm.storage.files import write_atomic, write_json

FORMAT = 1
RESTORE = "Restore the file."
LOAD = """```python
from realm import RealmModel
model = RealmModel.from_pretrained("this directory or hub name")
```"""
PARTS = ("embedder", "document_embedder", "encoder", "reader")

Part = TypeVar("Part", bound=nn.Module)


@dataclass(frozen=True)
class ModelSpec:
    """What a RealmModel is made of.

    Args:
        body: body of all networks (embedder and encoder share sizes, never weights).
        projection: d.
        layer_norm_eps: of the projection.
        dropout: on the projected embedding.
        span_hidden, max_span: of the reader.
        span_layer_norm_eps: of the reader's span head.
        head: of the embedder: projection, none or unit.
        parts: which networks are there, of ``PARTS``.
    """

    body: BodySpec
    projection: int = 128
    layer_norm_eps: float = 1e-12
    dropout: float = 0.1
    span_hidden: int = 256
    max_span: int = 10
    span_layer_norm_eps: float = 1e-3
    head: str = "projection"
    parts: tuple[str, ...] = ("embedder", "encoder")


class RealmModel(nn.Module):
    """The networks of one run. ``has(part)`` says which of ``PARTS`` are there; asking for another raises.

    ``embedder`` is the live one (the question embedder after fine-tuning); ``document_embedder`` is the frozen fork that belongs to
    the index, absent before fine-tuning because one embedder then serves both sides.
    """

    def __init__(self, spec: ModelSpec):
        super().__init__()
        self.spec = spec
        for part in PARTS:
            if part in spec.parts:
                setattr(self, part, _build(spec, part))

    def has(self, part: str) -> bool:
        """Whether the model has this network, of ``PARTS``."""
        return part in self._modules

    @property
    def embedder(self) -> Embedder:
        """The live embedder.

        Raises:
            RunError: there is none; as for the other parts.
        """
        return self._part("embedder", Embedder)

    @property
    def document_embedder(self) -> Embedder:
        """The frozen embedder of the document side."""
        return self._part("document_embedder", Embedder)

    @property
    def encoder(self) -> KnowledgeAugmentedEncoder:
        """What fills masks in pre-training."""
        return self._part("encoder", KnowledgeAugmentedEncoder)

    @property
    def reader(self) -> Reader:
        """What finds answers after fine-tuning."""
        return self._part("reader", Reader)

    @property
    def documents(self) -> Embedder:
        """The embedder of the document side: the frozen fork, or the one embedder of both sides."""
        return self.document_embedder if self.has("document_embedder") else self.embedder

    def _part(self, name: str, kind: type[Part]) -> Part:
        found = self._modules.get(name)
        if found is None:
            raise RunError(f"this model has no {name.replace('_', ' ')}")
        return cast(Part, found)

    def with_parts(self, **parts: nn.Module | None) -> "RealmModel":
        """A model with some parts replaced or removed (None); the others are shared, not copied."""
        chosen = {name: parts.get(name, self._modules.get(name)) for name in PARTS}
        model = RealmModel(replace(self.spec, parts=()))
        for name, module in chosen.items():
            if module is not None:
                setattr(model, name, module)
        model.spec = replace(self.spec, parts=tuple(name for name in PARTS if model.has(name)))
        return model

    def only(self, *parts: str) -> "RealmModel":
        """The model with at most these of its networks; they are shared, not copied."""
        return self.with_parts(**dict.fromkeys(set(PARTS) - set(parts)))

    def fork_document_embedder(self) -> "RealmModel":
        """The model as fine-tuning starts: a frozen document embedder beside the live one for questions.

        It is the one that documents already have, or a copy of the one embedder.
        """
        frozen = self.document_embedder if self.has("document_embedder") else copy.deepcopy(self.embedder)
        return self.with_parts(document_embedder=frozen.requires_grad_(False))

    def with_reader(self, generator_seed: int) -> "RealmModel":
        """The encoder turned into a reader: its body with a fresh span head. The MLM head is dropped."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator_seed)
            reader = _reader(self.spec, copy.deepcopy(self.encoder.body))
        return self.with_parts(encoder=None, reader=reader)

    def save_pretrained(self, directory: Path, *, tokenizer: Any = None, card: dict[str, Any] | None = None) -> None:
        """Write weights, configuration, tokenizer and model card into ``directory``.

        Args:
            tokenizer: anything with ``save(directory)``; None leaves it out.
            card: facts for the model card (corpus, steps, metrics).
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        save_tensors({k: v.detach().contiguous().cpu() for k, v in self.state_dict().items()}, directory / "model.safetensors")
        write_json(directory / "config.json", {"format": FORMAT, "library": "realm", **asdict(self.spec)})
        write_atomic(directory / "README.md", model_card(part_sizes(self), card or {}, load=LOAD))
        if tokenizer is not None:
            tokenizer.save(directory)

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None, token: str | bool | None = None) -> "RealmModel":
        """Load what :meth:`save_pretrained` wrote, or a published model (google/realm-*, BERT), from a directory or from the hub.

        Args:
            source: a directory, or a hub name.
            revision, token: of the hub, as everywhere in huggingface_hub.

        Raises:
            RunError: no such model, another format, or weights that do not fit the configuration; the message names the file.
            DataError, ConfigError: as for :func:`realm.nn.published.models.load_published`.
        """
        directory = Path(source)
        if not directory.is_dir():
            directory = download(str(source), revision=revision, token=token)
        if not is_own(directory):
            from realm.nn.published.models import load_published

            return load_published(directory).model
        spec = read_spec(directory / "config.json")
        try:
            model = cls(spec)
        except (ConfigError, KeyError) as error:
            problem = getattr(error, "problem", f"the body lacks {error}")
            raise RunError(f"the model's configuration does not fit: {problem}", path=directory / "config.json", cure=RESTORE) from error
        weights = directory / "model.safetensors"
        try:
            state = load_file(weights)
            missing, unexpected = model.load_state_dict(state, strict=False)
        except (OSError, SafetensorError, RuntimeError) as error:
            # torch names the first tensor that does not fit in the second line.
            problem = " ".join(str(error).splitlines()[:2])
            raise RunError(f"the weights cannot be read: {problem}", path=weights, cure=RESTORE) from error
        if missing or unexpected:
            raise RunError(f"missing tensors {missing[:3]}, unknown tensors {unexpected[:3]}", path=weights, cure=RESTORE)
        return model

    def push_to_hub(
        self,
        repository: str,
        *,
        tokenizer: Any = None,
        card: dict[str, Any] | None = None,
        private: bool | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        commit_message: str = "Upload a REALM model",
    ) -> str:
        """Upload the directory of :meth:`save_pretrained` to the hub; returns the address of the commit.

        Args:
            repository: "owner/name"; made if it is not there.
            tokenizer, card: as for :meth:`save_pretrained`.
            private, revision, token, commit_message: as everywhere in huggingface_hub.

        Raises:
            RunError: the hub refuses or cannot be reached.
        """
        with tempfile.TemporaryDirectory() as scratch:
            self.save_pretrained(Path(scratch), tokenizer=tokenizer, card=card)
            return upload(Path(scratch), repository, private=private, revision=revision, token=token, commit_message=commit_message)


def _build(spec: ModelSpec, part: str) -> nn.Module:
    """One network with random weights. A document embedder is frozen wherever it comes from: it belongs to the index."""
    if part == "embedder":
        return embedder_around(spec, build_body(spec.body, pooler=True))
    if part == "document_embedder":
        return embedder_around(spec, build_body(spec.body, pooler=True)).requires_grad_(False)
    body = build_body(spec.body, pooler=False)
    return KnowledgeAugmentedEncoder(body) if part == "encoder" else _reader(spec, body)


def embedder_around(spec: ModelSpec, body: Body) -> Embedder:
    """An embedder with a fresh head, as the specification has it, around a body."""
    return Embedder(body, projection=spec.projection, layer_norm_eps=spec.layer_norm_eps, dropout=spec.dropout, head=spec.head)


def _reader(spec: ModelSpec, body: Body) -> Reader:
    return Reader(body, span_hidden=spec.span_hidden, max_span=spec.max_span, layer_norm_eps=spec.span_layer_norm_eps)


def start_from_body(spec: ModelSpec, source: str) -> RealmModel:
    """A model whose embedder and encoder both start from published weights (a BERT), with fresh heads."""
    embedder_body = load_body(source, pooling=spec.body.pooling, segments=spec.body.segments, pooler=spec.body.pooling == "pooler")
    encoder_body = load_body(source, pooling=spec.body.pooling, segments=spec.body.segments, pooler=False)
    whole = replace(spec, body=embedder_body.spec, parts=())
    embedder = embedder_around(spec, embedder_body)
    return RealmModel(whole).with_parts(embedder=embedder, encoder=KnowledgeAugmentedEncoder(encoder_body))


def read_spec(path: Path) -> ModelSpec:
    """The specification in a ``config.json``.

    Raises:
        RunError: no file, no JSON, another format, or a field that does not fit.
    """
    try:
        values = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RunError("no model here", path=path, cure="Name a directory that save_pretrained wrote.") from None
    except ValueError as error:
        raise RunError(f"not JSON: {error}", path=path) from error
    if not isinstance(values, dict):
        raise RunError("not a model's configuration", path=path)
    found = values.pop("format", None)
    values.pop("library", None)
    if found != FORMAT:
        raise RunError(f"model format {found} cannot be read by this version, which reads {FORMAT}", path=path)
    try:
        spec = ModelSpec(**{**values, "body": BodySpec(**values["body"]), "parts": tuple(values["parts"])})
        if unknown := [part for part in spec.parts if part not in PARTS]:
            raise TypeError(f"unknown parts {unknown}")
        return spec
    except (KeyError, TypeError) as error:
        raise RunError(f"the model's configuration does not fit: {error}", path=path) from error


def part_sizes(model: RealmModel) -> dict[str, int]:
    """Parameters of each part."""
    return {name: sum(p.numel() for p in getattr(model, name).parameters()) for name in model.spec.parts}


def state_sha256(module: nn.Module) -> str:
    """SHA-256 over names, dtypes, shapes and bytes of a module's tensors: the identity of its parameters."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        value = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
