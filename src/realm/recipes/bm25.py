"""BM25 + reader: the same reader, initial weights, steps and seed as REALM's, on BM25's candidates (design decision 19)."""

import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from realm.answerer import Answerer
from realm.candidates import Bm25Candidates
from realm.data.qa import load_questions
from realm.paths import write_json
from realm.recipes.context import StageContext, fingerprint, is_published, load_stage, publish_stage, stage_facts
from realm.recipes.evaluate import evaluate_answers, evaluate_retrieval
from realm.recipes.finetune import ReadingTask, train_reader, training_questions
from realm.recipes.scoring import Relevance
from realm.train.distributed import on_first


def bm25_candidates(context: StageContext) -> Bm25Candidates:
    """BM25 over the run's live blocks."""
    return Bm25Candidates(context.inputs, np.flatnonzero(context.store.live))


def run_bm25(context: StageContext) -> None:
    """Fine-tune a reader on BM25's candidates and write recall and EM to ``results/bm25.json``."""
    started = time.perf_counter()
    source = bm25_candidates(context)
    mark = fingerprint(context, "bm25", "pretrain")
    if not is_published(context, "bm25", mark):
        model = load_stage(context, "pretrain").with_reader(context.seed).to(context.device)
        assert model.reader is not None
        questions, dev = training_questions(context)
        task = ReadingTask("bm25", context, source.to(context.device), model.reader, questions, dev)
        facts = train_reader(context, task, mark) | task.calibration() | {"scale": float(source.scale.detach())}
        publish_stage(context, "bm25", model.with_parts(embedder=None), mark, facts)
    on_first(lambda: _evaluate(context, source, started))


def _evaluate(context: StageContext, source: Bm25Candidates, started: float) -> None:
    """Write recall and EM on the evaluation questions."""
    model = load_stage(context, "bm25")
    source.scale = nn.Parameter(torch.tensor(float(stage_facts(context.paths, "bm25")["scale"])))
    assert model.reader is not None
    relevance = Relevance(context.store)
    test = load_questions(Path(context.recipe.eval.qa))
    row = evaluate_retrieval(source, relevance, test, context.recipe.eval.k)
    answerer = Answerer(context.inputs, source, model.reader, versions={})
    row |= evaluate_answers(answerer, relevance, test, read=context.recipe.read)
    write_json(context.paths.results / "bm25.json", {"name": "bm25", **row, "seconds": time.perf_counter() - started})
