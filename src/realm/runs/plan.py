"""``realm run --plan``: what a run will take, from the corpus and a few real steps of every stage on a fresh model."""

import dataclasses
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from realm.documents.store.info import corpus_info
from realm.documents.workers import usable_cores
from realm.evaluation.questions.loading import load_datasets, pooled
from realm.models.bodies.body import freeze_words
from realm.models.fusion import FusionReader
from realm.models.model import RealmModel, part_sizes
from realm.models.types import Question
from realm.progress import Progress
from realm.recipe import Recipe, load_recipe
from realm.runs.checks import FLOAT_BYTES, check_corpus, check_questions, machine_memory, meta_model, step_bytes
from realm.runs.directory import build_run_corpus, claim_run
from realm.runs.run import tell_corpus
from realm.search.index.choice import make_index
from realm.search.publishing.embedding import EmbedOptions, embed_corpus
from realm.search.publishing.generation import Generation
from realm.search.publishing.parameters import KEEP_GENERATIONS
from realm.search.publishing.refresher import snapshot_facts
from realm.search.publishing.snapshot import Snapshot
from realm.search.publishing.writing import publish_snapshot
from realm.storage.files import bytes_below, make_directory
from realm.storage.paths import RunPaths
from realm.training.beams import LiveSource
from realm.training.context import StageContext, open_context, source_over
from realm.training.finetune.task import DEV_QUESTIONS, GeneratingTask, ReadingTask, training_questions
from realm.training.ict import IctTask
from realm.training.loop.checkpoint import CheckpointDirectory
from realm.training.loop.loop import fit
from realm.training.loop.task import LoopOptions, Metrics, StepResult, Task
from realm.training.order import WHOLE, Share
from realm.training.pretrain.score import evaluate_held_out
from realm.training.pretrain.stage import with_what_fills
from realm.training.pretrain.task import PretrainTask
from realm.training.starting import new_model, with_new_reader
from realm.training.warm import WarmTask

TIMED_STEPS = 3
"""Real steps timed for each stage; the first, which warms caches, does not count."""
TIMED_BLOCKS = 128
"""Blocks embedded to learn how long the whole corpus takes."""
TIMED_SENTENCES = 32
"""Held-out sentences filled to learn how long all take."""
TIMED_QUESTIONS = 32
"""Questions answered to learn how long an evaluation takes."""


def plan(recipe: Recipe | Path, out: Path, *, progress: Progress | None = None) -> dict[str, Any]:
    """Forecast of a run's time, memory and disk; of ``out`` only the places of answers are written, for the run.

    The run's corpus is used, or one is built and thrown away. On a CPU times are processor time. If a step does not fit into this machine
    nothing is measured and no file is read.

    Returns {"not_measured": None or why, "retrieval", "rates": :func:`rates_by_part`, "parameters", "step_bytes"} and, if measured,
    {"corpus", "teaches", "advice", "stages": {name: {"steps", "seconds_per_step", "seconds", refreshes, evaluations, seconds_located}},
    "seconds", "memory_bytes": this process's peak, "disk_bytes"}; warm may end before its last step."""
    loaded = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    quiet = progress or Progress(quiet=True)
    model, memory = meta_model(loaded), machine_memory()
    needed = step_bytes(loaded, model)
    told = {"retrieval": loaded.retrieval_kind, "rates": rates_by_part(loaded), "parameters": part_sizes(model), "step_bytes": needed}
    if needed > memory:
        return {"not_measured": f"a step needs {needed / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f}", **told}
    check_questions(loaded)
    with tempfile.TemporaryDirectory(prefix="realm-plan-") as scratch:
        paths = RunPaths(Path(scratch))
        claim_run(paths, loaded)
        kept = RunPaths(Path(out))
        if kept.corpus.is_dir():
            make_directory(kept.answers)
        for there, here in ((kept.corpus, paths.corpus), (kept.sentences, paths.sentences), (kept.answers, paths.answers)):
            if there.is_dir():
                here.symlink_to(there.resolve())
        seconds = _alone(lambda: build_run_corpus(paths, loaded, quiet))
        facts = corpus_info(paths.corpus)
        tell_corpus(facts, quiet)
        check_corpus(paths, loaded)
        context = open_context(paths, loaded, lambda *_: None)
        probe = _Probe(context, quiet)
        stages = {"corpus": {"seconds": seconds}, **probe.stages()}
        return {
            "not_measured": None,
            **told,
            "parameters": probe.parameters,
            "corpus": facts,
            "teaches": facts["teaches"],
            "advice": facts["advice"],
            "stages": stages,
            "seconds": sum(stage["seconds"] for stage in stages.values()),
            "memory_bytes": peak_memory(),
            "disk_bytes": _disk(context, probe.parameters, probe.model.documents.spec.projection),
        }


def working_clock(device: torch.device) -> Callable[[], float]:
    """Seconds of work: on a CPU those of this thread, which takes part in every product; else the wall clock's."""
    return time.thread_time if device.type == "cpu" else time.perf_counter


