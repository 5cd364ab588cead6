"""What the networks of a RealmModel are made of: one specification each, as ``config.json`` keeps them. Nothing here builds a network."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from realm.errors import RunError, made_earlier
from realm.recipe.sizes import MAX_LAYERS, MAX_WIDTH
from realm.storage.decoding import json_value
from realm.storage.sealed import check_sealed
from realm.storage.stages import DAMAGED

FORMAT = 2


@dataclass(frozen=True)
class BodySpec:
    """What a body is, enough to rebuild it without its weights.

    Args:
        config: the transformers configuration as a dictionary with its ``model_type``.
        pooling: "pooler" (tanh pooler over [CLS]), "cls" or "mean".
        segments: whether segment ids are fed.
    """

    config: dict[str, Any] = field(default_factory=dict)
    pooling: str = "pooler"
    segments: bool = True

    @property
    def hidden(self) -> int:
        return int(self.config["hidden_size"])

    @property
    def vocabulary(self) -> int:
        return int(self.config["vocab_size"])


@dataclass(frozen=True)
class EmbedderSpec:
    """What an embedder is.

    Args:
        body: what is pooled.
        head: "projection", or as published sentence embedders have it: "none", or "unit" for vectors of length 1.
        projection: d; the body's width where nothing is projected. Below it the vectors of a published head are projected linearly, and
            "unit" scales before and after.
        layer_norm_eps: of the projection.
        dropout: on the embedding, in training.
        scale: where the learned factor on relevance scores starts, an inverse temperature; None: none is learned. Inner products of vectors
            of length 1 lie in [-1, 1], and a softmax over them is flat; a projection's LayerNorm has a learned factor already.
        null_offset: whether a learned number is added to the relevance of the null document.
    """

    body: BodySpec
    head: str = "projection"
    projection: int = 128
    layer_norm_eps: float = 1e-12
    dropout: float = 0.1
    scale: float | None = None
    null_offset: bool = False


@dataclass(frozen=True)
class EncoderSpec:
    """What a knowledge-augmented encoder is: its body, whose sizes its head has."""

    body: BodySpec


@dataclass(frozen=True)
class ReaderSpec:
    """What a reader is.

    Args:
        body: reads question and block.
        span_hidden: width of the span representation; 0: none, a start score and an end score are added.
        max_span: longest answer in wordpieces.
        layer_norm_eps: of the span head; the released code's.
        marks: whether wordpieces of a block that stand in the question, too, have segments of their own (``featurize.marked``).
        titles: whether a block's title stands before its body.
        pointer: whether the spans of a block share their probability with "not here", as a reader learns it that was pre-trained.
        taught: whether people's questions have taught it.
        slope, bias: what makes a confidence of an answer's p, as it was fitted (``answerer.Confidence``); None and 0 where nothing was.
        abstain_below: confidence (p where none was fitted) below which its answers are better not given; 0 where that was not measured.
    """

    body: BodySpec
    span_hidden: int = 256
    max_span: int = 10
    layer_norm_eps: float = 1e-3
    pointer: bool = False
    marks: bool = False
    titles: bool = False
    taught: bool = False
    slope: float | None = None
    bias: float = 0.0
    abstain_below: float = 0.0


NetworkSpec = EmbedderSpec | EncoderSpec | ReaderSpec
_KINDS: dict[str, type[NetworkSpec]] = {
    "embedder": EmbedderSpec,
    "document_embedder": EmbedderSpec,
    "encoder": EncoderSpec,
    "reader": ReaderSpec,
}
PARTS = tuple(_KINDS)
"""The networks that a model may have, in the order in which they are built and saved."""


@dataclass(frozen=True)
class ModelSpec:
    """What a RealmModel is made of: the networks that are there are those that have a specification."""

    embedder: EmbedderSpec | None = None
    document_embedder: EmbedderSpec | None = None
    encoder: EncoderSpec | None = None
    reader: ReaderSpec | None = None

    @property
    def networks(self) -> dict[str, NetworkSpec]:
        """The specifications that are there, by the names of ``PARTS`` and in their order."""
        return {name: found for name in PARTS if (found := getattr(self, name)) is not None}

    @property
    def parts(self) -> tuple[str, ...]:
        """Which networks are there, of ``PARTS``."""
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
    """Networks that all have one kind of body (never its weights). ``span_layer_norm_eps`` is the reader's, the rest as it says there."""
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
    """The specification of a BERT body from nothing. Attention dropout is apart because it makes CPU attention five times slower."""
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
    """What ``config.json`` holds."""
    return {"format": FORMAT, "library": "realm", **{name: asdict(network) for name, network in spec.networks.items()}}


def read_spec(path: Path) -> ModelSpec:
    """The specification in a ``config.json``.

    Raises:
        RunError: no file, no JSON, an earlier version's format, a field that does not fit, or not the file that was published here.
    """
    check_sealed(path.parent, DAMAGED, path.name)
    try:
        values = json_value(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RunError("no model here", path=path, cure="Name a directory that save_pretrained wrote.") from None
    except ValueError as error:
        raise RunError(f"not JSON: {error}", path=path) from error
    if not isinstance(values, dict) or "format" not in values:
        raise RunError("not a model's configuration", path=path)
    if values.pop("format") != FORMAT:
        raise made_earlier(RunError, path)
    values.pop("library", None)
    try:
        _check_sizes(values)
        return _networks(values)
    except (KeyError, TypeError) as error:
        raise RunError(f"the model's configuration does not fit: {error}", path=path) from error


_MOST = {
    **dict.fromkeys(("hidden_size", "projection", "span_hidden"), MAX_WIDTH),
    **dict.fromkeys(("num_hidden_layers", "num_attention_heads"), MAX_LAYERS),
    "intermediate_size": 4 * MAX_WIDTH,
    "vocab_size": 1 << 24,
    "max_position_embeddings": 1 << 20,
}


def _check_sizes(values: Mapping[str, Any]) -> None:
    """See that no number would build a network that fits nowhere. Raises TypeError: one does."""
    for name, value in values.items():
        if isinstance(value, dict):
            _check_sizes(value)
        elif name in _MOST and value is not None and not (isinstance(value, int) and 0 <= value <= _MOST[name]):
            raise TypeError(f"{name} is {value!r}, and must be a whole number from 0 to {_MOST[name]:,}")


def _networks(values: Mapping[str, Any]) -> ModelSpec:
    if unknown := [name for name in values if name not in PARTS]:
        raise TypeError(f"unknown parts {unknown}")
    found: dict[str, Any] = {name: _KINDS[name](**{**own, "body": BodySpec(**own["body"])}) for name, own in values.items()}
    return ModelSpec(**found)
