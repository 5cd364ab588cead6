"""Rows of a comparison: each fine-tunes its own reader from the same weights, steps and seed, so that only the row differs.

A row is a stage of one run, so that rows share the stages they start from, and is measured once: ``RUN/compare/NAME.json``."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from realm.answering.answerer import Answerer
from realm.answering.generative import load_reader
from realm.evaluation.calibration import confidence_facts
from realm.evaluation.evaluate import rank, ranking_summary
from realm.evaluation.measures import Relevance, bootstrap_interval, f1_of, is_correct
from realm.evaluation.questions.loading import Datasets, load_datasets, parts, pooled
from realm.recipe import Recipe
from realm.search.candidates import DenseCandidates
from realm.search.publishing.generation import Generation
from realm.storage.files import files_sha256
from realm.storage.layout import RunPaths, stage_facts
from realm.storage.manifests import read_note, write_note
from realm.training import context as stages
from realm.training.baselines.closed_book import remembered, run_closed_book, share_correct
from realm.training.baselines.orqa import CLOZE, CONTINUED, reading_wordpieces, row_paths, run_continued, run_published, run_twin
from realm.training.baselines.retrievers import Bm25Candidates, HardTask, TfIdfCandidates, WordCandidates, scaled_answerer, train_scaled
from realm.training.beams import LiveSource
from realm.training.context import StageContext
from realm.training.finetune.stage import run_finetune
from realm.training.finetune.task import ReadingTask, q_texts, training_questions
from realm.training.finetune.training import train_reader
from realm.training.starting import with_new_reader

Row = dict[str, Any]


@dataclass(frozen=True)
class Contender:
    """A row: its stage's name, its title, its training (published stages are kept), its measures, and the recipes it suits."""

    name: str
    title: str
    prepare: Callable[[StageContext], None]
    measure: Callable[[StageContext, Datasets], Row]
    suits: Callable[[Recipe], bool] = lambda recipe: True


def run_contender(context: StageContext, contender: Contender) -> Row:
    """Train and measure a row, unless that is done for this recipe, corpus and question files."""
    contender.prepare(context)
    files = context.recipe.eval_files
    facts = stage_facts(context.paths, contender.name)
    known = [
        facts["fingerprint"],
        files_sha256(files),
        list(context.recipe.eval.k),
        context.recipe.read,
        context.store.version,
        *stages.retrieval_facts(context.recipe),
    ]
    mark = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    path = context.paths.root / "compare" / f"{contender.name}.json"
    done: Row | None = read_note(path)
    if done is None or done.get("fingerprint") != mark:
        row = contender.measure(context, load_datasets(files))
        done = {"name": contender.name, "title": contender.title, "fingerprint": mark, **row}
        write_note(path, done)
    return done


def measured(context: StageContext, answerer: Answerer, datasets: Datasets, *, index_bytes: int, networks: list[nn.Module]) -> Row:
    """Recall, answers, time and size of a row that retrieves; ``hits`` are the questions answered right, in order."""
    recipe, questions = context.recipe, pooled(datasets)
    rankings = rank(answerer.source, Relevance(context.store), questions, max(recipe.eval.k), counting=context.count)
    answers = answerer.answer(q_texts(questions), k=recipe.read)
    hits = [is_correct(a.answer, q) for a, q in zip(answers, questions, strict=True)]
    scores = [f1_of(a.answer, q) for a, q in zip(answers, questions, strict=True)]

    def rates(part: slice) -> Row:
        return ranking_summary(rankings[part], recipe.eval.k) | answer_facts(hits[part]) | {"f1": _mean(scores[part])}

    return rates(slice(None)) | {
        "datasets": {name: rates(part) for name, part in parts(datasets).items()},
        **confidence_facts(answers, hits),
        "encoded": int(stage_facts(context.paths, "pretrain").get("encoded", 0)),
        "parameters": count_parameters(networks),
        "index_bytes": index_bytes,
        "ms_per_question": float(np.mean([sum(a.timings_ms.values()) for a in answers])),
    }  # fmt: skip


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def answer_facts(hits: list[bool]) -> Row:
    """EM with its interval, and the hits themselves for paired tests."""
    return {"n": len(hits), "em": sum(hits) / len(hits), "em_interval": list(bootstrap_interval(hits)), "hits": [int(hit) for hit in hits]}


def count_parameters(networks: list[nn.Module]) -> int:
    """Parameters of networks, a shared one once."""
    return sum({id(p): p.numel() for network in networks for p in network.parameters()}.values())


def _learned(
    context: StageContext, stage: str, generation: Generation, datasets: Datasets, *, paths: RunPaths | None = None, dense: bool = False
) -> Row:
    """A fine-tuned retriever and reader, over the generation in ``paths`` or the run; sparse search by the recipe, unless ``dense``."""
    model = stages.load_stage(context, stage)
    source = stages.source_over(context, model.embedder, generation, paths)
    if dense:
        source = DenseCandidates(model.embedder, generation.snapshot, generation.index, context.inputs)
    reader = load_reader(context.paths, stage, model, device=context.device, bf16=context.recipe.run.bf16)
    answerer = reader.over(context.inputs, source, versions={})
    writing = [reader.reader] if isinstance(reader.reader, nn.Module) else []  # which is no part of the model
    return measured(context, answerer, datasets, index_bytes=int(generation.index.info()["bytes"]), networks=[model, *writing])


