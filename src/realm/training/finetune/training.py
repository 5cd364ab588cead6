"""Training of a fine-tuning task, and the choice of weights to publish: the last, the best, or better ones than before."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from realm.training.context import StageContext, train
from realm.training.finetune.task import DEV_DEPTH, ReadingTask
from realm.training.loop.checkpoint import Verdict, better_of, load_weights, shared_best
from realm.training.loop.task import Task

RECALL = f"dev questions with an answer among the {DEV_DEPTH} best blocks"
EXACT_MATCH = "exact match on dev questions"


def train_reader(context: StageContext, task: ReadingTask, mark: str) -> dict[str, Any]:
    """Train, and load the weights that the recipe publishes into the task's networks. Returns facts for the stage."""
    judged = context.recipe.finetune.publish == "better" and bool(task.dev)
    share = start_share(context, len(task.questions))
    start = {name: value.clone() for name, value in task.model.state_dict().items()} if judged or share else {}
    steps = train(context, task, context.recipe.finetune, mark)
    facts: dict[str, Any] = {"steps": steps, "questions": len(task.questions)}
    facts["skipped_patterns"] = {why: len(patterns) for why, patterns in task.skipped.items()}
    facts |= take_best(context, task)
    if share:
        blend(task.reader, part_of(start, "reader"), share)
        facts["start_share"] = share
    if judged:
        facts["gate"] = keep_better(task, start)
    return facts


def take_best(context: StageContext, task: Task) -> dict[str, Any]:
    """Load the weights with the highest exact match on dev, where the recipe publishes these. Returns their facts."""
    found = shared_best(context.paths.checkpoints(task.name)) if task.best_by else None
    if found is None:
        return {}
    load_weights(found[2], task.model)
    return {"published_step": found[0], "best_dev_em": found[1]}


def keep_better(task: ReadingTask, start: Mapping[str, Tensor]) -> dict[str, Any]:
    """Reset networks that are worse after the stage: the retriever by recall, then over it the reader by exact match.

    Returns ``Verdict.facts`` of each network that learnt, under "retriever" and "reader"."""
    facts = {}
    if task.retriever_learns:
        verdict = Verdict(RECALL, task.recall_before, task.dev_recall())
        if not verdict.improved:
            task.source.load_state_dict(part_of(start, "source"))
        facts["retriever"] = verdict.facts()
    return facts | {"reader": better_of(task.reader, part_of(start, "reader"), EXACT_MATCH, task.dev_em).facts()}


def part_of(start: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Return the weights of one part of a task's networks."""
    return {name.removeprefix(f"{part}."): value for name, value in start.items() if name.startswith(f"{part}.")}


def start_share(context: StageContext, questions: int) -> float:
    """Share of the start in the published reader (``finetune.start_questions``); 0 if it begins as a new one."""
    worth = context.recipe.finetune.start_questions
    taught = context.recipe.pretrain.fill == "pointer" and context.recipe.pretrain.steps > 0 and not context.recipe.finetune.seq2seq
    return worth / (worth + questions) if taught and worth else 0.0


@torch.no_grad()
def blend(network: nn.Module, start: Mapping[str, Tensor], share: float) -> None:
    """Go back by ``share`` of the way to where a network started (Wortsman et al. 2022: weights on the line between them know both)."""
    for name, value in network.state_dict().items():
        if value.is_floating_point():
            value.lerp_(start[name].to(value), share)
