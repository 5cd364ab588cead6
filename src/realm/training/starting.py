"""The networks that a stage of training starts with: from nothing, or from the recipe's body."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from realm.answering.body_models import body_model, spec_of
from realm.errors import ConfigError
from realm.models.bodies.known import body_directory
from realm.models.embedder import Embedder
from realm.models.model import RealmModel
from realm.search.blocks import BlockInputs
from realm.search.publishing.embedding import embed_corpus
from realm.storage.paths import is_realm_model
from realm.training.context import StageContext
from realm.training.loop.distributed import on_first

SAMPLED_BLOCKS = 2048
"""Blocks, spread evenly over the corpus, whose vectors say which directions are kept: all 10,925 of squad-small gave no more recall."""


def new_model(context: StageContext, *, embeds: bool = True, sample: int = SAMPLED_BLOCKS) -> RealmModel:
    """Embedder (unless not ``embeds``) and encoder as the recipe starts them: from nothing, or from published weights.

    ``sample``: blocks embedded to choose the dimensions of a published embedder. Raises ConfigError, DataError: no such body, or other
    words."""
    model = context.recipe.model
    if model.body:
        found = body_model(context.recipe, context.inputs)
    else:
        torch.manual_seed(context.seed)
        found = RealmModel(spec_of(model, context.store.tokenizer.vocab_size, context.inputs.featurizer.joint_length))
    if not embeds:
        return found.with_parts(embedder=None)
    return found if model.body and is_realm_model(body_directory(model.body)) else _narrowed(context, found, sample)


def _narrowed(context: StageContext, model: RealmModel, sample: int) -> RealmModel:
    """The model with as many dimensions as the recipe asks for, where its embedder has a published head with others."""
    embedder, count = model.embedder, context.recipe.model.projection
    if embedder.spec.head == "projection" or count in (0, embedder.spec.projection):
        return model

    def found() -> list[Any]:
        context.say(f"model: {count} of the body's {embedder.spec.projection} dimensions, by the vectors of {sample:,} blocks at most")
        return [part.tolist() for part in corpus_directions(embedder.to(context.device), context.inputs, count, sample=sample)]

    directions, centre = (torch.tensor(part) for part in on_first(found))
    return model.with_parts(embedder=embedder.cpu().narrowed(directions, centre))


def principal_directions(vectors: Tensor, count: int, *, centred: bool) -> tuple[Tensor, Tensor]:
    """Orthonormal directions [d, h] along which vectors [n, h] differ most, strongest first, and their mean [h], 0 if not ``centred``."""
    exact = vectors.double()
    centre = exact.mean(0) if centred else torch.zeros_like(exact[0])
    shifted = exact - centre
    strongest = torch.linalg.eigh(shifted.T @ shifted).eigenvectors.flip(-1)[:, :count].T  # eigh: the weakest first
    return strongest.float().contiguous(), centre.float()


def corpus_directions(embedder: Embedder, inputs: BlockInputs, count: int, *, sample: int = SAMPLED_BLOCKS) -> tuple[Tensor, Tensor]:
    """Directions of the vectors of ``sample`` live blocks; unit vectors are centred. Raises ConfigError: ``count`` above the width."""
    width = embedder.spec.projection
    if count > width:
        problem = f"'model.projection' is {count}, and the body's embeddings have {width} dimensions"
        raise ConfigError(problem, cure="Leave model.projection out, or name fewer.")
    live = np.flatnonzero(inputs.store.live)
    rows = live[np.linspace(0, len(live) - 1, min(sample, len(live))).astype(np.int64)]
    training = embedder.training
    vectors = torch.from_numpy(embed_corpus(embedder, inputs, rows))
    embedder.train(training)
    return principal_directions(vectors, count, centred=embedder.unit)


def with_new_reader(
    context: StageContext, model: RealmModel, seed: int | None = None, *, pointer: bool = False, titles: bool = False
) -> RealmModel:
    """The model with a new reader in its encoder's place, of ``seed`` or the run's; a reader that pre-training taught is kept."""
    if model.has("reader"):
        return model
    own, sizes = context.seed if seed is None else seed, context.recipe.model
    return model.with_reader(own, span_hidden=sizes.span_hidden, max_span=sizes.max_span, pointer=pointer, marks=sizes.marks, titles=titles)
