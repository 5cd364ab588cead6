"""BM25 + reader: the same reader, initial weights, steps and seed as REALM's, on BM25's candidates, so that only the retriever differs."""

import time

import numpy as np

from realm.candidates import Bm25Candidates
from realm.data.questions import load_datasets, pooled
from realm.recipes.baselines.scaled import scaled_answerer, train_scaled
from realm.recipes.context import StageContext, fingerprint
from realm.recipes.evaluate import evaluate_answers, evaluate_retrieval
from realm.recipes.scoring import Relevance
from realm.storage.files import write_json
from realm.train.distributed import on_first


def bm25_candidates(context: StageContext) -> Bm25Candidates:
    """BM25 over the run's live blocks."""
    return Bm25Candidates(context.inputs, np.flatnonzero(context.store.live))


def run_bm25(context: StageContext) -> None:
    """Fine-tune a reader on BM25's candidates and write recall and EM to ``results/bm25.json``."""
    started = time.perf_counter()
    source = bm25_candidates(context)
    train_scaled(context, "bm25", source, fingerprint(context, "bm25", "pretrain"))
    on_first(lambda: _evaluate(context, source, started))


def _evaluate(context: StageContext, source: Bm25Candidates, started: float) -> None:
    """Write recall and EM on the evaluation questions."""
    answerer = scaled_answerer(context, "bm25", source)
    relevance = Relevance(context.store, context.recipe.eval.match)
    test = pooled(load_datasets(context.recipe.eval_files))
    row = evaluate_retrieval(source, relevance, test, context.recipe.eval.k, context.count)
    row |= evaluate_answers(answerer, relevance, test, context.recipe.read, context.count)
    write_json(context.paths.results / "bm25.json", {"name": "bm25", **row, "seconds": time.perf_counter() - started})
