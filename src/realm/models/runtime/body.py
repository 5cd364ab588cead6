"""Bodies by ONNX Runtime: a BERT- or MPNet-shaped encoder over ragged inputs, from weights by name to final states."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from xxhash import xxh3_64

from realm.errors import MissingExtra, RunError, said
from realm.models.runtime.graph import ROUNDING, BodyShape, body_graph, normalised_states
from realm.models.runtime.weights import SafetensorWeights
from realm.storage.processes import usable_cores

MPNET = "mpnet"
FIRST_POSITION = {"bert": 0, "roberta": 2, "xlm-roberta": 2, MPNET: 2}
"""Families that run here, and the row of the position table that the first token has."""
TANH_GELU = {"gelu": False, "gelu_new": True, "gelu_pytorch_tanh": True}
"""Activations that run here, and whether each is the approximation by tanh."""
BERT_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "out": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm2": "output.LayerNorm",
}
MPNET_NAMES = BERT_NAMES | {
    "q": "attention.attn.q",
    "k": "attention.attn.k",
    "v": "attention.attn.v",
    "out": "attention.attn.o",
    "norm1": "attention.LayerNorm",
}
"""Names of a layer's parts in the two families, below ``encoder.layer.N``."""
MEAN_TOKENS = 32  # that the means of states are measured on
CENTRED, SUM = "centred.safetensors", "sum"
"""The file beside the weights that spares measuring these means at each start, and its checksums' name (released/bake.py)."""


def onnx_runtime() -> Any:
    """Return ONNX Runtime. Raises RunError: it is missing, or older than the first with all that is called here."""
    try:
        import onnxruntime

        problem = f"ONNX Runtime {onnxruntime.__version__} is too old"
        if tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 22):
            return onnxruntime
    except ImportError as error:
        problem = f"ONNX Runtime cannot be loaded: {said(error)}"
    raise RunError(problem, cure="Install it: pip install --upgrade onnxruntime.")


def runs_here(config: dict[str, Any]) -> bool:
    """Return whether a body of this transformers configuration runs without torch."""
    return config.get("model_type") in FIRST_POSITION and config.get("hidden_act", "gelu") in TANH_GELU


class Inputs(NamedTuple):
    """A batch of sequences of one length: ids and segments int64 [b, t]."""

    ids: np.ndarray
    segments: np.ndarray


