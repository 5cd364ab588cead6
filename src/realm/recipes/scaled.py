"""Readers on retrievers that do not learn: the same reader, initial weights, steps and seed as REALM's, on their own candidates."""

from typing import Any

import torch
from torch import nn

from realm.answerer import Answerer
from realm.candidates import ScaledSource
from realm.recipes.context import StageContext, is_published, load_stage, publish_stage, stage_facts
from realm.recipes.reading import ReadingTask, train_reader, training_questions


def train_scaled(context: StageContext, name: str, source: ScaledSource, mark: str) -> dict[str, Any]:
    """Fine-tune a reader and the scale of the scores as the stage ``name``, unless that is done. Returns the stage's facts."""
    if not is_published(context, name, mark):
        model = load_stage(context, "pretrain").with_reader(context.seed).to(context.device)
        assert model.reader is not None
        questions, dev = training_questions(context)
        task = ReadingTask(name, context, source.to(context.device), model.reader, questions, dev)
        facts = train_reader(context, task, mark) | task.calibration() | {"scale": float(source.scale.detach())}
        publish_stage(context, name, model.with_parts(embedder=None, document_embedder=None), mark, facts)
    return stage_facts(context.paths, name)


def scaled_answerer(context: StageContext, name: str, source: ScaledSource) -> Answerer:
    """Answers by the published reader of stage ``name`` on its source."""
    facts, model = stage_facts(context.paths, name), load_stage(context, name)
    source.scale = nn.Parameter(torch.tensor(float(facts["scale"])))
    assert model.reader is not None
    return Answerer(context.inputs, source, model.reader, versions={}, temperature=facts.get("temperature"))
