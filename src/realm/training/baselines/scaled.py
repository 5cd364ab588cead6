"""Readers on retrievers that do not learn: the same reader, initial weights, steps and seed as REALM's, on their own candidates."""

import numpy as np
import torch
from torch import nn

from realm.answering.answerer import Answerer, Confidence
from realm.models import losses
from realm.training.baselines.retrievers import Bm25Candidates, ScaledSource
from realm.training.context import StageContext, is_published, load_stage, publish_stage, stage_facts
from realm.training.finetune.task import ReadingTask, training_questions
from realm.training.finetune.training import train_reader
from realm.training.starting import with_new_reader

SCALES = 2.0 ** (np.arange(-16, 17) / 2)
"""Where the scale of scores may start, half a doubling apart."""
SCALED_BY = 64
"""Questions that decide where it starts."""
ENOUGH = 0.05
"""Nats for which no larger scale is taken: where every answer is found first, the loss falls forever."""


def train_scaled(context: StageContext, name: str, source: ScaledSource, mark: str) -> None:
    """Fine-tune a reader and the scale of the scores as the stage ``name``, unless that is done."""
    if is_published(context, name, mark):
        return
    model = with_new_reader(context, load_stage(context, "pretrain")).to(context.device)
    questions, dev = training_questions(context)
    task = ReadingTask(name, context, source.to(context.device), model.reader, questions, dev)
    nn.init.constant_(source.scale, starting_scale(task))
    facts = train_reader(context, task, mark) | task.calibration() | {"scale": float(source.scale.detach())}
    publish_stage(context, name, model.with_parts(embedder=None, document_embedder=None), mark, facts)


@torch.inference_mode()
def starting_scale(task: ReadingTask) -> float:
    """The smallest of ``SCALES`` whose retriever loss on some training questions is within ``ENOUGH`` of the least; 1 if nothing is found.

    A step moves the scale by little, and the scores of one retriever are a hundred times as large as those of another: begun at 1, TF-IDF's
    would drown the reader for as long as it learns, and the row would say so of the start and not of TF-IDF.
    """
    assert isinstance(task.source, ScaledSource)
    nn.init.ones_(task.source.scale)
    items = np.unique(np.linspace(0, len(task.questions) - 1, SCALED_BY).astype(int)).tolist()
    wide, correct = task.wide(items, [task.tokens[i] for i in items])
    scores, valid = wide.scores.double().cpu(), wide.valid.cpu()
    some = losses.retriever_marginal(scores, correct, valid)[1]
    if not bool(some.any()):
        return 1.0
    loss = np.array([float(losses.retriever_marginal(scores * scale, correct, valid)[0][some].mean()) for scale in SCALES])
    return float(SCALES[int(np.argmax(loss <= loss.min() + ENOUGH))])


def scaled_answerer(context: StageContext, name: str, source: ScaledSource) -> Answerer:
    """Answers by the published reader of stage ``name`` on its source."""
    facts, model = stage_facts(context.paths, name), load_stage(context, name)
    source.scale = nn.Parameter(torch.tensor(float(facts["scale"])))
    bf16 = context.recipe.run.bf16
    return Answerer(context.inputs, source, model.reader, versions={}, confidence=Confidence.stated(facts), bf16=bf16)


def bm25_candidates(context: StageContext) -> Bm25Candidates:
    """BM25 over the run's live blocks."""
    return Bm25Candidates(context.inputs, np.flatnonzero(context.store.live))
