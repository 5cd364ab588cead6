"""What every stage shares: the run's places, its corpus, its featuriser, its log; and how a stage's result is published."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from realm.candidates import DenseCandidates, make_source, sparse_weight
from realm.config import ModelConfig, Recipe
from realm.corpus.store.blocks import BlockStore
from realm.data.blocks import BlockInputs, open_inputs
from realm.data.loader import Share
from realm.errors import ConfigError, RunError
from realm.nn.bodies import freeze_words
from realm.nn.embedder import Embedder
from realm.nn.hub import is_realm_model
from realm.nn.known_bodies import body_directory
from realm.nn.model import RealmModel, start_from_body
from realm.nn.published.models import read_tokenizer
from realm.nn.spec import BodySpec, ModelSpec, bert_spec, one_body
from realm.paths import RunPaths
from realm.progress import Counting
from realm.ranks import place
from realm.recipes.narrowing import SAMPLE, corpus_directions
from realm.refresh import Generation
from realm.stages import RUN_FORMAT, stage_facts
from realm.storage.files import publish_directory, sha256_file, write_json
from realm.text.tokenizer import TextTokenizer
from realm.train.checkpoint import CheckpointDirectory
from realm.train.distributed import on_first, world
from realm.train.loop import LoopOptions, Metrics, Task, fit
from realm.train.metrics import MetricsLog
from realm.train.recomputing import recompute_layers
from realm.train.timing import Stopwatch

__all__ = [
    "RUN_FORMAT",
    "STAGE_SECTIONS",
    "Report",
    "StageContext",
    "fingerprint",
    "is_published",
    "load_stage",
    "new_model",
    "on_cuda",
    "open_context",
    "publish_stage",
    "retrieval_facts",
    "source_over",
    "stage_facts",
    "train",
    "with_new_reader",
]

PROJECTION = 128
"""Dimensions of an embedding where neither recipe nor published head says: the paper's."""
Report = Callable[[str, int, int, Metrics], None]


def silent(*_: object) -> None:
    """Shows nothing of what it is told."""


@dataclass(frozen=True)
class StageContext:
    """One run as a stage sees it.

    Args:
        paths: where things lie.
        recipe: the resolved recipe.
        inputs: the corpus with the featuriser.
        device: where networks live.
        log: metrics.jsonl.
        report: called with (stage, step, steps, metrics) whenever a row was logged.
        say: called with a line for people, said once.
        count: called with (what, done, total) by what may take minutes on a large corpus: blocks embedded, questions searched.
        watch: charges the time of a step to its parts; what no block claims is the loop's: backward pass, optimiser, checkpoints.
    """

    paths: RunPaths
    recipe: Recipe
    inputs: BlockInputs
    device: torch.device
    log: MetricsLog
    report: Report
    say: Callable[[str], None] = silent
    count: Counting = silent
    watch: Stopwatch = field(default_factory=lambda: Stopwatch(outside="backward"))

    @property
    def store(self) -> BlockStore:
        return self.inputs.store

    @property
    def seed(self) -> int:
        return self.recipe.run.seed

    def embedded(self, done: int, total: int) -> None:
        """``done`` of ``total`` blocks of an index are embedded."""
        self.count("index: blocks embedded", done, total)


def on_cuda(recipe: Recipe) -> bool:
    """Whether the networks of a run live on a GPU of this machine."""
    return recipe.run.device == "cuda" or (recipe.run.device == "auto" and torch.cuda.is_available())


def open_context(
    paths: RunPaths,
    recipe: Recipe,
    report: Report,
    say: Callable[[str], None] = silent,
    count: Counting = silent,
    log: MetricsLog | None = None,
) -> StageContext:
    """Open the run's corpus and build the one featuriser of the run; ``log`` by default is metrics.jsonl alone."""
    torch.set_num_threads(recipe.run.threads)
    cuda = on_cuda(recipe)
    if cuda and not torch.cuda.is_available():
        raise RunError("run.device is cuda, and this machine has none", path=paths.config, cure="Set run.device to cpu or auto.")
    device = torch.device(f"cuda:{place().local}" if world() > 1 else "cuda") if cuda else torch.device("cpu")
    inputs = open_inputs(paths.corpus, recipe.model.query_length)
    return StageContext(paths, recipe, inputs, device, log or MetricsLog(paths.metrics), report, say, count)


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
        found = _start_from_model(directory, vocabulary) if whole else _start_from_body(context, directory)
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


