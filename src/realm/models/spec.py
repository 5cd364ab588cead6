"""Specifications of the networks of a RealmModel, one each, as ``config.json`` keeps them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from realm.errors import RunError, made_earlier
from realm.recipe.values import MAX_LAYERS, MAX_WIDTH
from realm.storage.layout import DAMAGED
from realm.storage.manifests import Errors, check_sealed, read_object

SPEC_FORMAT = 2


@dataclass(frozen=True)
class BodySpec:
    """Specification of a body, enough to rebuild it without its weights."""

    config: dict[str, Any] = field(default_factory=dict)  # transformers configuration with its ``model_type``
    pooling: str = "pooler"  # "pooler" (tanh pooler over [CLS]), "cls" or "mean"
    segments: bool = True  # feed segment ids

    @property
    def hidden(self) -> int:
        return int(self.config["hidden_size"])

    @property
    def vocabulary(self) -> int:
        return int(self.config["vocab_size"])


@dataclass(frozen=True)
class EmbedderSpec:
    """Specification of an embedder; ``projection`` is d, the body's width if nothing is projected.

    ``scale`` is the initial value of the learned factor on relevance, an inverse temperature; None: none is learned. Inner products of unit
    vectors lie in [-1, 1], and a softmax over them is flat; a projection's LayerNorm has a learned factor already."""

    body: BodySpec
    head: str = "projection"  # "projection"; of published sentence embedders "none", or "unit" for vectors of length 1
    projection: int = 128
    layer_norm_eps: float = 1e-12
    dropout: float = 0.1  # on the embedding, in training
    scale: float | None = None
    null_offset: bool = False  # learn an addition to the null document's relevance


@dataclass(frozen=True)
class EncoderSpec:
    """Specification of a knowledge-augmented encoder: its body, with the sizes of its head."""

    body: BodySpec


@dataclass(frozen=True)
class ReaderSpec:
    """Specification of a reader of question and block."""

    body: BodySpec
    span_hidden: int = 256  # width of the span representation; 0: start plus end score
    max_span: int = 10  # longest answer in wordpieces
    layer_norm_eps: float = 1e-3  # of the span head; the released code's
    pointer: bool = False  # spans of a block share their probability with "not here"
    marks: bool = False  # wordpieces shared with the question have their own segments (``featurize.marked``)
    titles: bool = False  # the block's title stands before its body
    taught: bool = False  # trained on people's questions
    slope: float | None = None  # with ``bias``, fitted confidence of an answer's p (``answerer.Confidence``)
    bias: float = 0.0
    pooled: bool = False  # whether it was fitted to pooled p
    abstain_below: float = 0.0  # confidence, or p, below which answers are better not given; 0: not measured


NetworkSpec = EmbedderSpec | EncoderSpec | ReaderSpec
_KINDS: dict[str, type[NetworkSpec]] = {
    "embedder": EmbedderSpec,
    "document_embedder": EmbedderSpec,
    "encoder": EncoderSpec,
    "reader": ReaderSpec,
}
PARTS = tuple(_KINDS)  # order of building and saving


@dataclass(frozen=True)
class ModelSpec:
    """Specification of a RealmModel: a network exists if it has a specification."""

    embedder: EmbedderSpec | None = None
    document_embedder: EmbedderSpec | None = None
    encoder: EncoderSpec | None = None
    reader: ReaderSpec | None = None

    @property
    def networks(self) -> dict[str, NetworkSpec]:
        """Specifications by part, in the order of ``PARTS``."""
        return {name: found for name in PARTS if (found := getattr(self, name)) is not None}

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the networks, of ``PARTS``."""
        return tuple(self.networks)


def one_body(
    body: BodySpec,
    *,
    projection: int = 128,
    layer_norm_eps: float = 1e-12,
    dropout: float = 0.1,
    span_hidden: int = 256,
    max_span: int = 10,
    span_layer_norm_eps: float = 1e-3,
    head: str = "projection",
    null_offset: bool = False,
    parts: tuple[str, ...] = ("embedder", "encoder"),
) -> ModelSpec:
    """Specification of networks with the same kind of body; ``span_layer_norm_eps`` is the reader's."""
    embedder = EmbedderSpec(body, head, projection, layer_norm_eps, dropout, null_offset=null_offset)
    reader = ReaderSpec(body, span_hidden, max_span, span_layer_norm_eps)
    found: dict[str, Any] = {"embedder": embedder, "document_embedder": embedder, "encoder": EncoderSpec(body), "reader": reader}
    return ModelSpec(**{name: found[name] for name in parts})


def bert_spec(
    *,
    vocab_size: int,
    hidden: int,
    layers: int,
    heads: int,
    intermediate: int,
    max_length: int,
    dropout: float,
    attention_dropout: float,
    segments: int = 2,
) -> BodySpec:
    """Specification of a BERT body from nothing; attention dropout is separate because it slows CPU attention five times."""
    config = {
        "model_type": "bert",
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": intermediate,
        "max_position_embeddings": max(max_length, 512),
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": attention_dropout,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "type_vocab_size": segments,
    }
    return BodySpec(config=config)


def spec_to_json(spec: ModelSpec) -> dict[str, Any]:
    """Contents of ``config.json``, without the path that a body was read from, which says something of this machine alone."""
    networks = {name: asdict(network) for name, network in spec.networks.items()}
    for network in networks.values():
        network["body"]["config"].pop("_name_or_path", None)
    return {"format": SPEC_FORMAT, "library": "realm", **networks}


def read_spec(path: Path) -> ModelSpec:
    """Read the specification of a ``config.json``.

    Raises RunError: no file, no JSON, an earlier version's format, a field that does not fit, or another file than was published here."""
    check_sealed(path.parent, DAMAGED, path.name)
    values = read_object(path, Errors.of(RunError, "Name a directory that save_pretrained wrote."))
    if "format" not in values:
        raise RunError("not a model's configuration", path=path)
    if values.pop("format") != SPEC_FORMAT:
        raise made_earlier(RunError, path)
    values.pop("library", None)
    try:
        if isinstance(reader := values.get("reader"), dict):
            reader.pop("words_weight", None)  # of confidence as it was fitted before
        _check_sizes(values)
        if unknown := [name for name in values if name not in PARTS]:
            raise TypeError(f"unknown parts {unknown}")
        found: dict[str, Any] = {name: _KINDS[name](**{**own, "body": BodySpec(**own["body"])}) for name, own in values.items()}
        return ModelSpec(**found)
    except (KeyError, TypeError) as error:
        raise RunError(f"the model's configuration does not fit: {error}", path=path) from error


_MAX_SIZES = {
    **dict.fromkeys(("hidden_size", "projection", "span_hidden"), MAX_WIDTH),
    **dict.fromkeys(("num_hidden_layers", "num_attention_heads"), MAX_LAYERS),
    "intermediate_size": 4 * MAX_WIDTH,
    "vocab_size": 1 << 24,
    "max_position_embeddings": 1 << 20,
}


def _check_sizes(values: Mapping[str, Any]) -> None:
    """Refuse numbers of a network that fits nowhere. Raises TypeError: one is too large."""
    for name, value in values.items():
        if isinstance(value, dict):
            _check_sizes(value)
        elif name in _MAX_SIZES and value is not None and not (isinstance(value, int) and 0 <= value <= _MAX_SIZES[name]):
            raise TypeError(f"{name} is {value!r}, and must be a whole number from 0 to {_MAX_SIZES[name]:,}")
