"""``realm run``: corpus, warm, ict, pretrain, finetune, eval. Each stage is resumable, and skipped when its result is published.
``--plan`` trains nothing: parameters and memory of a recipe, and whether its corpus can teach."""

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from realm.documents.store.info import corpus_info
from realm.errors import ConfigError
from realm.models.model import part_sizes
from realm.progress import Progress
from realm.recipe import Recipe, load_recipe
from realm.report import write_report
from realm.report.diagnoses import Diagnosis, attainable_share, diagnoses
from realm.runs.checks import check_corpus, check_memory, check_questions, machine_memory, meta_model, shared_questions, step_bytes
from realm.runs.directory import alone, build_run_corpus, claim_run, read_seconds, timed
from realm.runs.evaluation import evaluate_stage
from realm.runs.needed_index import whole_index
from realm.storage.layout import RunPaths, list_files
from realm.storage.metrics import MetricsLog, rounded
from realm.training.context import StageContext, on_cuda, open_context
from realm.training.finetune.stage import run_finetune
from realm.training.loop.distributed import joined, on_first
from realm.training.loop.loop import Report
from realm.training.loop.task import Metrics
from realm.training.pretrain.stage import run_pretrain
from realm.training.refresh.index_source import STALE_REFRESHES
from realm.training.warm import run_ict, run_warm

Clock = Callable[[str], AbstractContextManager[None]]
"""Adds the time of a block to that of a stage."""


def alarms_of(recipe: Recipe, blocks: int) -> tuple[Diagnosis, ...]:
    """Diagnoses that ring in runs of a recipe on a corpus of so many blocks. An index that is meant to stay never is too old."""
    section = recipe.pretrain
    limit = 0 if section.refresh in ("frozen", "inline") else STALE_REFRESHES * section.refresh_every
    return diagnoses(attainable=attainable_share(blocks, section.batch, section.candidates), staleness_limit=limit)


class Alarms:
    """A report callback that hands everything on and speaks up once for each trouble, again only after it had gone.

    An alarm is said and logged as a row {"alarm", "problem", "cure"}. Earlier rows are read back from the log, so that a resumed run raises
    the alarms of an uninterrupted one."""

    def __init__(self, report: Report, say: Callable[[str], None], log: MetricsLog, table: tuple[Diagnosis, ...]):
        self._report = report
        self._say = say
        self._log = log
        self._alarms = [diagnosis for diagnosis in table if diagnosis.told]
        self._seen: dict[str, dict[str, int]] = {}
        self._highest: dict[str, float] = {}

    def __call__(self, stage: str, step: int, steps: int, metrics: Metrics) -> None:
        self._report(stage, step, steps, metrics)
        if stage not in self._seen:
            self._seen[stage] = {}
            earlier = [row for row in self._log.rows() if row["stage"] == stage and "alarm" not in row]
            for row in earlier[:-1]:
                self._raised(stage, row["step"], steps, row)
        for alarm, value in self._raised(stage, step, steps, metrics):
            problem = f"{alarm.told.format(value=value)}: {alarm.problem}"
            self._say(f"warning: step {step}: {problem}. {alarm.cure}")
            self._log.write(stage, step, alarm=alarm.name, problem=problem, cure=alarm.cure)

    def _raised(self, stage: str, step: int, steps: int, metrics: Metrics) -> list[tuple[Diagnosis, float]]:
        """The stage's alarms whose trouble has just lasted for their number of rows, each with the number that shows it."""
        seen, raised = self._seen[stage], []
        for alarm in self._alarms:
            if alarm.stage != stage or metrics.get(alarm.column) is None:
                continue
            value = rounded(metrics[alarm.column])  # as the log rounds: what is read back must count as it did
            if alarm.from_highest:
                highest = self._highest[alarm.name] = max(value, self._highest.get(alarm.name, value))
                value -= highest
            seen[alarm.name] = seen.get(alarm.name, 0) + 1 if alarm.shows(value, step / max(1, steps)) else 0
            if seen[alarm.name] == alarm.rows:
                raised.append((alarm, value))
        return raised


STAGES = ("corpus", "warm", "ict", "pretrain", "finetune", "eval")
WITHOUT_QUESTIONS = (
    "No questions to learn from ([finetune] train is empty): the run ends after pre-training. It finds documents already: "
    'realm index search {run} "..."; to continue, name question files in the recipe and run the same command again.'
)


