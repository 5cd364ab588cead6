"""What a recipe will take on machines that are not here: parameters, memory and time from the configuration alone.

The networks are built without memory (torch's meta device) and their multiplications counted; nothing is run. ``plan`` measures instead,
where documents are there and one step fits into this machine.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from realm.body_models import spec_of
from realm.config import Recipe
from realm.nn.known_bodies import known_body, present_directory
from realm.nn.model import RealmModel, part_sizes, published_spec
from realm.nn.spec import PARTS, BodySpec
from realm.paths import is_realm_model

WIKIPEDIA_BLOCKS = 13_353_718
"""Of the paper's corpus: English Wikipedia of 20 December 2018."""
BERT_VOCABULARY = 30_522
HEAD = 32
"""Width of an attention head where only a body's width is known; nothing counted depends on it."""
FLOAT, BFLOAT16 = 4, 2
STATE = 4 * FLOAT
"""Bytes of a trained parameter: weight, gradient and the two moments of AdamW, in float32."""
ACTIVATION_NUMBERS = 17
"""Numbers of a layer kept for the backward pass, per token and hidden unit, without attention matrices (Korthikanti et al. 2022)."""
MASKS = 10
"""Masked wordpieces of a sentence that the encoder's head predicts, at most; most sentences have fewer."""
BACKWARD = 3
"""Multiplications of a training step, in forward passes."""


@dataclass(frozen=True)
class Device:
    """``tflops`` of dense bfloat16 multiplication (float32 for the CPU) by the data sheet; ``gigabytes`` of memory."""

    name: str
    tflops: float
    gigabytes: int


DEVICES = (
    Device("CPU, 16 cores", 1.5, 64),
    Device("T4 16 GB", 65, 16),
    Device("A100 40 GB", 312, 40),
    Device("A100 80 GB", 312, 80),
    Device("H100 80 GB", 989, 80),
    Device("H200 141 GB", 989, 141),
    Device("64 x TPU v3 core 16 GB", 64 * 61.5, 64 * 16),
)
"""The last is what the paper trained on."""
SHARE = 0.35
"""Of the data sheet's speed that a training of transformers usually reaches."""


@dataclass(frozen=True)
class Step:
    """Work of one optimiser step: forward FLOPs, tokens through a body that keeps activations, parameters that are trained."""

    flops: float
    tokens: int
    parameters: int
    steps: int


def forecast(recipe: Recipe, *, blocks: int = WIKIPEDIA_BLOCKS, vocabulary: int = BERT_VOCABULARY) -> dict[str, Any]:
    """Memory and time of a recipe on usual devices.

    Args:
        blocks: of the corpus.
        vocabulary: entries of the tokenizer, where no body brings one.

    Returns:
        {"rates": see :func:`rates_by_part`, "parameters": {part: number}, "blocks", "index_bytes", "refresh_flops",
        "stages": {name: {"steps", "flops_per_step", "activation_bytes"}}, "devices": [{"device", "fits": whether a whole step does,
        "bytes": of the largest step, "devices": how many share it, "seconds": {stage: all its steps on that many, refreshes apart,
        "refreshes"}, "total_seconds"}]}.
    """
    model = meta_model(recipe, vocabulary)
    sizes, shape = part_sizes(model), Shape.of(model.embedder.spec.body)
    stages = _stages(recipe, sizes, shape)
    number = BFLOAT16 if recipe.run.bf16 else FLOAT
    refresh = blocks * shape.embedding_flops(recipe.corpus.block_length)
    per_token = shape.layers * shape.hidden * ACTIVATION_NUMBERS * number
    memory = {name: stage.parameters * STATE + stage.tokens * per_token for name, stage in stages.items()}
    return {
        "rates": rates_by_part(recipe),
        "parameters": sizes,
        "blocks": blocks,
        "index_bytes": blocks * model.embedder.spec.projection * FLOAT,
        "refresh_flops": refresh,
        "stages": {
            name: {"steps": stage.steps, "flops_per_step": BACKWARD * stage.flops, "activation_bytes": stage.tokens * per_token}
            for name, stage in stages.items()
        },
        "devices": [_on(device, recipe, stages, memory, sizes, refresh) for device in DEVICES],
    }


