"""Bodies by ONNX Runtime: a BERT- or MPNet-shaped encoder over ragged inputs, from weights by name to final states."""

from collections.abc import Iterator, Sequence as SequenceOf
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from realm.errors import MissingExtra, RunError, said
from realm.models.runtime.graph import BodyShape, body_graph

MPNET = "mpnet"
FIRST_POSITION = {"bert": 0, "roberta": 2, "xlm-roberta": 2, MPNET: 2}
"""Families that run here, and the row of the position table that the first token has."""
TANH_GELU = {"gelu": False, "gelu_new": True, "gelu_pytorch_tanh": True}
"""Activations that run here, and whether each is the approximation by tanh."""
BERT_NAMES = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "out": ("attention.output.dense",),
    "norm1": ("attention.output.LayerNorm",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
    "norm2": ("output.LayerNorm",),
}
MPNET_NAMES = BERT_NAMES | {
    "qkv": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    "out": ("attention.attn.o",),
    "norm1": ("attention.LayerNorm",),
}
"""Names of a layer's parts in the two families, below ``encoder.layer.N``."""

ROUNDING_NUMBERS: dict[str, np.ndarray] = {
    "round.share": np.array([1 / 127], np.float32),
    "round.least": np.array([1e-30], np.float32),
    "round.shift": np.array([128], np.float32),
    "round.zero": np.array(128, np.uint8),
}


def runs_here(config: dict[str, Any]) -> bool:
    """Return whether a body of this transformers configuration runs without torch."""
    return config.get("model_type") in FIRST_POSITION and config.get("hidden_act", "gelu") in TANH_GELU