def run_recipe(
    recipe: Recipe | str | Path, out: str | Path, *, stages: tuple[str, ...] | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Run the stages of a recipe in a directory; finished stages are not repeated.

    >>> done = run_recipe("recipes/own-documents.toml", "runs/mine", stages=("corpus", "pretrain"))  # doctest: +SKIP
    >>> done["stages"]["pretrain"]["seconds"]  # doctest: +SKIP
    1804.2

    Args:
        recipe: a recipe or its file.
        stages: which of ``STAGES``; None for all.

    Returns {"run", "seconds", "corpus": corpus_info, "stages": {name: {"seconds", and its results}}, "skipped": [reason]}.

    Raises RunError: another process trains here; RealmError: the user can cure it, and the same call continues from the checkpoint."""
    for name in stages or ():
        if name not in STAGES:
            raise ConfigError(f"no stage '{name}'", cure=f"Stages are: {', '.join(STAGES)}.")
    wanted = tuple(name for name in STAGES if stages is None or name in stages)
    loaded = recipe if isinstance(recipe, Recipe) else load_recipe(Path(recipe))
    progress = progress or Progress()
    with joined(cuda=on_cuda(loaded)):
        paths = RunPaths(Path(out))
        if set(wanted) - {"corpus"}:
            check_memory(loaded)
            check_questions(loaded)
            on_first(lambda: warn_of(shared_questions(loaded), progress))
        with alone(paths.root, "Wait until it has ended; realm report shows how far it is."):
            on_first(lambda: claim_run(paths, loaded))
            return _run(loaded, paths, wanted, progress, partial(timed, paths))


def warn_of(problem: str, progress: Progress) -> None:
    """Say a line, if there is one to say."""
    if problem:
        progress.say(problem)


def _run(loaded: Recipe, paths: RunPaths, wanted: tuple[str, ...], progress: Progress, clock: Clock) -> dict[str, Any]:
    """Run the stages on each rank: the first one builds, writes and speaks, all of them train."""
    if "corpus" in wanted:
        with clock("corpus"):
            on_first(lambda: build_run_corpus(paths, loaded, progress))
    tell_corpus(corpus_info(paths.corpus), progress)
    results: dict[str, dict[str, Any]] = {}
    skipped: list[str] = []
    if set(wanted) - {"corpus"}:
        check_corpus(paths, loaded)
        on_first(lambda: whole_index(paths.root, progress, progress.say))
        results, skipped = _train(open_run_context(paths, loaded, progress), wanted, clock)
        on_first(lambda: list_files(paths))
        on_first(lambda: str(write_report(paths)))
    progress.close()
    for reason in skipped:
        progress.say(reason)
    seconds = read_seconds(paths)
    ran = [name for name in STAGES if name in seconds]
    shown = {name: {"seconds": seconds[name], **results.get(name, {})} for name in ran}
    done = {"run": str(paths.root), "seconds": sum(seconds.values()), "corpus": corpus_info(paths.corpus)}
    return {**done, "stages": shown, "skipped": skipped}


def tell_corpus(facts: dict[str, Any], progress: Progress) -> None:
    """Size, and the share that foretells failure better than any loss."""
    progress.say(
        f"corpus: {facts['documents']:,} documents, {facts['blocks']:,} blocks, {facts['spans']:,} salient spans; "
        f"{facts['single_block_span_share']:.0%} of the spans are in one block only"
    )
    if facts["rejected"]:
        progress.say("corpus: left out: " + ", ".join(f"{count} {reason}" for reason, count in facts["rejected"].items()))
    if not facts["teaches"]:
        progress.say(f"warning: this corpus cannot teach a retriever. {facts['advice']}.")


def open_run_context(paths: RunPaths, recipe: Recipe, progress: Progress) -> StageContext:
    """The context of a run directory's stages, with alarms and log."""
    blocks = corpus_info(paths.corpus)["blocks"]
    log = MetricsLog(paths.metrics)
    return open_context(
        paths, recipe, Alarms(progress.report, progress.say, log, alarms_of(recipe, blocks)), progress.say, progress.count_long, log
    )


TRAIN: dict[str, Callable[[StageContext], None]] = {"warm": run_warm, "ict": run_ict, "pretrain": run_pretrain, "finetune": run_finetune}


def _train(context: StageContext, wanted: tuple[str, ...], clock: Clock) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Every wanted stage with its evaluation. Returns results by name, and why stages were skipped."""
    results: dict[str, dict[str, Any]] = {}
    skipped: list[str] = []
    recipe, paths = context.recipe, context.paths
    used = {"ict": recipe.pretrain.from_ict, "warm": recipe.pretrain.from_warm}
    for stage in wanted:
        if not used.get(stage, True):
            skipped.append(f"{stage}: skipped, pretrain.from_{stage} is false.")
        elif stage in ("finetune", "eval") and not recipe.train_files:
            skipped += [] if skipped else [WITHOUT_QUESTIONS.format(run=paths.root)]
        elif stage in TRAIN:
            with clock(stage):
                TRAIN[stage](context)
            if stage in ("ict", "pretrain") and recipe.eval_files:
                with clock("eval"):
                    results[stage] = on_first(partial(evaluate_stage, context, stage))
        elif stage == "eval" and not recipe.eval_files:
            skipped.append("No questions to evaluate on ([eval] qa is empty): eval was skipped.")
        elif stage == "eval":
            with clock("eval"):
                results["finetune"] = on_first(partial(evaluate_stage, context, "finetune"))
    return results, skipped


def plan(recipe: Recipe | Path, out: Path, *, progress: Progress | None = None) -> dict[str, Any]:
    """The ``run --plan --json`` object; ``out`` stays as it is.

    The run's corpus is used, or one is built and thrown away. If a step does not fit into this machine no file is read.

    Returns {"not_measured": None or why, "retrieval", "parameters", "step_bytes"} and, if it fits, {"corpus", "teaches", "advice"}."""
    loaded = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    quiet = progress or Progress(quiet=True)
    model, memory = meta_model(loaded), machine_memory()
    needed = step_bytes(loaded, model)
    told = {"retrieval": loaded.retrieval_kind, "parameters": part_sizes(model), "step_bytes": needed}
    if needed > memory:
        return {"not_measured": f"a step needs {needed / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f}", **told}
    check_questions(loaded)
    with tempfile.TemporaryDirectory(prefix="realm-plan-") as scratch:
        paths = RunPaths(Path(out))
        if not paths.corpus.is_dir():
            paths = RunPaths(Path(scratch))
            claim_run(paths, loaded)
            build_run_corpus(paths, loaded, quiet)
        facts = corpus_info(paths.corpus)
        tell_corpus(facts, quiet)
        check_corpus(paths, loaded)
    return {"not_measured": None, **told, "corpus": facts, "teaches": facts["teaches"], "advice": facts["advice"]}