class RuntimeBody:
    """A transformer encoder without torch.

    Args:
        weights, config: of the body, by transformers' names.
        segments: whether segment ids are fed.
        eight_bit: whether products are of 8-bit integers; float32 otherwise.
        threads: inputs that run at once; 0: as many as there are cores.

    Raises MissingExtra: the family needs torch."""

    def __init__(self, weights: SafetensorWeights, config: dict[str, Any], *, segments: bool, eight_bit: bool, threads: int = 0):
        family = config.get("model_type")
        if not runs_here(config):
            raise MissingExtra(f"a body of the family '{family}'", "train")
        self.weights, self._config, self._segments, self._threads = weights, config, segments, threads
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

    def opened(self) -> ThreadPoolExecutor:
        """Return the threads that may call ``states`` at once, now that the session is there."""
        _ = self._session
        return _threads(self._threads or usable_cores())

    def states(self, inputs: Inputs) -> np.ndarray:
        """Return final states float32 [b, t, h]."""
        return np.asarray(self._session.run(None, self._given(inputs))[0])

    def _given(self, inputs: Inputs) -> dict[str, np.ndarray]:
        bias = {"bias": self._position_bias(inputs.ids.shape[1])} if self._mpnet else {}
        return {"embedded": self._embedded(inputs), **bias}

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        """The graph's weights by its own names, until the session has copied them."""
        return {name: np.ascontiguousarray(array) if array.ndim else array for name, array in self._layers()}

    @cached_property
    def _session(self) -> Any:
        if self.shape.eight_bit:
            self._arrays |= self._baked() or self.centred()
        session = self._open()
        vars(self).pop("_arrays", None)  # the session has copies
        return session

    def _baked(self) -> dict[str, np.ndarray] | None:
        """Return what ``centred`` found when the model was released; None: nothing is kept beside the weights, or it is of others."""
        path = self.weights.path.with_name(CENTRED)
        kept = SafetensorWeights(path, self.weights.prefix) if path.is_file() else None
        if kept is None or not kept.has(SUM):
            return None
        found = {
            name: kept.array(name) for norm, bias, _, skipped in normalised_states(self.shape).values() for name in (norm, bias, skipped)
        }
        return found if kept.read(SUM).tobytes() == self.checksum(found) else None

    def checksum(self, found: dict[str, np.ndarray]) -> bytes:
        """Return the checksum of the layers' weights as they are stored, and of what was found for them."""
        checksum = xxh3_64(repr(self.shape).encode())
        for array in (*self._arrays.values(), *found.values()):
            checksum.update(array.data)
        return checksum.digest()

    def centred(self) -> dict[str, np.ndarray]:
        """Take the mean of what is rounded out of the states and into the biases, which is the same network: a few channels stand far from
        0 whatever the text is, and would take the range of all others. Words from all over the vocabulary tell the means."""
        count = min(MEAN_TOKENS, self._config["max_position_embeddings"] - 2)
        ids = np.linspace(0, self._config["vocab_size"] - 1, count).astype(np.int64)[None]
        arrays, states, found = self._arrays, normalised_states(self.shape), dict[str, np.ndarray]()
        _, *measured = self._open(*states).run(None, self._given(Inputs(ids, np.zeros_like(ids))))
        for (norm, bias, products, skipped), values in zip(states.values(), measured, strict=True):
            mean = values.mean((0, 1))
            moved = [(mean @ arrays[name].astype(np.float32)) * arrays[f"{name}.scale"] for name in products]
            found |= {norm: arrays[norm] - mean, bias: arrays[bias] + np.concatenate(moved), skipped: arrays[skipped] + mean}
        return found

    def _open(self, *others: str) -> Any:
        onnxruntime = onnx_runtime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # the graph is as it should be
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in self._arrays.values()]
        options.add_external_initializers(list(self._arrays), values)
        try:
            return onnxruntime.InferenceSession(body_graph(self.shape, *others), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of the library's own kinds, which have no common one
            problem = f"the weights do not fit the configuration: {said(error)}"
            raise RunError(problem, path=self.weights.path, cure="Fetch or train the model again.") from error

    def _layers(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the graph's weights by its own names."""
        if self.shape.eight_bit:
            yield from ROUNDING.items()
        array = self.weights.array
        for number in range(self.shape.layers):
            biases = []
            for part, name in (MPNET_NAMES if self._mpnet else BERT_NAMES).items():
                stored, own = f"encoder.layer.{number}.{name}", f"{number}.{part}"
                if part.startswith("norm"):
                    yield f"{own}.weight", array(f"{stored}.weight")
                elif self.shape.eight_bit:
                    whole, scales = self.weights.rounded(f"{stored}.weight")
                    yield from ((own, whole.T), (f"{own}.scale", scales))
                else:
                    yield own, array(f"{stored}.weight").T
                if part in "qkv":
                    biases.append(array(f"{stored}.bias"))
                else:
                    yield f"{own}.bias", array(f"{stored}.bias")
            yield f"{number}.qkv.bias", np.concatenate(biases)

    def _embedded(self, inputs: Inputs) -> np.ndarray:
        """Return words, positions and segments, added and normalised, float32 [b, t, h]."""
        words, first = self.weights.rows("embeddings.word_embeddings.weight", inputs.ids), FIRST_POSITION[self._config["model_type"]]
        summed = words + self._array("embeddings.position_embeddings.weight")[first : first + inputs.ids.shape[1]]
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


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "realm-body")


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