def _alone(work: Callable[[], object]) -> float:
    """Seconds that ``work``, in this process and others that it starts and ends, would take on all cores without other jobs beside it."""
    started, before = time.perf_counter(), os.times()
    work()
    wall, after = time.perf_counter() - started, os.times()
    own = after.user + after.system - before.user - before.system
    others = after.children_user + after.children_system - before.children_user - before.children_system
    return min(wall, max(own, (own + others) / usable_cores()))


def peak_memory() -> int:
    """The most memory this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class _Timed(Task):
    """A task without what it does between steps; notes by a clock when each step began and ended."""

    def __init__(self, task: Task, clock: Callable[[], float], begin: int):
        self.clock, self.begin = clock, begin
        self.task = task
        self.name = task.name
        self.model = task.model
        self.marks: list[float] = []

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        return self.task.step(self.begin + step, share)

    def between(self, step: int) -> Metrics | None:
        self.marks.append(self.clock())
        return None


class _Probe:
    """A few timed steps of every stage on a fresh model and a random index of the corpus's size."""

    def __init__(self, context: StageContext, progress: Progress):
        self.context = context
        self.progress = progress
        self.clock = working_clock(context.device)
        self.model: RealmModel = new_model(context, sample=TIMED_BLOCKS).to(context.device)
        self.parameters = part_sizes(self.model)
        self.generation = self._generation()

    def stages(self) -> dict[str, dict[str, Any]]:
        """Steps and seconds of each training stage."""
        recipe, context, model = self.context.recipe, self.context, self.model
        refresh = self._refresh_seconds()
        rows = {}
        if recipe.pretrain.from_warm:
            rows["warm"] = self._time(WarmTask(context, model.with_parts(embedder=None)), recipe.warm.steps)
        if recipe.pretrain.from_ict:
            rows["ict"] = self._time(IctTask(context, model.with_parts(encoder=None)), recipe.ict.steps)
        if recipe.pretrain.steps:
            task = PretrainTask(context, with_what_fills(context, model))
            task.generation = self.generation
            rows["pretrain"] = self._time_phases(task, recipe.pretrain.steps)
            refreshes = pretraining_refreshes(recipe)
            rows["pretrain"] |= {"refreshes": refreshes, "seconds_per_refresh": round(refresh, 3)}
            rows["pretrain"]["seconds"] += refreshes * refresh
            if task.queries.held_out:
                self._add_evaluations(rows["pretrain"], task)
        else:
            rows["pretrain"] = {"steps": 0, "seconds": refresh}
        if recipe.train_files:
            rows |= self._with_questions()
        return rows

    def _add_evaluations(self, row: dict[str, Any], task: PretrainTask) -> None:
        """Those on held-out sentences: before the first step, every so many steps, after the last."""
        section = self.context.recipe.pretrain
        evaluations, sample = 1 + -(-section.steps // section.eval_every), task.queries.held_out_queries()[:TIMED_SENTENCES]
        started = self.clock()
        evaluate_held_out(task.view, sample, section.batch)
        each = (self.clock() - started) * len(task.queries.held_out) / len(sample)
        row |= {"evaluations": evaluations, "seconds_per_evaluation": round(each, 3)}
        row["seconds"] += evaluations * each

    def _with_questions(self) -> dict[str, dict[str, Any]]:
        """Fine-tuning with its looks at the dev questions, the evaluation at its end."""
        recipe, (questions, dev) = self.context.recipe, training_questions(self.context)
        started = self.clock()
        task = self._reading_task(questions)
        located = self.clock() - started
        rows = {"finetune": self._time(task, recipe.finetune.steps)}
        answering = self._seconds_per_answer(task, questions)
        looks = -(-recipe.finetune.steps // recipe.finetune.eval_every)
        rows["finetune"]["seconds"] += looks * min(len(dev), DEV_QUESTIONS) * answering
        rows["finetune"] |= {"seconds_located": round(located, 3)}
        rows["finetune"]["seconds"] += located
        if recipe.eval_files:
            rows["eval"] = {"seconds": len(pooled(load_datasets(recipe.eval_files))) * answering}
        return rows

    def _seconds_per_answer(self, task: ReadingTask, questions: list[Question]) -> float:
        texts = [question.text for question in questions[:TIMED_QUESTIONS]]
        started = self.clock()
        task.answerer.answer(texts, k=self.context.recipe.read)
        return (self.clock() - started) / len(texts)

    def _time_phases(self, task: Task, steps: int) -> dict[str, Any]:
        """Time the first and the last steps, if other networks learn in them."""
        last = task.phase(steps - 1, steps)[0]
        rows = [self._time(task, last), self._time(task, steps - last, begin=last)] if last else [self._time(task, steps)]
        seconds = sum(row["seconds"] for row in rows)
        return {"steps": steps, "seconds_per_step": round(seconds / steps, 4), "seconds": seconds}

    def _time(self, task: Task, steps: int, begin: int = 0) -> dict[str, Any]:
        """Seconds of so many steps, by a few from ``begin`` on."""
        if self.context.recipe.model.freeze_words:
            freeze_words(task.model)
        self.progress.count(f"plan: {task.name}", 0, TIMED_STEPS)
        timed = _Timed(task, self.clock, begin)
        options = LoopOptions(
            steps=TIMED_STEPS, lr=1e-4, warmup=0, log_every=TIMED_STEPS, checkpoint_every=0, device=self.context.device.type
        )
        run = self.context.recipe.run
        options = dataclasses.replace(options, bf16=run.bf16, seed=run.seed, optimizer=run.optimizer)
        checkpoints = CheckpointDirectory(self.context.paths.checkpoints("probe"), fingerprint="probe")
        fit(timed, options, log=self.context.log, checkpoints=checkpoints, report=self.context.report)
        each = float(np.median(np.diff(timed.marks)[1:]))
        self.progress.count(f"plan: {task.name}", TIMED_STEPS, TIMED_STEPS)
        return {"steps": steps, "seconds_per_step": round(each, 4), "seconds": steps * each}

    def _generation(self) -> Generation:
        """A random index: a search takes as long in it as in a trained one, and embedding everything would take too long for a plan."""
        store, dim = self.context.store, self.model.documents.spec.projection
        ids = np.asarray(store.block_ids)[np.flatnonzero(store.live)]
        vectors = np.random.default_rng(0).standard_normal((len(ids), dim), np.float32)
        embedder, index = self.model.documents, self.context.paths.index
        facts = snapshot_facts(store, np.flatnonzero(store.live), "", params_generation=1, step=0)
        publish_snapshot(index, vectors, ids, facts)
        snapshot = Snapshot.open(index, corpus_id=facts.corpus_id, tokenizer_sha256=facts.tokenizer_sha256, document_embedder_sha256=None)
        kind = self.context.recipe.index.kind
        return Generation(snapshot, embedder, lambda of: make_index(of.vectors, of.block_ids, kind=kind))

    def _reading_task(self, questions: list[Question]) -> ReadingTask:
        context, section = self.context, self.context.recipe.finetune
        model = with_new_reader(context, self.model.fork_document_embedder(), seed=0).to(context.device)
        source = LiveSource(source_over(context, model.embedder, self.generation), model.embedder)
        if section.seq2seq:
            return GeneratingTask(context, source, FusionReader.load(Path(section.seq2seq)).to(context.device), questions, [])
        return ReadingTask("finetune", context, source, model.reader, questions, [])

    def _refresh_seconds(self) -> float:
        """Embedding the whole corpus, from a sample of it."""
        rows = np.flatnonzero(self.context.store.live)
        sample = rows[:: max(1, len(rows) // TIMED_BLOCKS)][:TIMED_BLOCKS]
        started = self.clock()
        options = EmbedOptions(bf16=self.context.recipe.run.bf16).lasting(self.model.documents)
        embed_corpus(self.model.documents, self.context.inputs, sample, bf16=options.bf16)
        return (self.clock() - started) * len(rows) / len(sample)


def _disk(context: StageContext, parameters: dict[str, int], dim: int) -> int:
    """Bytes of the run directory at its fullest: corpus, stages, two checkpoints with AdamW's state, generations with their embedder."""
    corpus = bytes_below(context.paths.corpus.resolve())
    embedder, encoder = parameters["embedder"], parameters.get("encoder") or parameters["reader"]
    both = embedder + encoder
    stages = encoder + embedder + both + (2 * embedder + encoder if context.recipe.train_files else 0)
    vectors = int(context.store.live.sum()) * dim
    return corpus + FLOAT_BYTES * (stages + 2 * 3 * both + KEEP_GENERATIONS * (vectors + embedder))


def rates_by_part(recipe: Recipe) -> dict[str, dict[str, float]]:
    """The highest learning rate of each network in each stage that trains; the word table's apart where it stays as it is."""
    pretrain, finetune = recipe.pretrain, recipe.finetune
    reads = "reader" if pretrain.fill == "pointer" else "encoder"
    rates = {
        "warm": (recipe.warm.steps * pretrain.from_warm, {"encoder": recipe.warm.lr}),
        "ict": (recipe.ict.steps * pretrain.from_ict, {"retriever": recipe.ict.lr}),
        "pretrain": (pretrain.steps, {"retriever": pretrain.lr * pretrain.retriever_rate, reads: pretrain.lr}),
        "finetune": (finetune.steps, {"retriever": finetune.lr * finetune.retriever_rate, "reader": finetune.lr}),
    }
    words = {"words": 0.0} if recipe.model.freeze_words else {}
    return {stage: {**parts, **words} for stage, (steps, parts) in rates.items() if steps}


def pretraining_refreshes(recipe: Recipe) -> int:
    """Most embeddings of the corpus in pre-training: one if the documents stay as they are."""
    section = recipe.pretrain
    if section.queries_alone:
        return 1
    learning = sum(map(section.retriever_learns, range(section.steps)))
    return 1 + (min(1, learning) if section.refresh == "frozen" else -(-learning // section.refresh_every))
