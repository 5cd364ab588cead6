"""The context that every stage shares: places, corpus, featuriser and log; and how a stage's result is published."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from realm.documents.store.blocks import BlockStore
from realm.errors import RunError
from realm.models.bodies.body import freeze_words
from realm.models.embedder import Embedder
from realm.models.model import RealmModel, state_sha256
from realm.progress import Counting
from realm.recipe import Recipe
from realm.search.blocks import BlockInputs, open_inputs
from realm.search.candidates import DenseCandidates, Searching, make_source
from realm.search.publishing.embedding import EmbedOptions
from realm.search.publishing.generation import Generation, open_generation
from realm.search.publishing.refresher import refresh_index
from realm.storage.files import publish_directory, sha256_file, write_json
from realm.storage.layout import RUN_FORMAT, STAGE_FILE, STAGE_SECTIONS, RunPaths, stage_facts
from realm.storage.manifests import seal
from realm.storage.metrics import MetricsLog
from realm.storage.processes import place
from realm.training.loop.checkpoint import CheckpointDirectory
from realm.training.loop.distributed import on_first, world
from realm.training.loop.loop import Report, fit
from realm.training.loop.task import LoopOptions, Task
from realm.training.order import Share


def silent(*_: object) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class StageContext:
    """One run as a stage sees it.

    ``report`` gets (stage, step, steps, metrics) of each log row, ``say`` a line for people, ``count`` (what, done, total) of long work."""

    paths: RunPaths
    recipe: Recipe
    inputs: BlockInputs
    device: torch.device
    log: MetricsLog
    report: Report
    say: Callable[[str], None] = silent
    count: Counting = silent

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
    """Tell whether a run's networks live on a GPU of this machine."""
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
        raise RunError("run.device is cuda, and this machine has no CUDA device", path=paths.config, cure="Set run.device to cpu or auto.")
    device = torch.device(f"cuda:{place().local}" if world() > 1 else "cuda") if cuda else torch.device("cpu")
    inputs = open_inputs(paths.corpus, recipe.model.query_length)
    return StageContext(paths, recipe, inputs, device, log or MetricsLog(paths.metrics), report, say, count)


def source_over(context: StageContext, embedder: Embedder, generation: Generation, paths: RunPaths | None = None) -> DenseCandidates:
    """The source of blocks that [retrieval] names, over a generation in ``paths`` or the run."""
    how = Searching.stated(context.recipe)
    return make_source(embedder, generation.snapshot, generation.index, context.inputs, (paths or context.paths).index, how)


def retrieval_facts(recipe: Recipe) -> list[Any]:
    """Settings of search that results depend on, besides the embedder's own."""
    more = [f"hops {recipe.retrieval.hops}"] if recipe.retrieval.hops else []
    if recipe.retrieval_kind == "dense":
        return more
    return [recipe.retrieval_kind, *([recipe.retrieval.weight] if recipe.retrieval_kind == "hybrid" else []), *more]


