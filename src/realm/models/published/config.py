"""The published models' ``config.json`` and our ModelSpec, both ways. Every number is checked before anything is built from it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from realm.errors import ConfigError
from realm.models.published.names import PUBLISHED_PARTS, TABLES
from realm.models.spec import BodySpec, EmbedderSpec, ModelSpec, NetworkSpec, ReaderSpec, one_body

ARCHITECTURES: dict[str, str] = TABLES["architectures"]
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh")
_SIZES: dict[str, int] = TABLES["sizes"]
_RATES: dict[str, float] = TABLES["rates"]
_OWN = {"projection": ("retriever_proj_size", 128), "span_hidden": ("span_hidden_size", 256), "max_span": ("max_span_width", 10)}
READER_EPS = 1e-3
OWN_FORM = "Keep the model in our own form."
LARGEST = 2**24
"""No size of any published model comes near; what is above is damage or an attack."""


def read_published_config(values: Mapping[str, Any], kind: str, *, path: Path | None = None) -> ModelSpec:
    """The specification of a published model.

    The special-token ids are not taken over: the published ones (padding 1) do not belong to the vocabulary, whose padding is 0.

    Args:
        values: the parsed ``config.json``; what it leaves out has the class's default.
        kind: of :data:`realm.models.published.names.PUBLISHED_PARTS`.
        path: the file, for messages.

    Raises:
        ConfigError: a value has the wrong type, is out of range, or asks for what these networks do not have.
    """
    sizes = {name: _size(values, name, default, path) for name, default in _SIZES.items()}
    rates = {name: _rate(values, name, default, path) for name, default in _RATES.items()}
    if sizes["hidden_size"] % sizes["num_attention_heads"]:
        raise _refused(f"hidden_size {sizes['hidden_size']} is not a multiple of num_attention_heads {sizes['num_attention_heads']}", path)
    if (positions := values.get("position_embedding_type", "absolute")) != "absolute":
        raise _refused(f"position_embedding_type '{positions}' is not supported; the published models have absolute positions", path)
    # A plain BERT's default is the exact GELU, a REALM's the approximation of the original code.
    activation = values.get("hidden_act", "gelu" if kind == "bert" else "gelu_new")
    if activation not in ACTIVATIONS:
        raise _refused(f"hidden_act '{activation}' is none of {', '.join(ACTIVATIONS)}", path)
    body = {"model_type": "bert", **sizes, **rates, "hidden_act": activation, "pad_token_id": 0}
    own: dict[str, Any] = {ours: _size(values, theirs, default, path) for ours, (theirs, default) in _OWN.items()}
    return one_body(
        BodySpec(config=body),
        layer_norm_eps=rates["layer_norm_eps"],
        dropout=rates["hidden_dropout_prob"],
        span_layer_norm_eps=_rate(values, "reader_layer_norm_eps", READER_EPS, path),
        parts=tuple(PUBLISHED_PARTS[kind]),
        **own,
    )


def published_config(kind: str, spec: ModelSpec, *, blocks: int = 0) -> dict[str, Any]:
    """The ``config.json`` of an export.

    Args:
        kind: of :data:`ARCHITECTURES`.
        spec: of our model.
        blocks: rows of the exported block embeddings; 0 leaves them out.

    Raises:
        ConfigError: the published classes cannot hold these networks: another family, pooling or head, no segments, another eps, or
            bodies that differ.
    """
    values: dict[str, Any] = {"model_type": "realm", "architectures": [ARCHITECTURES[kind]]}
    for part in PUBLISHED_PARTS[kind]:
        if part in spec.networks:
            own = _network_values(spec.networks[part])
            # Dropout is of training alone, and the first network's will do.
            if differing := [name for name in own if values.get(name, own[name]) != own[name] and not name.endswith("_prob")]:
                problem = f"the published classes have one {differing[0]} for all networks, and the {part.replace('_', ' ')} has another"
                raise ConfigError(problem, cure=OWN_FORM)
            values = own | values
    absent: dict[str, Any] = {**dict(_OWN.values()), "reader_layer_norm_eps": READER_EPS}
    return absent | values | {"pad_token_id": 0, "tie_word_embeddings": True} | ({"num_block_records": blocks} if blocks else {})


def _network_values(spec: NetworkSpec) -> dict[str, Any]:
    """What the published ``config.json`` says of one network.

    Raises:
        ConfigError: the published classes cannot hold it.
    """
    body = spec.body
    if body.config.get("model_type") != "bert" or body.pooling != "pooler" or not body.segments:
        raise ConfigError("the published classes hold BERT bodies with a pooler and segments only", cure=OWN_FORM)
    activation = body.config.get("hidden_act", "gelu_pytorch_tanh")
    values: dict[str, Any] = {name: body.config.get(name, default) for name, default in {**_SIZES, **_RATES}.items()}
    # The same function; the published classes' version of transformers knows it by this name.
    values["hidden_act"] = "gelu_new" if activation == "gelu_pytorch_tanh" else activation
    if isinstance(spec, EmbedderSpec):
        if spec.head != "projection":
            raise ConfigError(f"the published classes hold embedders with a projection only, not the head '{spec.head}'", cure=OWN_FORM)
        if float(values["layer_norm_eps"]) != spec.layer_norm_eps:
            problem = "the published classes have one layer_norm_eps for body and projection"
            raise ConfigError(problem, cure="Set model.layer_norm_eps to that of the body.")
        values["retriever_proj_size"] = spec.projection
    if isinstance(spec, ReaderSpec):
        if not spec.span_hidden:
            raise ConfigError("the published classes hold ORQA's span head only, not one of start and end scores", cure=OWN_FORM)
        values |= {"span_hidden_size": spec.span_hidden, "max_span_width": spec.max_span, "reader_layer_norm_eps": spec.layer_norm_eps}
    return values


def _size(values: Mapping[str, Any], name: str, default: int, path: Path | None) -> int:
    value = values.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
        raise _refused(f"{name} = {value!r} is not a whole number from 1 to {LARGEST}", path)
    return value


def _rate(values: Mapping[str, Any], name: str, default: float, path: Path | None) -> float:
    value = values.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise _refused(f"{name} = {value!r} is not a number from 0 to 1", path)
    return float(value)


def _refused(problem: str, path: Path | None) -> ConfigError:
    return ConfigError(problem, path=path, cure="Use the config.json that belongs to the weights.")
