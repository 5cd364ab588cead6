"""ORQA and the parts of Table 2: an encoder trained on without retrieval, parts of different origin, ICT over published weights.

Rows over published weights read with the reader or encoder that REALM's pre-training left, so that a difference is the retriever's alone.
"""

import dataclasses
import json

from realm.models.model import RealmModel
from realm.recipe import IctConfig, Recipe, WarmConfig
from realm.search.publishing.generation import Generation
from realm.storage.layout import RunPaths, stage_facts
from realm.training import context as stages
from realm.training.beams import LiveSource
from realm.training.context import StageContext
from realm.training.finetune.task import ReadingTask, training_questions
from realm.training.finetune.training import train_reader
from realm.training.loop.distributed import on_first
from realm.training.order import EpochOrder
from realm.training.pretrain.stage import starting_model
from realm.training.starting import new_model, with_new_reader
from realm.training.warm import IctTask, WarmTask

CONTINUED, RETRIEVER, ENCODER = "continued", "retriever", "encoder"


class ContinuedTask(WarmTask):
    """The warm stage's task in another order, without an early end, for as many wordpieces as REALM's encoder read (``encoded``)."""

    name = CONTINUED

    def __init__(self, context: StageContext, model: RealmModel):
        super().__init__(context, model)
        each = self.wordpieces_a_step()
        steps = max(1, round(_encoded(context) / each))
        self.section = continued_section(context.recipe, steps)
        self.order = EpochOrder(len(self.pairs.training), self.name, context.seed)
        self.encoded = round(steps * each)


def continued_section(recipe: Recipe, steps: int) -> WarmConfig:
    """The warm stage's section with so many steps, none left out, at pre-training's learning rate: the encoder is no beginner any more."""
    lr, warmup = recipe.pretrain.lr, recipe.pretrain.warmup
    return dataclasses.replace(recipe.warm, steps=steps, least_steps=steps, check_every=max(1, steps), lr=lr, warmup=warmup)


def continued_fingerprint(context: StageContext) -> str:
    """Fingerprint over the encoder it starts from, its section, and how much it is to read."""
    parents = ("warm",) if context.recipe.pretrain.from_warm else ()
    section = json.dumps(dataclasses.asdict(continued_section(context.recipe, 0)), sort_keys=True)
    return stages.fingerprint(context, CONTINUED, *parents, section=section, encoded=str(_encoded(context)))


def run_continued(context: StageContext) -> None:
    """Train the warm encoder on without retrieval, until it has read as many wordpieces as REALM's, and publish it."""
    mark = continued_fingerprint(context)
    if stages.is_published(context, CONTINUED, mark):
        return
    fresh = None if context.recipe.pretrain.from_warm else new_model(context, embeds=False).to(context.device)
    model = fresh or stages.load_stage(context, "warm")
    task = ContinuedTask(context, model)
    steps = stages.train(context, task, task.section, mark)
    stages.publish_stage(context, CONTINUED, model, mark, {"steps": steps, "encoded": task.encoded})


def _encoded(context: StageContext) -> int:
    """Wordpieces that REALM's reader or encoder read."""
    return int(stage_facts(context.paths, "pretrain")["encoded"])


def combined_fingerprint(context: StageContext) -> str:
    """Fingerprint over the two stages that the parts come from."""
    return stages.fingerprint(context, "combined", RETRIEVER, ENCODER)


def run_combined(context: StageContext) -> None:
    """Publish the embedder of stage ``retriever`` with its index and the encoder of stage ``encoder`` as the stage "pretrain"."""
    mark = combined_fingerprint(context)
    if stages.is_published(context, "pretrain", mark):
        return
    encoder = stages.load_stage(context, ENCODER).encoder
    model = stages.load_stage(context, RETRIEVER).with_parts(encoder=encoder)
    number = on_first(lambda: stages.publish_index(context, model).number)
    facts = {part: stage_facts(context.paths, part)["stage"] for part in (RETRIEVER, ENCODER)}
    encoded = stage_facts(context.paths, ENCODER)["encoded"]
    stages.publish_stage(context, "pretrain", model, mark, {"steps": 0, "generation": number, "encoded": encoded, **facts})


CLOZE = "cloze"


