"""What networks of a run start as: from nothing, from a published body, or from a saved REALM."""

from pathlib import Path
from typing import Any

import torch

from realm.config import ModelConfig
from realm.data.featurize import MARKED_SEGMENTS
from realm.errors import ConfigError
from realm.nn.known_bodies import body_directory
from realm.nn.model import RealmModel, start_from_body
from realm.nn.published.models import read_tokenizer
from realm.nn.spec import BodySpec, ModelSpec, bert_spec, one_body
from realm.paths import is_realm_model
from realm.recipes.context import StageContext
from realm.recipes.narrowing import SAMPLE, corpus_directions
from realm.text.tokenizer import TextTokenizer
from realm.train.distributed import on_first

PROJECTION = 128
"""Dimensions of an embedding where neither recipe nor published head says: the paper's."""


def spec_of(model: ModelConfig, vocabulary: int, joint_length: int, parts: tuple[str, ...] = ("embedder", "encoder")) -> ModelSpec:
    """What a recipe says of networks that start from nothing; ``joint_length`` is that of the longest input."""
    body = bert_spec(
        vocab_size=vocabulary,
        hidden=model.hidden,
        layers=model.layers,
        heads=model.heads,
        intermediate=model.intermediate,
        max_length=joint_length,
        dropout=model.dropout,
        attention_dropout=model.attention_dropout,
        segments=MARKED_SEGMENTS if model.marks else 2,
    )
    return one_body(
        BodySpec(config=body.config, pooling=model.pooling, segments=model.segments),
        projection=model.projection or PROJECTION,
        layer_norm_eps=model.layer_norm_eps,
        dropout=model.embedding_dropout,
        null_offset=True,
        span_hidden=model.span_hidden,
        max_span=model.max_span,
        parts=parts,
    )


def new_model(context: StageContext, *, embeds: bool = True, sample: int = SAMPLE) -> RealmModel:
    """Embedder and encoder as the recipe starts them: from nothing, or from published weights.

    Args:
        embeds: False: the encoder alone.
        sample: blocks that are embedded to choose the dimensions of a published embedder, where the recipe asks for fewer than it has.

    Raises:
        ConfigError, DataError: the published weights cannot be had, or have another vocabulary than the corpus.
    """
    model, vocabulary = context.recipe.model, context.store.tokenizer.vocab_size
    torch.manual_seed(context.seed)
    whole = False
    if model.body:
        directory = body_directory(model.body)
        whole = is_realm_model(directory)
        found = (
            _start_from_model(directory, vocabulary, trains=bool(context.recipe.pretrain.steps))
            if whole
            else _start_from_body(context, directory)
        )
        _require_positions(found, context.inputs.featurizer.joint_length, directory)
    else:
        found = RealmModel(spec_of(model, vocabulary, context.inputs.featurizer.joint_length))
    if not embeds:
        return found.with_parts(embedder=None)
    return found if whole else _narrowed(context, found, sample)


def _start_from_body(context: StageContext, directory: Path) -> RealmModel:
    """Embedder and encoder of a published body, with all the dimensions of its embeddings."""
    model, tokenizer = context.recipe.model, context.store.tokenizer
    _require_vocabulary(directory, tokenizer)
    spec = spec_of(model, tokenizer.vocab_size, context.inputs.featurizer.joint_length)
    return start_from_body(spec, directory, dropout=model.dropout, attention_dropout=model.attention_dropout)


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


def _require_positions(model: RealmModel, length: int, directory: Path) -> None:
    """Refuse inputs that are longer than a body can read.

    Raises:
        ConfigError: they are.
    """
    for network in model.spec.networks.values():
        config = network.body.config
        padding = 1 + int(config.get("pad_token_id") or 0) if "roberta" in str(config["model_type"]) else 0  # positions count from there
        positions = int(config.get("max_position_embeddings", length)) - padding
        if positions < length:
            problem = f"the body reads {positions} wordpieces, and a question with a block has up to {length}"
            raise ConfigError(problem, path=directory, cure="Lower corpus.block_length or model.query_length.")


def _require_vocabulary(directory: Path, tokenizer: TextTokenizer) -> None:
    """Refuse a corpus whose wordpieces are not the body's: every word would have a foreign embedding.

    Raises:
        ConfigError: they differ.
        DataError: the body has no tokenizer.
    """
    if not read_tokenizer(directory).same_wordpieces(tokenizer):
        problem = f"the body's vocabulary is not the corpus's, which has {tokenizer.vocab_size} wordpieces of its own"
        raise ConfigError(problem, path=directory, cure="Build the corpus with the body's tokenizer: leave corpus.tokenizer empty.")


def _start_from_model(directory: Path, vocabulary: int, *, trains: bool) -> RealmModel:
    """Embedder and encoder of a saved or published REALM, heads included, or its reader, to continue with other documents.

    Args:
        trains: whether pre-training continues, for which a reader must be a pointer.
    """
    model = RealmModel.from_pretrained(directory)
    points = model.has("reader") and (model.reader.spec.pointer or not trains)
    if not model.has("embedder") or not (points or model.has("encoder")):
        cure = "Import both together: realm import EMBEDDER ENCODER --out RUN, then set model.body to RUN/stages/pretrain."
        raise ConfigError("a start for training needs an embedder and an encoder", path=directory, cure=cure)
    model = model.with_parts(document_embedder=None, **({"encoder": None} if points else {"reader": None}))
    for part, network in model.spec.networks.items():
        if network.body.vocabulary != vocabulary:
            problem = f"the model's {part} has {network.body.vocabulary} wordpieces, and the corpus has {vocabulary}"
            cure = "Set corpus.tokenizer to this directory: weights and blocks share one vocabulary."
            raise ConfigError(problem, path=directory, cure=cure)
    return model


def with_new_reader(
    context: StageContext, model: RealmModel, seed: int | None = None, *, pointer: bool = False, titles: bool = False
) -> RealmModel:
    """The model with a reader in its encoder's place; its span head is new, of the recipe's sizes and of ``seed``, or else the run's.

    A model whose pre-training taught a reader keeps it.
    """
    if model.has("reader"):
        return model
    own, sizes = context.seed if seed is None else seed, context.recipe.model
    return model.with_reader(own, span_hidden=sizes.span_hidden, max_span=sizes.max_span, pointer=pointer, marks=sizes.marks, titles=titles)
