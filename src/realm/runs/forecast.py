"""What the configuration alone says of a run: parameters, memory of its largest step, learning rates, refreshes.

The networks are built without memory (torch's meta device) and nothing is run. ``plan`` measures time.
"""

from dataclasses import replace

import torch

from realm.answering.body_models import spec_of
from realm.models.bodies.known import known_body, present_directory
from realm.models.model import RealmModel, part_sizes, published_spec
from realm.models.spec import PARTS
from realm.recipe import Recipe
from realm.storage.paths import is_realm_model

BERT_VOCABULARY = 30_522
HEAD = 32
"""Width of an attention head where only a body's width is known; nothing counted depends on it."""
FLOAT, BFLOAT16 = 4, 2
STATE = 4 * FLOAT
"""Bytes of a trained parameter: weight, gradient and the two moments of AdamW, in float32."""
ACTIVATION_NUMBERS = 17
"""Numbers of a layer kept for the backward pass, per token and hidden unit, without attention matrices (Korthikanti et al. 2022)."""


def meta_model(recipe: Recipe, vocabulary: int = BERT_VOCABULARY) -> RealmModel:
    """The recipe's networks, reader included, without memory: of the body's own sizes where it lies on this machine, of the table's width
    and layers where it is known by name alone, and of the preset's where neither is.

    Args:
        vocabulary: entries of the tokenizer, where no body brings one.
    """
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


def step_bytes(recipe: Recipe, model: RealmModel) -> int:
    """Bytes that the largest step holds with every input at its longest: the state of what learns, and activations."""
    query, block = recipe.model.query_length, recipe.corpus.block_length
    sizes, body = part_sizes(model), model.embedder.spec.body
    number = BFLOAT16 if recipe.run.bf16 else FLOAT
    per_token = int(body.config["num_hidden_layers"]) * body.hidden * ACTIVATION_NUMBERS * number
    pretrain, finetune = recipe.pretrain, recipe.finetune
    candidates, read = pretrain.batch * pretrain.candidates, finetune.batch * finetune.read
    stages = [
        (recipe.warm.steps * pretrain.from_warm, (0, 0, recipe.warm.batch), sizes["encoder"]),
        (recipe.ict.steps * pretrain.from_ict, (recipe.ict.batch, recipe.ict.batch, 0), sizes["embedder"]),
        (pretrain.steps, (pretrain.batch, candidates, candidates), sizes["embedder"] + sizes["encoder"]),
        (finetune.steps, (finetune.batch, 0, read), sizes["embedder"] + sizes["reader"]),
    ]
    lengths = (query, block, query + block - 1)
    tokens = [sum(n * length for n, length in zip(work, lengths, strict=True)) for _, work, _ in stages]
    held = [learn * STATE + each * per_token for (steps, _, learn), each in zip(stages, tokens, strict=True) if steps]
    return max(held, default=0)


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