def _start_from_model(directory: Path, vocabulary: int) -> RealmModel:
    """Embedder and encoder of a saved or published REALM, heads included, or its reader that points, to go on with other documents."""
    model = RealmModel.from_pretrained(directory)
    points = model.has("reader") and model.reader.spec.pointer
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


def with_new_reader(context: StageContext, model: RealmModel, seed: int | None = None, *, pointer: bool = False) -> RealmModel:
    """The model with a reader in its encoder's place; its span head is new, of the recipe's sizes and of ``seed``, or else the run's.

    A model whose pre-training taught a reader keeps it.
    """
    if model.has("reader"):
        return model
    own, sizes = context.seed if seed is None else seed, context.recipe.model
    return model.with_reader(own, span_hidden=sizes.span_hidden, max_span=sizes.max_span, pointer=pointer)


def source_over(
    context: StageContext,
    embedder: Embedder,
    generation: Generation,
    paths: RunPaths | None = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> DenseCandidates:
    """What finds blocks as the recipe's [retrieval] says.

    Args:
        embedder: of the questions.
        generation: what is searched.
        paths: where it lies; None: in the run.
        facts: of the stage whose end fitted the weight of sparse search.
    """
    recipe, snapshot = context.recipe, generation.snapshot
    kind, weight = recipe.retrieval_kind, sparse_weight(recipe.retrieval.weight, facts)
    return make_source(embedder, snapshot, generation.index, context.inputs, (paths or context.paths).index, kind=kind, weight=weight)


def retrieval_facts(recipe: Recipe, facts: Mapping[str, Any] = MappingProxyType({})) -> list[Any]:
    """What a result depends on besides the embedder's own search; empty where there is nothing, as in runs from before there was.

    Args:
        facts: of the stage that searches, for the weight that was fitted when it ended.
    """
    if recipe.retrieval_kind == "dense":
        return []
    return [recipe.retrieval_kind, *([sparse_weight(recipe.retrieval.weight, facts)] if recipe.retrieval_kind == "hybrid" else [])]


STAGE_SECTIONS = {
    "ict": ("ict",),
    "warm": ("warm",),
    "pretrain": ("pretrain",),
    "finetune": ("finetune",),
    **dict.fromkeys(("bm25", "tfidf", "fused", "orqa", "sentence"), ("finetune",)),
    "closed_book": ("warm", "finetune"),
}


SINCE_THEN: dict[str, dict[str, Any]] = {
    "pretrain": {
        "retriever_rate": 1.0,
        "fill": "mlm",
        "unsalient": 0.5,
        "proposals": 0,
        "shown": 0.0,
        "reader_first": 0,
        "questions": 0.0,
    },
    "model": {"embedding_dropout": 0.0, "freeze_words": False},
}
"""Settings that stages were trained without, as if they had been this: at that the stages are still what the recipe asks for."""


def fingerprint(context: StageContext, stage: str, *parents: str, **more: str) -> str:
    """What the result of a stage depends on: corpus, model, seed, its own section, the stages it starts from, and ``more`` by name."""
    recipe = context.recipe
    sections = [_counting(name, dataclasses.asdict(getattr(recipe, name))) for name in ("model", *STAGE_SECTIONS.get(stage, ()))]
    known: dict[str, Any] = {
        "format": RUN_FORMAT,
        "corpus": context.store.manifest.corpus_id,
        "seed": recipe.run.seed,
        "bf16": recipe.run.bf16,
        "optimizer": recipe.run.optimizer,
        "schedule": recipe.run.schedule,
        **more,
    }
    if stage in ("pretrain", "finetune") and (retrieval := retrieval_facts(recipe)):
        known["retrieval"] = retrieval
    if stage == "closed_book":
        known["epochs"] = recipe.eval.closed_book_epochs
    if "finetune" in STAGE_SECTIONS.get(stage, ()):  # a question file that was edited is other data under the same name
        known["questions"] = [_contents(files) for files in (recipe.train_files, recipe.dev_files)]
    text = json.dumps([stage, known, sections, [stage_facts(context.paths, p)["fingerprint"] for p in parents]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _counting(name: str, section: dict[str, Any]) -> dict[str, Any]:
    """What a fingerprint takes of a section: what is in the files of questions and sentences counts, not where they lie."""
    same = SINCE_THEN.get(name, {})
    return {key: value for key, value in section.items() if key not in ("train", "dev", "sentences") and (key, value) not in same.items()}


def _contents(files: tuple[str, ...]) -> str | list[str]:
    """What is in question files: one has its hash alone, so that a recipe means the same with it in a list."""
    hashes = [sha256_file(Path(name)) if Path(name).is_file() else "" for name in files]
    return hashes if len(hashes) > 1 else "".join(hashes)


def train(context: StageContext, task: Task, section: Any, mark: str) -> int:
    """Run the one loop on a stage's task with the stage's section of the recipe. Returns the finished steps.

    Raises:
        ConfigError: the batch cannot be divided among the ranks and the parts of each.
    """
    Share(0, world() * section.accumulate).places(section.batch)
    if context.recipe.run.gradient_checkpointing:
        recompute_layers(task.model)
    if context.recipe.model.freeze_words:
        freeze_words(task.model)
    options = LoopOptions(
        steps=section.steps,
        lr=section.lr,
        warmup=section.warmup,
        optimizer=context.recipe.run.optimizer,
        schedule=context.recipe.run.schedule,
        seed=context.seed,
        accumulate=section.accumulate,
        bf16=context.recipe.run.bf16,
        device=context.device.type,
        checkpoint_every=context.recipe.run.checkpoint_every,
    )
    checkpoints = CheckpointDirectory(context.paths.checkpoints(task.name), fingerprint=mark)
    return fit(task, options, log=context.log, checkpoints=checkpoints, report=context.report)


def publish_stage(
    context: StageContext,
    stage: str,
    model: RealmModel,
    mark: str,
    facts: dict[str, Any],
    beside: Callable[[Path], None] = lambda directory: None,
) -> None:
    """Publish a stage's networks and facts; its checkpoints have served and are removed. The first rank does, the others wait.

    Args:
        beside: writes what else belongs to the stage into its directory.
    """

    def publish() -> None:
        with publish_directory(context.paths.stage(stage)) as staging:
            beside(staging)
            model.save_pretrained(staging, tokenizer=context.store.tokenizer, card={"stage": stage, **facts})
            write_json(staging / "stage.json", {"format": RUN_FORMAT, "stage": stage, "fingerprint": mark, **facts})
        CheckpointDirectory(context.paths.checkpoints(stage), fingerprint=mark).discard()

    on_first(publish)


def is_published(context: StageContext, stage: str, mark: str) -> bool:
    """Whether the stage's result is there for exactly this recipe and corpus.

    Raises:
        RunError: a result is there that another recipe or corpus made; it is not touched.
    """
    return bool(on_first(lambda: _is_published(context, stage, mark)))


def _is_published(context: StageContext, stage: str, mark: str) -> bool:
    if not context.paths.stage(stage).exists():
        return False
    if stage_facts(context.paths, stage)["fingerprint"] != mark:
        cure = "Start a new run with --out, or remove this directory to train the stage again."
        raise RunError(f"'{stage}' was trained with another recipe or corpus", path=context.paths.stage(stage), cure=cure)
    return True


def load_stage(context: StageContext, stage: str) -> RealmModel:
    """The networks that a published stage left, on the run's device."""
    stage_facts(context.paths, stage)
    return RealmModel.from_pretrained(context.paths.stage(stage)).to(context.device)
