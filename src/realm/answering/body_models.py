"""Networks of a recipe's body over a corpus: a published body, or a saved REALM with its heads or its reader."""

from pathlib import Path
from typing import TYPE_CHECKING

from realm.errors import ConfigError, by_torch
from realm.models.bodies.known import body_directory
from realm.models.featurize import MARKED_SEGMENTS
from realm.models.hub import is_own
from realm.models.runtime.model import RuntimeModel, learning_model, runtime_model
from realm.models.spec import PARTS, BodySpec, ModelSpec, bert_spec, one_body, read_spec
from realm.recipe import ModelConfig, Recipe
from realm.search.blocks import BlockInputs
from realm.storage.layout import is_realm_model
from realm.text.tokenizer import read_tokenizer

if TYPE_CHECKING:
    from realm.models.model import RealmModel

DEFAULT_PROJECTION = 128  # dimensions of an embedding if neither recipe nor published head says: the paper's


def spec_of(model: ModelConfig, vocabulary: int, joint_length: int, parts: tuple[str, ...] = ("embedder", "encoder")) -> ModelSpec:
    """Specification of a recipe's networks from nothing; ``joint_length`` is that of the longest input."""
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
        projection=model.projection or DEFAULT_PROJECTION,
        dropout=0.0,
        null_offset=True,
        span_hidden=model.span_hidden,
        max_span=model.max_span,
        parts=parts,
    )


def answering_model(recipe: Recipe, inputs: BlockInputs) -> "RuntimeModel | RealmModel":
    """Embedder and reader of the recipe's body, without torch where they run so. Raises ConfigError, DataError, MissingExtra."""
    directory = body_directory(recipe.model.body)
    found = runtime_model(directory, without=("document_embedder", "encoder")) if is_realm_model(directory) else None
    if found is None or not (found.has("embedder") and found.has("reader")):
        with by_torch(f"the body '{recipe.model.body}'"):
            return body_model(recipe, inputs).eval().requires_grad_(False)
    _require_fit(found.spec, inputs, directory)
    return found


def reading_directory(body: str) -> Path:
    """Directory of a model with a reader. Raises ConfigError: the model is not here, or has none."""
    directory = body_directory(body)
    if not is_own(directory) or read_spec(directory / "config.json").reader is None:
        raise ConfigError(f"the model '{body}' has no reader", path=directory, cure="Name a model with one, such as realm-minilm-en.")
    return directory


def reading_model(body: str, inputs: BlockInputs) -> "RuntimeModel | RealmModel":
    """The reader of a model alone. Raises ConfigError: as above, or it reads other wordpieces."""
    directory = reading_directory(body)
    others = tuple(part for part in PARTS if part != "reader")
    found = runtime_model(directory, without=others) or learning_model(directory).only("reader")
    _require_fit(found.spec, inputs, directory)
    return found


def body_model(recipe: Recipe, inputs: BlockInputs) -> "RealmModel":
    """Embedder and encoder, or reader, of the recipe's body, missing parts drawn by its seed. Raises ConfigError, DataError."""
    import torch

    from realm.models.model import start_from_body

    torch.manual_seed(recipe.run.seed)
    directory, tokenizer = body_directory(recipe.model.body), inputs.store.tokenizer
    if is_realm_model(directory):
        found = _saved(directory, trains=bool(recipe.pretrain.steps))
    else:
        if not read_tokenizer(directory).same_wordpieces(tokenizer):
            problem = f"the body's vocabulary is not the corpus's, which has {tokenizer.vocab_size} wordpieces of its own"
            raise ConfigError(problem, path=directory, cure="Build the corpus with the body's tokenizer: leave corpus.tokenizer empty.")
        spec = spec_of(recipe.model, tokenizer.vocab_size, inputs.featurizer.joint_length)
        found = start_from_body(spec, directory, dropout=recipe.model.dropout, attention_dropout=recipe.model.attention_dropout)
        head, asked = found.embedder.spec, recipe.model.projection
        if head.head != "projection" and asked not in (0, head.projection):
            problem = f"'model.projection' is {asked}, and the body's embeddings have {head.projection} dimensions"
            raise ConfigError(problem, cure="Leave model.projection out.")
    _require_fit(found.spec, inputs, directory)
    return found


def _require_fit(spec: ModelSpec, inputs: BlockInputs, directory: Path) -> None:
    """Refuse another vocabulary than a saved body's, and inputs longer than it can read. Raises ConfigError: they are."""
    length, vocabulary = inputs.featurizer.joint_length, inputs.store.manifest.vocab_size
    for part, network in spec.networks.items():
        if is_realm_model(directory) and network.body.vocabulary != vocabulary:
            problem = f"the model's {part} has {network.body.vocabulary} wordpieces, and the corpus has {vocabulary}"
            cure = "Set corpus.tokenizer to this directory: weights and blocks share one vocabulary."
            raise ConfigError(problem, path=directory, cure=cure)
        config = network.body.config
        padding = 1 + int(config.get("pad_token_id") or 0) if "roberta" in str(config["model_type"]) else 0  # positions count from there
        positions = int(config.get("max_position_embeddings", length)) - padding
        if positions < length:
            problem = f"the body reads {positions} wordpieces, and a question with a block has up to {length}"
            raise ConfigError(problem, path=directory, cure="Lower corpus.block_length or model.query_length.")


def _saved(directory: Path, *, trains: bool) -> "RealmModel":
    """Embedder and encoder of a saved or published REALM, heads included, or its reader; to train on, a reader must be a pointer."""
    model = learning_model(directory)
    points = model.has("reader") and (model.reader.spec.pointer or not trains)
    if not model.has("embedder") or not (points or model.has("encoder")):
        cure = "Import both together: realm import EMBEDDER ENCODER --out RUN, then set model.body to RUN/stages/pretrain."
        raise ConfigError("a start for training needs an embedder and an encoder", path=directory, cure=cure)
    return model.with_parts(document_embedder=None, **({"encoder": None} if points else {"reader": None}))
