"""Evaluations: of each stage, written to ``results/NAME.json`` once, and ``realm eval`` of a run on question files."""

import hashlib
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence as SequenceOf
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from realm.answering.generative import load_reader
from realm.answering.levels import leveled
from realm.answering.opening import OpenRun, open_run
from realm.errors import ConfigError, require_share, require_some
from realm.evaluation import evaluate
from realm.evaluation.measures import Relevance
from realm.evaluation.places import require_readable
from realm.evaluation.questions.loading import QuestionFile, dataset_names, load_datasets, pooled, read_questions
from realm.evaluation.questions.rows import QuestionOptions
from realm.models.model import RealmModel
from realm.models.types import Question
from realm.progress import Progress
from realm.runs.directory import read_seconds
from realm.search.candidates import Source
from realm.storage.files import files_sha256, publish_file
from realm.storage.layout import RunPaths, has_stage, stage_facts
from realm.storage.manifests import read_note, write_note
from realm.text.matching.patterns import compiled_pattern
from realm.training.context import StageContext, load_stage, publish_index, retrieval_facts, source_over, stage_generation

SHOWN_ANSWERS = 8
"""Answers at most that are kept to be shown, evenly drawn from the file."""
SHOWN_EVIDENCE = ("doc_id", "block_id", "p_z", "p_span", "answer")
LAST_ROWS = 5
"""Log rows over which the marginal utility of a run is averaged: the last 100 steps."""


def evaluate_stage(context: StageContext, stage: str) -> dict[str, Any]:
    """Evaluate a published stage on the recipe's questions, unless that is done: ict, pretrain and finetune."""
    recipe, path = context.recipe, context.paths.results / f"{stage}.json"
    facts, asked = stage_facts(context.paths, stage), files_sha256(recipe.eval_files)
    known = [facts["fingerprint"], asked, list(recipe.eval.k), recipe.read, *retrieval_facts(recipe)]
    mark = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    done = read_note(path)
    if done is not None and done.get("fingerprint") == mark:
        reads_last = "em" in done and (stage == "finetune" or not has_stage(context.paths, "finetune"))
        if not reads_last or (context.paths.results / "answers.json").exists():
            return dict(done)
    score = {"ict": _after_ict, "pretrain": _after_pretrain, "finetune": _after_finetune}[stage]
    found = score(context, pooled(load_datasets(recipe.eval_files)))
    weight = {"weight": recipe.retrieval.weight} if recipe.retrieval_kind == "hybrid" else {}
    row = {"name": stage, "fingerprint": mark, **found, "retrieval": {"kind": recipe.retrieval_kind, **weight}}
    write_note(path, row | {"seconds": read_seconds(context.paths).get(stage)})
    return row


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
    return evaluate.evaluate_retrieval(source, Relevance(context.store), questions, context.recipe.eval.k, context.count)


def _after_pretrain(context: StageContext, questions: list[Question]) -> dict[str, Any]:
    """Zero-shot recall of REALM, with the marginal utility that its training ended with; and answers, where it has taught a reader."""
    generation = stage_generation(context, "pretrain")
    model = load_stage(context, "pretrain")
    source = source_over(context, model.embedder, generation)
    rows = [row["marginal_utility"] for row in context.log.rows() if row["stage"] == "pretrain" and row.get("marginal_utility") is not None]
    last = rows[-LAST_ROWS:]
    row = _recall(context, source, questions) | {"marginal_utility": sum(last) / len(last) if last else None}
    if not model.has("reader"):
        return row
    return row | _answered(context, "pretrain", model, source, questions)


