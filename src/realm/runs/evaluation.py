"""Evaluations of a run, each written to ``results/NAME.json`` once: recall after a stage, answers after fine-tuning."""

import hashlib
import json
import shutil
from dataclasses import replace
from typing import Any

from realm.answering.generative import load_reader
from realm.evaluation.evaluate import answer_all, evaluate_retrieval, reading_summary
from realm.evaluation.measures import Relevance
from realm.evaluation.questions.loading import load_datasets, pooled
from realm.models.model import RealmModel, state_sha256
from realm.models.types import Question
from realm.recipe import Recipe
from realm.runs.directory import read_seconds
from realm.search.candidates import Source, search_weight
from realm.search.publishing.generation import open_generation
from realm.storage.files import files_sha256
from realm.storage.manifests import read_note, write_note
from realm.storage.paths import RunPaths
from realm.training.context import StageContext, load_stage, publish_index, retrieval_facts, source_over, stage_facts

SHOWN = 8
"""Answers at most that are kept to be shown, evenly drawn from the file."""
LAST_ROWS = 5
"""Log rows over which the marginal utility of a run is averaged: the last 100 steps."""


def evaluate_stage(context: StageContext, stage: str) -> dict[str, Any]:
    """Evaluate a published stage on the recipe's questions, unless that is done: ict, pretrain and finetune."""
    recipe, path = context.recipe, context.paths.results / f"{stage}.json"
    facts, asked = stage_facts(context.paths, stage), files_sha256(recipe.eval_files)
    known = [facts["fingerprint"], asked, list(recipe.eval.k), recipe.read, *retrieval_facts(recipe, facts)]
    mark = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    done = read_note(path)
    if done is not None and done.get("fingerprint") == mark:
        return dict(done)
    score = {"ict": _after_ict, "pretrain": _after_pretrain, "finetune": _after_finetune}[stage]
    found = score(context, pooled(load_datasets(recipe.eval_files)))
    row = {"name": stage, "fingerprint": mark, **found, "retrieval": _searched(recipe, facts)}
    write_note(path, row | {"seconds": read_seconds(context.paths).get(stage)})
    return row


def _searched(recipe: Recipe, facts: dict[str, Any]) -> dict[str, Any]:
    """How blocks were found: kind, and the weight if it counts."""
    weight = {"weight": search_weight(recipe.retrieval.weight, facts)} if recipe.retrieval_kind == "hybrid" else {}
    return {"kind": recipe.retrieval_kind, **weight}


def _after_ict(context: StageContext, questions: list[Question]) -> dict[str, Any]:
    """Zero-shot recall of ICT alone, over a temporary index."""
    scratch = context.paths.root / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        generation = publish_index(context, load_stage(context, "ict"), RunPaths(scratch))
        source = source_over(context, generation.queries, generation, RunPaths(scratch))
        return _recall(context, source, questions)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _recall(context: StageContext, source: Source, questions: list[Question]) -> dict[str, Any]:
    return evaluate_retrieval(source, Relevance(context.store), questions, context.recipe.eval.k, context.count)


def _after_pretrain(context: StageContext, questions: list[Question]) -> dict[str, Any]:
    """Zero-shot recall of REALM, with the marginal utility that its training ended with; and answers, where it has taught a reader."""
    number = stage_facts(context.paths, "pretrain")["generation"]
    generation = open_generation(context.paths, context.inputs, number, device=context.device)
    model = load_stage(context, "pretrain")
    source = source_over(context, model.embedder, generation)
    row = _recall(context, source, questions) | {"marginal_utility": last_utility(context)}
    if not model.has("reader"):
        return row
    return row | _answered(context, "pretrain", model, source, questions)


def _answered(context: StageContext, stage: str, model: RealmModel, source: Source, questions: list[Question]) -> dict[str, Any]:
    """What the reader of a stage answers; a few of the answers are kept for the report and the page."""
    reader = load_reader(context.paths, stage, model, device=context.device, bf16=context.recipe.run.bf16)
    relevance = Relevance(context.store)
    readings = answer_all(
        reader.over(context.inputs, source, versions={}), relevance, questions, context.recipe.read, counting=context.count
    )
    shown = readings[:: -(-len(readings) // SHOWN)]
    below = reader.abstain_below
    write_note(context.paths.results / "answers.json", [replace(r, answer=r.answer.abstaining(below)).to_dict() for r in shown])
    return reading_summary(readings)


def last_utility(context: StageContext) -> float | None:
    """Mean marginal utility over the last log rows of pre-training; None when there is none."""
    rows = [row["marginal_utility"] for row in context.log.rows() if row["stage"] == "pretrain" and row.get("marginal_utility") is not None]
    last = rows[-LAST_ROWS:]
    return sum(last) / len(last) if last else None


def _after_finetune(context: StageContext, questions: list[Question]) -> dict[str, Any]:
    model = load_stage(context, "finetune")
    facts = stage_facts(context.paths, "finetune")
    sha = state_sha256(model.documents)
    generation = open_generation(context.paths, context.inputs, facts["generation"], document_embedder_sha256=sha, device=context.device)
    source = source_over(context, model.embedder, generation, facts=facts)
    return _recall(context, source, questions) | _answered(context, "finetune", model, source, questions)
