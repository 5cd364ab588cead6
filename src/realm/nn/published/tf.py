"""The original TensorFlow checkpoints and TF-Hub modules under Hugging Face's names, so that one plan imports both.

    module/.../bert, module/.../{dense,LayerNorm}    an embedder; a fine-tuned one lies one module deeper
    bert/, cls/                                      the encoder of pre-training
    reader/module/bert, reader/{dense,dense_1,...}   the reader of fine-tuning
    block_emb                                        embeddings of the blocks

Kernels are stored [inputs, outputs] and turn; Adam's moments and the step counter are no weights.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from realm.errors import DataError
from realm.nn.published.names import BLOCK_EMBEDDINGS
from realm.nn.tensor_files import Shape, TensorFile

HEAD_SIZE = 64
"""Of every BERT that was published for TensorFlow: the shapes do not tell the number of heads."""
_PARAMETERS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "output_bias": "bias", "output_weights": "weight"}
_READER = {"dense": "dense_intermediate", "dense_1": "dense_output", "layer_normalization": "layer_normalization"}
_TRAINING = re.compile(r"(^|/)(adam_m|adam_v|AdamWeightDecayOptimizer(_1)?|global_step|save_counter|_CHECKPOINTABLE_OBJECT_GRAPH)($|/)")


@dataclass
class RenamedTensors:
    """A TensorFlow checkpoint under the published PyTorch names; a tensor file.

    Attributes:
        unused: TensorFlow's name -> why it is no weight.
    """

    source: TensorFile

    def __post_init__(self) -> None:
        self.path: Path = self.source.path
        self.unused: dict[str, str] = {}
        self._names: dict[str, str] = {}
        depth = _embedder_inside(self.source.shapes)
        for name in self.source.shapes:
            if _TRAINING.search(name):
                self.unused[name] = "it is state of the training"
            elif (theirs := published_name(name, beside_reader=depth)) in self._names:
                problem = f"the variables {name} and {self._names[theirs]} have one place"
                raise DataError(problem, path=self.path, cure="Import one module at a time.")
            else:
                self._names[theirs] = name
        self.shapes: dict[str, Shape] = {new: self._shape(old) for new, old in self._names.items()}

    def read(self, name: str) -> Tensor:
        tensor = self.source.read(self._names[name])
        return tensor.T.contiguous() if _turned(self._names[name]) else tensor

    def rows(self, name: str) -> Iterator[Tensor]:
        return self.source.rows(self._names[name])

    def _shape(self, name: str) -> Shape:
        shape = self.source.shapes[name]
        return shape[::-1] if _turned(name) else shape


def published_name(variable: str, *, beside_reader: bool) -> str:
    """Hugging Face's name of a TensorFlow variable; one that has none keeps its own.

    Args:
        variable: TensorFlow's name.
        beside_reader: whether the checkpoint holds a reader too, so that names say whose they are.
    """
    if variable == BLOCK_EMBEDDINGS:
        return variable
    path, owner = variable.split("/"), ""
    if path[0] == "reader":
        path = path[1:]
        owner = "reader." if beside_reader else ""
        if path[0] in _READER:
            path = ["qa_outputs", _READER[path[0]], *path[1:]]
    elif path[0] == "module":
        owner = "embedder." if beside_reader else ""
    while path[0] == "module":
        path = path[1:]
    if path[0] in ("dense", "LayerNorm"):
        path = ["cls", *path]
    if path[0] not in ("bert", "cls", "qa_outputs"):
        return variable
    path[0] = "realm" if path[0] == "bert" else path[0]
    if path[-1].endswith("_embeddings"):
        path = [*path, "weight"]
    path[-1] = _PARAMETERS.get(path[-1], path[-1])
    return owner + re.sub(r"\.layer_(\d+)\.", r".layer.\1.", ".".join(path))


def config_from_shapes(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """The configuration that a checkpoint without ``config.json`` must have had: its sizes, from its shapes.

    Raises:
        ValueError: it holds no BERT.
    """
    found: dict[str, Any] = {}
    layers = [int(match[1]) for name in shapes if (match := re.search(r"encoder\.layer\.(\d+)\.", name))]
    sizes = {
        "embeddings.word_embeddings.weight": ("vocab_size", 0),
        "embeddings.position_embeddings.weight": ("max_position_embeddings", 0),
        "embeddings.token_type_embeddings.weight": ("type_vocab_size", 0),
        "encoder.layer.0.intermediate.dense.weight": ("intermediate_size", 0),
        "cls.dense.weight": ("retriever_proj_size", 0),
        "qa_outputs.dense_output.weight": ("span_hidden_size", 1),
    }
    for name, shape in shapes.items():
        for end, (key, axis) in sizes.items():
            if name.endswith(end) and len(shape) == 2:
                found[key] = shape[axis]
        if name.endswith("embeddings.word_embeddings.weight"):
            found["hidden_size"] = shape[1]
    if not layers or "hidden_size" not in found:
        raise ValueError("it holds no BERT")
    heads = max(1, found["hidden_size"] // HEAD_SIZE)
    return {**found, "num_hidden_layers": max(layers) + 1, "num_attention_heads": heads, "hidden_act": "gelu_new"}


def _embedder_inside(names: Mapping[str, Any]) -> bool:
    """Whether one checkpoint holds reader and embedder, as those of fine-tuning do."""
    return any(name.startswith("reader/") for name in names) and any(name.startswith("module/") for name in names)


def _turned(variable: str) -> bool:
    return variable.endswith("/kernel")