class Weights(Protocol):
    """Tensors by name: float32 arrays, or int8 with a scale for each row; ``path`` is for messages."""

    path: Path

    def has(self, name: str) -> bool:
        """Return whether there is a tensor of this name."""
        ...

    def below(self, prefix: str) -> "Weights":
        """Return the tensors of a part of the network."""
        ...

    def array(self, name: str) -> np.ndarray:
        """Return a tensor in float32."""
        ...

    def rounded(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a matrix [r, c] as int8 and float32 scales [r]; one that is stored in float32 is rounded now."""
        ...

    def rows(self, name: str, ids: np.ndarray) -> np.ndarray:
        """Return some rows of a matrix in float32."""
        ...


@dataclass(frozen=True)
class Inputs:
    """One padded batch: ids and segments int64 [b, t], lengths int32 [b]."""

    ids: np.ndarray
    segments: np.ndarray
    lengths: np.ndarray


class RuntimeBody:
    """A transformer encoder without torch.

    Args:
        weights: of the body, by transformers' names.
        config: its transformers configuration.
        segments: whether segment ids are fed.
        eight_bit: whether products are of 8-bit integers; float32 otherwise.
        threads: of one product; 0: all cores.

    Raises:
        MissingExtra: the family needs torch.
    """

    def __init__(self, weights: Weights, config: dict[str, Any], *, segments: bool, eight_bit: bool, threads: int = 0):
        family = config.get("model_type")
        if not runs_here(config):
            raise MissingExtra(f"a body of the family '{family}'", "train")
        self._weights, self._config, self._segments, self._threads = weights, config, segments, threads
        self._array = cache(weights.array)  # of what every batch needs
        self._mpnet = family == MPNET
        self.shape = BodyShape(
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            layer_norm_eps=float(config["layer_norm_eps"]),
            biased=self._mpnet,
            tanh_gelu=TANH_GELU[config.get("hidden_act", "gelu")],
            eight_bit=eight_bit,
        )

    def states(self, inputs: Inputs) -> np.ndarray:
        """Return final states float32 [b, t, h]; those of padding mean nothing."""
        given = {"embedded": self._embedded(inputs), "lengths": inputs.lengths}
        if self._mpnet:
            given["bias"] = self._position_bias(inputs.ids.shape[1])
        states: np.ndarray = self._session.run(None, given)[0]
        return states

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = self._threads, 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # another network may be next
        # The session reads the arrays where they lie, so they live as long as it does.
        self._arrays = {name: np.ascontiguousarray(array) if array.ndim else array for name, array in self._layers()}
        self._values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in self._arrays.values()]
        options.add_external_initializers(list(self._arrays), self._values)
        try:
            return onnxruntime.InferenceSession(body_graph(self.shape), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of the library's own kinds, which have no common one
            problem = f"the weights do not fit the configuration: {said(error)}"
            raise RunError(problem, path=self._weights.path, cure="Fetch or train the model again.") from error

    def _layers(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the graph's weights by its own names."""
        if self.shape.eight_bit:
            yield from ROUNDING_NUMBERS.items()
        family = MPNET_NAMES if self._mpnet else BERT_NAMES
        for number in range(self.shape.layers):
            for part, sources in family.items():
                names = [f"encoder.layer.{number}.{source}" for source in sources]
                bias = np.concatenate([self._weights.array(f"{name}.bias") for name in names])
                if part.startswith("norm"):
                    yield f"{number}.{part}.weight", self._weights.array(f"{names[0]}.weight")
                elif self.shape.eight_bit:
                    whole, scales = zip(*(self._weights.rounded(f"{name}.weight") for name in names), strict=True)
                    yield f"{number}.{part}", np.concatenate(whole).T
                    yield f"{number}.{part}.scale", np.concatenate(scales)
                else:
                    yield f"{number}.{part}", np.concatenate([self._weights.array(f"{name}.weight") for name in names]).T
                yield f"{number}.{part}.bias", bias

    def _embedded(self, inputs: Inputs) -> np.ndarray:
        """Return words, positions and segments, added and normalised, float32 [b, t, h]."""
        weights, ids = self._weights, inputs.ids
        unique, where = np.unique(ids, return_inverse=True)
        words = weights.rows("embeddings.word_embeddings.weight", unique)[where.reshape(ids.shape)]
        first = FIRST_POSITION[self._config["model_type"]]
        positions = self._array("embeddings.position_embeddings.weight")[first : first + ids.shape[1]]
        summed = words + positions
        if not self._mpnet:
            kinds = self._array("embeddings.token_type_embeddings.weight")
            summed += kinds[inputs.segments] if self._segments else kinds[0]
        return layer_norm(
            summed, self._array("embeddings.LayerNorm.weight"), self._array("embeddings.LayerNorm.bias"), self.shape.layer_norm_eps
        )

    def _position_bias(self, length: int) -> np.ndarray:
        """Return MPNet's bias of relative positions, float32 [1, heads, t, t]."""
        table = self._array("encoder.relative_attention_bias.weight")
        places = np.arange(length)
        buckets = relative_buckets(places[None, :] - places[:, None], len(table))
        return np.ascontiguousarray(table[buckets].transpose(2, 0, 1)[None])


def relative_buckets(relative: np.ndarray, count: int, most: int = 128) -> np.ndarray:
    """Return the bucket of each relative position, as T5 and MPNet divide them: exact nearby, logarithmic up to ``most``."""
    half = count // 2
    exact = half // 2
    distance = np.abs(relative)
    ratio = np.maximum(distance, 1).astype(np.float32) / np.float32(exact)
    far = exact + (np.log(ratio) / np.float32(np.log(most / exact)) * (half - exact)).astype(np.int64)
    return np.where(relative > 0, half, 0) + np.where(distance < exact, distance, np.minimum(far, half - 1))


def layer_norm(values: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    """Return layer normalisation over the last axis, in float32."""
    centred = values - values.mean(-1, keepdims=True)
    variance = np.einsum("...h,...h->...", centred, centred)[..., None] / values.shape[-1]
    return (centred / np.sqrt(variance + eps) * weight + bias).astype(np.float32)


def padded(ids: SequenceOf[SequenceOf[int]], segments: SequenceOf[SequenceOf[int]]) -> Inputs:
    """Return ragged inputs as one padded batch."""
    lengths = np.array([len(one) for one in ids], np.int32)
    shape = (len(ids), int(lengths.max()))
    filled, kinds = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, (one, kind) in enumerate(zip(ids, segments, strict=True)):
        filled[row, : len(one)], kinds[row, : len(kind)] = one, kind
    return Inputs(filled, kinds, lengths)