def _answered(context: StageContext, stage: str, model: RealmModel, source: Source, questions: list[Question]) -> dict[str, Any]:
    """Answers of a stage's reader, scored; a few are kept for the report and the page."""
    reader = load_reader(context.paths, stage, model, device=context.device, bf16=context.recipe.run.bf16)
    relevance = Relevance(context.store)
    readings = evaluate.answer_all(
        reader.over(context.inputs, source, versions={}), relevance, questions, context.recipe.read, counting=context.count
    )
    shown = readings[:: -(-len(readings) // SHOWN_ANSWERS)]
    below = reader.abstain_below
    write_note(context.paths.results / "answers.json", [replace(r, answer=leveled(r.answer, below)).to_dict() for r in shown])
    return evaluate.reading_summary(readings)


def _after_finetune(context: StageContext, questions: list[Question]) -> dict[str, Any]:
    model = load_stage(context, "finetune")
    generation = stage_generation(context, "finetune", documents=model.documents)
    source = source_over(context, model.embedder, generation)
    return _recall(context, source, questions) | _answered(context, "finetune", model, source, questions)


ANSWER_RATES = ("em", "em_interval", "regex_em", "f1", "f1_interval", "reader_oracle", "coverage", "selective_em")
SEARCH_RATES = ("recall", "recall_interval", "recall_gold")
"""Rates of one dataset; those of answers are None without a reader."""


@dataclass(frozen=True)
class Wanted:
    """Files to evaluate on, and what to write.

    ``depths`` of recall and ``read`` blocks default to the recipe's; answers below ``abstain_below`` count as abstained; ``predictions``: a
    file of all answers."""

    files: tuple[Path, ...]
    options: QuestionOptions = field(default_factory=QuestionOptions)
    depths: tuple[int, ...] = ()
    read: int = 0
    abstain_below: float = 0.0
    predictions: Path | None = None


@dataclass
class _Found:
    """One dataset's rankings and, where there is a reader, its answers."""

    rankings: list[evaluate.Ranking]
    readings: list[evaluate.JudgedAnswer]


def evaluate_run(root: Path, wanted: Wanted, progress: Progress | None = None) -> dict[str, Any]:
    """The ``eval --json`` object: rates over all questions, by dataset, by language if there are several.

    Without a reader the rates of answers are None. Raises RealmError: a run or file cannot be read, or an option is out of range."""
    _check(wanted)
    named = dict(zip(dataset_names(wanted.files), wanted.files, strict=True))
    files = {name: read_questions(path, wanted.options) for name, path in named.items()}
    run = open_run(root)
    if wanted.predictions is not None:
        run.answerer  # noqa: B018  # says that there is no reader before hours of search
    for file in files.values():
        require_readable(file.path, run.inputs.store, file)
    relevance = Relevance(run.inputs.store)
    depths = wanted.depths or run.recipe.eval.k
    counting = (progress or Progress(quiet=True)).count
    found = {name: _evaluate(run, relevance, file.questions, depths, wanted, counting) for name, file in files.items()}
    if wanted.predictions is not None:
        readings = {name: one.readings for name, one in found.items()}
        # "question" and "prediction" are read by the official evaluation
        rows = ({"dataset": dataset, **_prediction(reading)} for dataset, answered in readings.items() for reading in answered)
        _write(wanted.predictions, (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows))
    languages = _by_language(relevance, found.values())
    every = _Found([r for one in found.values() for r in one.rankings], [r for one in found.values() for r in one.readings])
    return {
        **_rates(every, depths),
        "datasets": {name: _rates(one, depths) for name, one in found.items()},
        "languages": {language: _rates(one, depths) for language, one in languages.items()},
        "abstain_below": wanted.abstain_below,
        **_remarks(run, list(files.values()), relevance),
        "versions": run.versions,
    }


def _check(wanted: Wanted) -> None:
    if not wanted.files:
        raise ConfigError("nothing to evaluate on", cure="Name question files: --qa FILE...")
    require_share("--abstain-below", wanted.abstain_below)
    require_some("--k", min(wanted.depths, default=1))


def _evaluate(
    run: OpenRun, relevance: Relevance, questions: list[Question], depths: SequenceOf[int], wanted: Wanted, counting: Any
) -> _Found:
    rankings = evaluate.rank(run.source, relevance, questions, max(depths), counting=counting)
    if not run.reads:
        return _Found(rankings, [])
    k = run.require_k(wanted.read or run.recipe.read)
    readings = evaluate.answer_all(run.answerer, relevance, questions, k, counting=counting)
    return _Found(rankings, [replace(reading, answer=leveled(reading.answer, wanted.abstain_below)) for reading in readings])


def _by_language(relevance: Relevance, found: Collection[_Found]) -> dict[str, _Found]:
    """Rankings and readings of each language in alphabetical order; empty if there is one language."""
    parts: defaultdict[str, _Found] = defaultdict(lambda: _Found([], []))
    languages = {id(ranking.question): relevance.language(ranking.question) for one in found for ranking in one.rankings}
    for one in found:
        for ranking in one.rankings:
            parts[languages[id(ranking.question)]].rankings.append(ranking)
        for reading in one.readings:
            parts[languages[id(reading.question)]].readings.append(reading)
    return dict(sorted(parts.items())) if len(parts) > 1 else {}


def _rates(found: _Found, depths: SequenceOf[int]) -> dict[str, Any]:
    """Rates of some questions; None where nothing was measured."""
    rates: dict[str, Any] = {"n": 0, **dict.fromkeys((*ANSWER_RATES, *SEARCH_RATES))}
    if found.rankings:
        rates |= evaluate.ranking_summary(found.rankings, depths)
    if found.readings:
        rates |= evaluate.reading_summary(found.readings) | evaluate.selective_facts(found.readings)
    return rates


def _remarks(run: OpenRun, files: list[QuestionFile], relevance: Relevance) -> dict[str, Any]:
    """Counts of cut, skipped, invalid and given-up questions and patterns: they lower the rates without being wrong."""
    questions = [question for file in files for question in file.questions]
    room = run.recipe.model.query_length - 2
    patterns = {answer for question in questions if question.answer_type == "regex" for answer in question.answers}
    return {
        "cut_questions": sum(len(ids) > room for ids in run.inputs.store.tokenizer.encode([q.text for q in questions])),
        "skipped": dict(sum((Counter(file.skipped) for file in files), Counter[str]())),
        "invalid_patterns": sum(compiled_pattern(pattern) is None for pattern in patterns),
        "slow_patterns": len(relevance.patterns.too_slow),
    }


def _prediction(reading: evaluate.JudgedAnswer) -> dict[str, Any]:
    answer, question = reading.answer, reading.question
    return {
        "id": question.id,
        "question": question.text,
        "prediction": answer.answer,
        "p": answer.p,
        "confidence": answer.confidence,
        "abstained": answer.abstained,
        "answers": list(question.answers),
        "answer_type": question.answer_type,
        "correct": reading.correct,
        "f1": reading.f1,
        "evidence": [
            {**{name: getattr(e, name) for name in SHOWN_EVIDENCE}, "start": e.doc_start + e.start, "end": e.doc_start + e.end}
            for e in answer.evidence
        ],
    }


def _write(path: Path, lines: Iterator[str]) -> None:
    with publish_file(path) as file:
        for line in lines:
            file.write((line + "\n").encode("utf-8", "replace"))
