"""What the paper's Table 2 sets beside REALM: an encoder trained on without retrieval, and a model of parts of different origin."""

import dataclasses
import json

from realm.models.model import RealmModel
from realm.recipe import Recipe, WarmConfig
from realm.training.context import StageContext, fingerprint, is_published, load_stage, publish_index, publish_stage, stage_facts, train
from realm.training.loop.distributed import on_first
from realm.training.order import EpochOrder
from realm.training.starting import new_model
from realm.training.warm import WarmTask

CONTINUED, RETRIEVER, ENCODER = "continued", "retriever", "encoder"


class ContinuedTask(WarmTask):
    """The task of the warm stage in another order, without an earlier end, for as many wordpieces as REALM's encoder read.

    Attributes:
        encoded: wordpieces that it reads in all its steps, reckoned from a sample.
    """

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
    """What the stage depends on: the encoder it starts from, its section, and how much it is to read."""
    parents = ("warm",) if context.recipe.pretrain.from_warm else ()
    section = json.dumps(dataclasses.asdict(continued_section(context.recipe, 0)), sort_keys=True)
    return fingerprint(context, CONTINUED, *parents, section=section, encoded=str(_encoded(context)))


def run_continued(context: StageContext) -> None:
    """Train the warm encoder on without retrieval until it has read as many wordpieces as REALM's encoder did, and publish it.

    It continues the task of the warm stage: masked sentences with a block that answers, so that it forgets nothing of how to read.
    """
    mark = continued_fingerprint(context)
    if is_published(context, CONTINUED, mark):
        return
    fresh = None if context.recipe.pretrain.from_warm else new_model(context, embeds=False).to(context.device)
    model = fresh or load_stage(context, "warm")
    task = ContinuedTask(context, model)
    steps = train(context, task, task.section, mark)
    publish_stage(context, CONTINUED, model, mark, {"steps": steps, "encoded": task.encoded})


def _encoded(context: StageContext) -> int:
    """Wordpieces that REALM's encoder read."""
    return int(stage_facts(context.paths, "pretrain")["encoded"])


def combined_fingerprint(context: StageContext) -> str:
    """What the combination depends on: the two stages that its parts come from."""
    return fingerprint(context, "combined", RETRIEVER, ENCODER)


def run_combined(context: StageContext) -> None:
    """Publish the embedder of stage ``retriever`` with its index and the encoder of stage ``encoder`` as the stage "pretrain"."""
    mark = combined_fingerprint(context)
    if is_published(context, "pretrain", mark):
        return
    encoder = load_stage(context, ENCODER).encoder
    model = load_stage(context, RETRIEVER).with_parts(encoder=encoder)
    number = on_first(lambda: publish_index(context, model).number)
    facts = {part: stage_facts(context.paths, part)["stage"] for part in (RETRIEVER, ENCODER)}
    encoded = stage_facts(context.paths, ENCODER)["encoded"]
    publish_stage(context, "pretrain", model, mark, {"steps": 0, "generation": number, "encoded": encoded, **facts})