def fingerprint(context: StageContext, stage: str, *parents: str, **more: str) -> str:
    """Hash of all that a stage depends on: corpus, model, seed, its section, the stages it starts from, and ``more`` by name."""
    recipe = context.recipe
    sections = [counting(dataclasses.asdict(getattr(recipe, name))) for name in ("model", *STAGE_SECTIONS.get(stage, ()))]
    known: dict[str, Any] = {
        "format": RUN_FORMAT,
        "corpus": context.store.manifest.corpus_id,
        "seed": recipe.run.seed,
        "bf16": recipe.run.bf16,
        "optimizer": recipe.run.optimizer,
        **more,
    }
    if stage in ("pretrain", "finetune"):
        known["retrieval"] = retrieval_facts(recipe)
    if stage == "closed_book":
        known["closed_book"] = recipe.eval.closed_book_epochs
    if "finetune" in STAGE_SECTIONS.get(stage, ()):  # a question file that was edited is other data under the same name
        known["questions"] = [
            [sha256_file(Path(name)) if Path(name).is_file() else "" for name in files] for files in (recipe.train_files, recipe.dev_files)
        ]
    text = json.dumps([stage, known, sections, [stage_facts(context.paths, p)["fingerprint"] for p in parents]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def counting(section: dict[str, Any]) -> dict[str, Any]:
    """The part of a section that counts in a fingerprint: contents of question and sentence files do, their places do not."""
    return {key: value for key, value in section.items() if key not in ("train", "dev", "sentences")}


def untrained_options(context: StageContext) -> EmbedOptions:
    """Options of embedding by weights that no step changes. On a CPU one process a thread: threads that wait for each other at every
    product take a third longer."""
    run, on_cpu = context.recipe.run, context.device.type == "cpu"
    return EmbedOptions(run.threads if on_cpu else 1, threads=1, bf16=run.bf16, int8=on_cpu and context.recipe.refresher.int8)


def publish_index(context: StageContext, model: RealmModel, paths: RunPaths | None = None) -> Generation:
    """Embed the corpus with a model that is not trained, into ``paths`` or the run."""
    options = untrained_options(context).lasting(model.documents)
    return refresh_index(model, context.inputs, paths or context.paths, step=0, options=options, progress=context.embedded)


def train(context: StageContext, task: Task, section: Any, mark: str) -> int:
    """Run the one loop on a task with its section of the recipe. Returns the finished steps. Raises ConfigError: an indivisible batch."""
    accumulate = context.recipe.run.accumulate
    Share(0, world() * accumulate).places(section.batch)
    if context.recipe.model.freeze_words:
        freeze_words(task.model)
    options = LoopOptions(
        steps=section.steps,
        lr=section.lr,
        warmup=section.warmup,
        optimizer=context.recipe.run.optimizer,
        seed=context.seed,
        accumulate=accumulate,
        bf16=context.recipe.run.bf16,
        device=context.device.type,
        deferred=context.device.type != "cpu",
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
    """Publish networks and facts of a stage, on the first rank, and remove its checkpoints; ``beside`` writes what else belongs to it."""

    def publish() -> None:
        with publish_directory(context.paths.stage(stage)) as staging:
            beside(staging)
            model.save_pretrained(staging, tokenizer=context.store.tokenizer, card={"stage": stage, **facts})
            write_json(staging / STAGE_FILE, {"format": RUN_FORMAT, "stage": stage, "fingerprint": mark, **facts})
            seal(staging)
        CheckpointDirectory(context.paths.checkpoints(stage), fingerprint=mark).discard()

    on_first(publish)


def is_published(context: StageContext, stage: str, mark: str) -> bool:
    """Tell whether exactly this recipe's and corpus's result is published. Raises RunError: another's is there."""
    return bool(on_first(lambda: _is_published(context, stage, mark)))


def _is_published(context: StageContext, stage: str, mark: str) -> bool:
    if not context.paths.stage(stage).exists():
        return False
    if stage_facts(context.paths, stage)["fingerprint"] != mark:
        cure = "Start a new run with --out, or remove this directory to train the stage again."
        raise RunError(f"'{stage}' was trained with another recipe or corpus", path=context.paths.stage(stage), cure=cure)
    CheckpointDirectory(context.paths.checkpoints(stage), fingerprint=mark).discard()
    return True


def load_stage(context: StageContext, stage: str) -> RealmModel:
    """The networks that a published stage left, on the run's device."""
    stage_facts(context.paths, stage)
    return RealmModel.from_pretrained(context.paths.stage(stage)).to(context.device)


def stage_generation(context: StageContext, stage: str, paths: RunPaths | None = None, documents: Embedder | None = None) -> Generation:
    """The index that a published stage searches, in ``paths`` or the run. Raises SnapshotError: damaged, or not made by ``documents``."""
    number, sha = stage_facts(context.paths, stage)["generation"], None if documents is None else state_sha256(documents)
    return open_generation(paths or context.paths, context.inputs, number, document_embedder_sha256=sha, device=context.device)