class ClozeTask(IctTask):
    """ICT at the retriever's rate for as many wordpieces as REALM's pre-training read while its retriever learnt, or for ``read``."""

    name = CLOZE

    def __init__(self, context: StageContext, model: RealmModel, read: int | None = None):
        super().__init__(context, model)
        each = self.wordpieces_a_step()
        steps = max(1, round((retrieving_wordpieces(context) if read is None else read) / each))
        self.section = cloze_section(context.recipe, steps)
        self.encoded = round(steps * each)


def cloze_section(recipe: Recipe, steps: int) -> IctConfig:
    """The section of ICT with so many steps at pre-training's rates: the embedder is no beginner."""
    section = recipe.pretrain
    return dataclasses.replace(recipe.ict, steps=steps, lr=section.lr * (section.retriever_rate or 1.0), warmup=section.warmup)


def retrieving_wordpieces(context: StageContext) -> float:
    """Wordpieces that REALM's reader or encoder read in the steps in which its retriever learnt."""
    section = context.recipe.pretrain
    return _encoded(context) * (1 - section.reader_first / section.steps)


def reading_wordpieces(context: StageContext) -> int:
    """Wordpieces that it read before: what the rows here share with REALM."""
    return round(_encoded(context) - retrieving_wordpieces(context))


def run_cloze(context: StageContext, read: int | None = None) -> None:
    """Train the published embedder by ICT and publish it; ``read``: wordpieces, where REALM's pre-training is another run's stage."""
    section = json.dumps(stages.counting(dataclasses.asdict(cloze_section(context.recipe, 0))), sort_keys=True)
    more = {} if read is None else {"read": str(read)}
    mark = stages.fingerprint(context, CLOZE, "pretrain", section=section, **more)
    if stages.is_published(context, CLOZE, mark):
        return
    model = published_retriever(context)
    task = ClozeTask(context, model, read)
    steps = stages.train(context, task, task.section, mark)
    stages.publish_stage(context, CLOZE, model, mark, {"steps": steps, "encoded": task.encoded})


def published_retriever(context: StageContext) -> RealmModel:
    """The embedder or embedders that REALM's pre-training started from."""
    return starting_model(context).only("embedder", "document_embedder")


def row_paths(context: StageContext, name: str) -> RunPaths:
    """Place of a row's index: the run itself if REALM's documents stayed as they were published."""
    return context.paths if context.recipe.pretrain.queries_alone else RunPaths(context.paths.root / "compare" / name)


def row_generation(context: StageContext, name: str, model: RealmModel) -> Generation:
    """The index of a row that has none yet: REALM's own of the published documents, or a new one."""
    if not context.recipe.pretrain.queries_alone:
        return stages.publish_index(context, model, row_paths(context, name))
    return stages.stage_generation(context, "pretrain")


def finetune_with(context: StageContext, name: str, retriever: RealmModel, mark: str) -> None:
    """Fine-tune a retriever and what REALM's pre-training left to read with as the stage ``name``."""
    points = context.recipe.finetune.presence > 0
    left = stages.load_stage(context, "pretrain")
    documents = retriever.document_embedder if retriever.has("document_embedder") else None
    found = left.with_parts(embedder=retriever.embedder, document_embedder=documents)
    model = with_new_reader(context, found.fork_document_embedder(), pointer=points).to(context.device)
    generation = row_generation(context, name, model)
    source = LiveSource(stages.source_over(context, model.embedder, generation, row_paths(context, name)), model.embedder)
    task = ReadingTask(name, context, source, model.reader, *training_questions(context))
    facts = train_reader(context, task, mark) | task.calibration()
    stages.publish_stage(context, name, model, mark, {**facts, "generation": generation.number})


def run_published(context: StageContext) -> None:
    """The published embedder, untouched by pre-training, fine-tuned like REALM's."""
    mark = stages.fingerprint(context, "published", "pretrain")
    if not stages.is_published(context, "published", mark):
        finetune_with(context, "published", published_retriever(context), mark)


def run_twin(context: StageContext) -> None:
    """ORQA over published weights: ICT where REALM learns by the marginal likelihood, fine-tuned like REALM's."""
    run_cloze(context)
    mark = stages.fingerprint(context, "orqa", CLOZE)
    if not stages.is_published(context, "orqa", mark):
        finetune_with(context, "orqa", stages.load_stage(context, CLOZE), mark)