def _measure_realm(context: StageContext, datasets: Datasets) -> Row:
    generation = stages.stage_generation(context, "finetune", documents=stages.load_stage(context, "finetune").documents)
    return _learned(context, "finetune", generation, datasets)


def _orqa_paths(context: StageContext) -> RunPaths:
    """Place of the index of ICT's embedder: the run's own is REALM's."""
    return RunPaths(context.paths.root / "compare" / "orqa")


def from_stages(recipe: Recipe) -> bool:
    """Tell whether pre-training starts from ICT and the warm stage: ORQA is these two then."""
    return recipe.pretrain.from_ict and recipe.pretrain.from_warm


def over_published(recipe: Recipe) -> bool:
    """Tell whether pre-training continues from published weights, so that there is a published embedder to compare with."""
    return bool(recipe.model.body) and recipe.pretrain.steps > 0


def run_orqa(context: StageContext) -> None:
    """ORQA: ICT's retriever, the warm encoder continued without retrieval; over published weights :func:`run_twin`."""
    if not from_stages(context.recipe):
        run_twin(context)
        return
    run_continued(context)
    mark = stages.fingerprint(context, "orqa", "ict", CONTINUED)
    if stages.is_published(context, "orqa", mark):
        return
    encoder = stages.load_stage(context, CONTINUED).encoder
    start = stages.load_stage(context, "ict").with_parts(encoder=encoder)
    generation = stages.publish_index(context, start, _orqa_paths(context))
    model = with_new_reader(context, start.fork_document_embedder()).to(context.device)
    over = DenseCandidates(model.embedder, generation.snapshot, generation.index, context.inputs)
    source = LiveSource(over, model.embedder)
    task = ReadingTask("orqa", context, source, model.reader, *training_questions(context))
    facts = train_reader(context, task, mark) | task.calibration()
    stages.publish_stage(context, "orqa", model, mark, {**facts, "generation": generation.number})


def _measure_beside(context: StageContext, name: str, datasets: Datasets, encoded: int) -> Row:
    """A row beside REALM over published weights; ``encoded``: wordpieces that its retriever read besides what both share."""
    paths = row_paths(context, name)
    generation = stages.stage_generation(context, name, paths, stages.load_stage(context, name).documents)
    return _learned(context, name, generation, datasets, paths=paths) | {"encoded": reading_wordpieces(context) + encoded}


def _measure_orqa(context: StageContext, datasets: Datasets) -> Row:
    if not from_stages(context.recipe):
        return _measure_beside(context, "orqa", datasets, int(stage_facts(context.paths, CLOZE)["encoded"]))
    generation = stages.stage_generation(context, "orqa", _orqa_paths(context))
    row = _learned(context, "orqa", generation, datasets, dense=True)
    return row | {"encoded": int(stage_facts(context.paths, CONTINUED)["encoded"])}


def _scaled(name: str, title: str, make: type[WordCandidates], learning: type[ReadingTask] = ReadingTask) -> Contender:
    """A row whose retriever does not learn."""

    def prepare(context: StageContext) -> None:
        mark = stages.fingerprint(context, name, "pretrain")
        if not stages.is_published(context, name, mark):
            train_scaled(context, name, make(context.inputs), mark, learning)

    def measure(context: StageContext, datasets: Datasets) -> Row:
        source = make(context.inputs)
        answerer = scaled_answerer(context, name, source)
        return measured(
            context, answerer, datasets, index_bytes=source.index_bytes(), networks=[source, stages.load_stage(context, name).reader]
        )

    return Contender(name, title, prepare, measure)


def _measure_closed_book(context: StageContext, datasets: Datasets) -> Row:
    """The closed book has no retriever: no recall, no index; its training-set EM shows whether it can learn at all."""
    model, questions = stages.load_stage(context, "closed_book"), pooled(datasets)
    started = time.perf_counter()
    hits = share_correct(context, model, questions)
    seconds = time.perf_counter() - started
    return answer_facts(hits) | {
        "recall": None, "recall_gold": None, "f1": None, "train_em": remembered(context, model),
        "datasets": {name: answer_facts(hits[part]) for name, part in parts(datasets).items()},
        "encoded": int(stage_facts(context.paths, "closed_book")["encoded"]),
        "parameters": count_parameters([model]),
        "index_bytes": 0,
        "ms_per_question": 1000 * seconds / len(questions),
    }  # fmt: skip


CONTENDERS = (
    _scaled("tfidf", "TF-IDF + reader", TfIdfCandidates),
    _scaled("bm25", "BM25 + reader", Bm25Candidates),
    _scaled("hardem", "HardEM: BM25 + reader", Bm25Candidates, HardTask),
    Contender(
        "published", "Published embedder", run_published, lambda own, asked: _measure_beside(own, "published", asked, 0), over_published
    ),
    Contender("orqa", "ORQA (ICT only)", run_orqa, _measure_orqa, lambda recipe: from_stages(recipe) or over_published(recipe)),
    Contender("finetune", "REALM", run_finetune, _measure_realm),
    Contender("closed_book", "Closed book", run_closed_book, _measure_closed_book),
)
