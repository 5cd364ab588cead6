"""The networks that a stage of training starts with: from nothing, or from the recipe's body."""

import torch

from realm.answering.body_models import body_model, spec_of
from realm.models.model import RealmModel
from realm.training.context import StageContext


def new_model(context: StageContext, *, embeds: bool = True) -> RealmModel:
    """Embedder (unless not ``embeds``) and encoder as the recipe starts them: from nothing, or from published weights.

    Raises ConfigError, DataError: no such body, or other words."""
    model = context.recipe.model
    if model.body:
        found = body_model(context.recipe, context.inputs)
    else:
        torch.manual_seed(context.seed)
        found = RealmModel(spec_of(model, context.store.tokenizer.vocab_size, context.inputs.featurizer.joint_length))
    return found if embeds else found.with_parts(embedder=None)


def with_new_reader(
    context: StageContext, model: RealmModel, seed: int | None = None, *, pointer: bool = False, titles: bool = False
) -> RealmModel:
    """The model with a new reader in its encoder's place, of ``seed`` or the run's; a reader that pre-training taught is kept."""
    if model.has("reader"):
        return model
    own, sizes = context.seed if seed is None else seed, context.recipe.model
    return model.with_reader(own, span_hidden=sizes.span_hidden, max_span=sizes.max_span, pointer=pointer, marks=sizes.marks, titles=titles)