def meta_model(recipe: Recipe, vocabulary: int) -> RealmModel:
    """The recipe's networks, reader included, without memory: of the body's own sizes where it lies on this machine, of the table's width
    and layers where it is known by name alone, and of the preset's where neither is."""
    wanted, body = recipe.model, recipe.model.body
    directory, known = present_directory(body) if body else None, known_body(body)
    if known is not None:
        wanted = replace(wanted, hidden=known.width, layers=known.layers, heads=known.width // HEAD, intermediate=4 * known.width)
        wanted = replace(wanted, projection=wanted.projection or known.width)
    spec = spec_of(wanted, vocabulary, wanted.query_length + recipe.corpus.block_length - 1, PARTS)
    if directory is not None and not is_realm_model(directory):
        spec = published_spec(spec, directory, recipe.model.projection)
    with torch.device("meta"):
        return RealmModel(spec)


@dataclass(frozen=True)
class Shape:
    """The sizes of a body that its multiplications depend on."""

    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    mean: bool

    @classmethod
    def of(cls, body: BodySpec) -> "Shape":
        layers, intermediate = int(body.config["num_hidden_layers"]), int(body.config["intermediate_size"])
        return cls(layers, body.hidden, intermediate, body.vocabulary, body.pooling == "mean")

    def flops(self, length: int, read: int) -> float:
        """Forward FLOPs of one sequence through the body: its matrices, and attention between all pairs.

        Args:
            length: of the sequence.
            read: positions whose states are read. The last layer makes keys and values everywhere, and all else there alone.
        """
        square, feed_forward = self.hidden * self.hidden, 2 * self.hidden * self.intermediate
        layer = length * (4 * square + feed_forward + 2 * length * self.hidden)
        last = length * 2 * square + read * (2 * square + feed_forward + 2 * length * self.hidden)
        return 2.0 * ((self.layers - 1) * layer + last)

    def embedding_flops(self, length: int) -> float:
        """Forward FLOPs of embedding one sequence, without the projection."""
        return self.flops(length, length if self.mean else 1)


def rates_by_part(recipe: Recipe) -> dict[str, dict[str, float]]:
    """The highest learning rate of each network in each stage that trains; the word table's apart where it stays as it is."""
    pretrain, finetune = recipe.pretrain, recipe.finetune
    reads = "reader" if pretrain.fill == "pointer" else "encoder"
    rates = {
        "warm": (recipe.warm.steps * pretrain.from_warm, {"encoder": recipe.warm.lr}),
        "ict": (recipe.ict.steps * pretrain.from_ict, {"retriever": recipe.ict.lr}),
        "pretrain": (pretrain.steps, {"retriever": pretrain.lr * pretrain.retriever_rate, reads: pretrain.lr}),
        "finetune": (finetune.steps, {"retriever": finetune.lr * finetune.retriever_rate, "reader": finetune.lr}),
    }
    words = {"words": 0.0} if recipe.model.freeze_words else {}
    return {stage: {**parts, **words} for stage, (steps, parts) in rates.items() if steps}


def pretraining_refreshes(recipe: Recipe) -> int:
    """How often pre-training embeds the corpus, if it does as often as it may: once where the documents stay as they are."""
    section = recipe.pretrain
    if section.queries_alone:
        return 1
    learning = sum(map(section.retriever_learns, range(section.steps)))
    return 1 + (min(1, learning) if section.refresh == "frozen" else -(-learning // section.refresh_every))


def finetuning_refreshes(recipe: Recipe) -> int:
    """How often fine-tuning does: between steps, and once more under the document side as it is in the end; never if that is frozen."""
    section = recipe.finetune
    return 1 + max(0, section.steps - 1) // section.refresh_every if section.documents == "trained" else 0


def _stages(recipe: Recipe, sizes: dict[str, int], shape: Shape) -> dict[str, Step]:
    """Every stage at its longest inputs."""
    query, block = recipe.model.query_length, recipe.corpus.block_length
    joint, hidden = query + block - 1, shape.hidden
    filling = shape.flops(joint, MASKS) + 2.0 * MASKS * (hidden * hidden + hidden * shape.vocabulary)
    reading = shape.flops(joint, joint)

    def flops(queries: int, blocks: int, joints: int, each: float) -> float:
        return queries * shape.embedding_flops(query) + blocks * shape.embedding_flops(block) + joints * each

    def tokens(queries: int, blocks: int, joints: int) -> int:
        return queries * query + blocks * block + joints * joint

    pretrain, finetune = recipe.pretrain, recipe.finetune
    candidates, read = pretrain.batch * pretrain.candidates, finetune.batch * finetune.read
    # A document side that learns embeds the blocks that are read and as many others that hold an answer.
    sides = 2 if finetune.documents == "trained" else 1
    fresh = 2 * read * (sides - 1)
    counts = {
        "warm": ((0, 0, recipe.warm.batch), filling, recipe.warm.steps * pretrain.from_warm, sizes["encoder"]),
        "ict": ((recipe.ict.batch, recipe.ict.batch, 0), 0.0, recipe.ict.steps * pretrain.from_ict, sizes["embedder"]),
        "pretrain": ((pretrain.batch, candidates, candidates), filling, pretrain.steps, sizes["embedder"] + sizes["encoder"]),
        "finetune": ((finetune.batch, fresh, read), reading, finetune.steps, sides * sizes["embedder"] + sizes["reader"]),
    }
    return {name: Step(flops(*work, each), tokens(*work), trained, steps) for name, (work, each, steps, trained) in counts.items() if steps}


def _on(
    device: Device, recipe: Recipe, stages: dict[str, Step], memory: dict[str, int], sizes: dict[str, int], refresh: float
) -> dict[str, Any]:
    """One row of the forecast: as many such devices as the largest step needs share every step evenly."""
    largest = max(memory.values(), default=0)
    capacity = device.gigabytes * 1e9
    # Weights and moments are on every device; only activations are shared out.
    fixed = max((stage.parameters * STATE for stage in stages.values()), default=0)
    room = capacity - fixed
    needed = max(1, -(-int(largest - fixed) // int(room))) if room > 0 else None
    row: dict[str, Any] = {"device": device.name, "fits": largest <= capacity, "bytes": largest, "devices": needed}
    if needed is None:
        return row | {"seconds": {}, "total_seconds": None}
    speed = needed * device.tflops * 1e12 * SHARE
    seconds = {name: stage.steps * BACKWARD * stage.flops / speed for name, stage in stages.items()}
    refreshes = pretraining_refreshes(recipe) + (finetuning_refreshes(recipe) if recipe.finetune.steps else 0)
    seconds["refreshes"] = refreshes * refresh / speed
    return row | {"seconds": seconds, "total_seconds": sum(seconds.values())}
