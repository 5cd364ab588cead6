"""``realm ablate``: the rows of an ablation, each stage trained once for all rows that need it; resumable at any point.

``ablations.toml`` has the rows. ``ROOT/corpus`` is shared by all, ``ROOT/stages`` holds a run directory for each stage, named by its
fingerprint, with links to its corpus and parents, so that every command that takes a run takes it; ``ROOT/rows`` holds the measures."""

import dataclasses
import difflib
import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from realm.documents.store.info import corpus_info
from realm.errors import ConfigError, CorpusError, RunError, TrainingError
from realm.progress import Progress
from realm.recipe import Recipe, build_recipe
from realm.report.tables import Finished, ablation_summary, write_ablation
from realm.runs.checks import check_corpus, check_questions, shared_questions
from realm.runs.directory import FREE_RUN_KEYS, alone, build_run_corpus, claim_run, read_seconds, timed
from realm.runs.evaluation import evaluate_stage
from realm.runs.run import open_run_context, tell_corpus, warn_of
from realm.storage.files import make_directory, read_json, write_json
from realm.storage.layout import RunPaths, has_stage, stage_facts
from realm.training.baselines.orqa import combined_fingerprint, continued_fingerprint, run_combined, run_continued
from realm.training.context import StageContext, fingerprint, on_cuda, open_context
from realm.training.finetune.stage import run_finetune
from realm.training.loop.distributed import joined, on_first
from realm.training.pretrain.monitor import utility_gain
from realm.training.pretrain.questions import pretraining_fingerprint
from realm.training.pretrain.stage import run_pretrain
from realm.training.warm import run_ict, run_warm


@dataclass(frozen=True)
class SharedStage:
    """A stage published under ``name`` in the run directory of its context, and the stages it starts from."""

    name: str
    context: StageContext
    parents: tuple["SharedStage", ...]

    @property
    def paths(self) -> RunPaths:
        return self.context.paths

    @property
    def published(self) -> Path:
        return self.paths.stage(self.name)

    def seconds(self) -> float:
        """Seconds of this stage, its evaluation and all stages before it, each counted once."""
        stages: dict[Path, SharedStage] = {}
        waiting = [self]
        while waiting:
            stage = waiting.pop()
            stages[stage.paths.root] = stage
            waiting += stage.parents
        return sum(sum(read_seconds(stage.paths).values()) for stage in stages.values())


@dataclass(frozen=True)
class Job:
    """Recipe of a shared stage: the start of its directory's name, its name, fingerprint and training.

    ``keeps_index``: it searches the index of its parent "pretrain" instead of one of its own."""

    directory: str
    stage: str
    mark: Callable[[StageContext], str]
    train: Callable[[StageContext], None]
    keeps_index: bool = False


@dataclass(frozen=True)
class _Lookup(RunPaths):
    """A run directory whose stages lie elsewhere: fingerprints are asked for before there is a directory to put links into."""

    elsewhere: Mapping[str, Path] = field(default_factory=dict)

    def stage(self, stage: str) -> Path:
        return self.elsewhere[stage]


class SharedStages:
    """Stages under ``root/stages`` on the one corpus in ``root``, which becomes this recipe's."""

    def __init__(self, root: Path, recipe: Recipe, progress: Progress):
        self.paths = RunPaths(root)
        self.progress = progress

        def prepare() -> None:
            claim_run(self.paths, recipe)
            with timed(self.paths, "corpus"):
                build_run_corpus(self.paths, recipe, progress)

        on_first(prepare)
        progress.close()

    def publish(self, job: Job, recipe: Recipe, parents: Mapping[str, SharedStage]) -> SharedStage:
        """The stage of a job under a recipe, found or trained now; ``parents`` by the names under which it looks for them."""
        found = {name: parent.published for name, parent in parents.items()}
        asking = open_context(self.paths, recipe, self.progress.report)
        mark = job.mark(replace(asking, paths=_Lookup(self.paths.root, found)))
        paths = RunPaths(self.paths.root / "stages" / f"{job.directory}-{mark}")
        on_first(lambda: self._furnish(paths, job, recipe, parents))
        stage = SharedStage(job.stage, open_run_context(paths, recipe, self.progress), tuple(parents.values()))
        if not on_first(lambda: has_stage(paths, job.stage)):
            with timed(paths, job.directory):
                job.train(stage.context)
            self.progress.close()  # the next stage of this name is another one
        return stage

    def _furnish(self, paths: RunPaths, job: Job, recipe: Recipe, parents: Mapping[str, SharedStage]) -> None:
        """Make the run directory with links to all that it does not make itself."""
        if has_stage(paths, job.stage):
            return
        make_directory(paths.root)
        _link(paths.corpus, self.paths.corpus)
        if self.paths.sentences.exists():
            _link(paths.sentences, self.paths.sentences)
        for name, parent in parents.items():
            _link(paths.stage(name), parent.published)
        if job.keeps_index:
            _link(paths.index, parents["pretrain"].paths.index)
            _link(paths.params, parents["pretrain"].paths.params)
        claim_run(paths, recipe)


def _link(link: Path, target: Path) -> None:
    """A relative link, so that the whole directory may move."""
    if not link.is_symlink():
        make_directory(link.parent)
        link.symlink_to(os.path.relpath(target, link.parent))


PRETRAINED, BASELINE = "pretrain", "baseline"
REFRESHES = 60
"""Least number of refreshes of a pre-training: an index that is 30 times as stale is then still refreshed twice."""
DEPTHS = (1, 5)
"""Depths of recall that every row is measured at."""

Changes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Ablation:
    """A row: its name, its title, its ``changes`` {section: {key: value}}.

    ``retriever`` and ``encoder`` are PRETRAINED, or BASELINE: ICT's, and the warm encoder trained on without retrieval as long as REALM's;
    ``stale`` multiplies the interval between refreshes."""

    name: str
    title: str
    changes: Changes = field(default_factory=dict)
    retriever: str = PRETRAINED
    encoder: str = PRETRAINED
    stale: int = 1

    @property
    def mixed(self) -> bool:
        """Tell whether a part comes from a baseline."""
        return BASELINE in (self.retriever, self.encoder)


TABLE2, OWN = (
    tuple(Ablation(name, **values) for name, values in rows.items())
    for rows in tomllib.loads((files("realm.experiments") / "ablations.toml").read_text("utf-8")).values()
)
REALM = TABLE2[0]
GROUPS = {"table2": TABLE2, "own": (REALM, *OWN), "all": (*TABLE2, *OWN)}
"""Names of lists of rows; the others are compared with REALM itself."""


def chosen_ablations(names: str) -> tuple[Ablation, ...]:
    """Rows of a comma-separated list of names and groups, each once, in table order. Raises ConfigError: an unknown name, or none."""
    known = {ablation.name: (ablation,) for ablation in GROUPS["all"]} | GROUPS
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=1)
            raise ConfigError(f"no row '{name}'", cure=f"Did you mean '{near[0]}'?" if near else f"Rows are: {', '.join(known)}.")
    if not wanted:
        raise ConfigError("--rows names no row", cure=f"Rows are: {', '.join(known)}.")
    chosen = {ablation.name for name in wanted for ablation in known[name]}
    return tuple(ablation for ablation in GROUPS["all"] if ablation.name in chosen)


def ablation_recipe(recipe: Recipe, ablation: Ablation, seed: int) -> Recipe:
    """The recipe of one row and seed; the trainer itself refreshes the index, at least REFRESHES times by default.

    Raises ConfigError: the row's changes do not fit this recipe, or it has no questions to measure with."""
    if not recipe.eval_files:
        raise ConfigError("no questions to compare the rows by: [eval] qa is empty", cure="Name a question file (JSONL) in the recipe.")
    interval = min(recipe.pretrain.refresh_every, max(1, recipe.pretrain.steps // REFRESHES))
    common: dict[str, dict[str, Any]] = {
        "run": {"seed": seed},
        "pretrain": {"refresh": "inline", "refresh_every": interval * ablation.stale},
        "eval": {"k": sorted({*recipe.eval.k, *DEPTHS})},
    }
    for section, values in ablation.changes.items():
        common[section] = {**common.get(section, {}), **values}
    return build_recipe(asdict(recipe), overrides=common)


WARM = Job("warm", "warm", lambda context: fingerprint(context, "warm"), run_warm)
ICT = Job("ict", "ict", lambda context: fingerprint(context, "ict"), run_ict)
PRETRAIN = Job("pretrain", "pretrain", pretraining_fingerprint, run_pretrain)
CONTINUED = Job("continued", "continued", continued_fingerprint, run_continued)
COMBINED = Job("combined", "pretrain", combined_fingerprint, run_combined)
FINETUNE = Job("finetune", "finetune", lambda context: fingerprint(context, "finetune", "pretrain"), run_finetune, keeps_index=True)


def ablate(recipe: Recipe, root: Path, ablations: Sequence[Ablation], seeds: int, progress: Progress) -> dict[str, Any]:
    """Train and measure every row for every seed, from the recipe's own; what is finished in ``root`` is not repeated.

    Returns :func:`realm.report.tables.ablation_summary`; the table is written after each row.

    Raises ConfigError, CorpusError, DataError: before anything is trained; RunError: another process works here; TrainingError: some rows
    failed, all others are finished."""
    recipes = _recipes(recipe, ablations, seeds)
    with joined(cuda=on_cuda(recipe)):
        check_questions(recipe)
        on_first(lambda: warn_of(shared_questions(recipe), progress))
        with alone(root, "Wait until it has ended; ablation.txt there shows what is finished."):
            shared = SharedStages(root, recipe, progress)
            tell_corpus(corpus_info(shared.paths.corpus), progress)
            _check_rows(shared.paths, ablations, recipes)
            failed = _train_rows(shared, ablations, recipes, lambda: ablation_table(recipe, root, ablations, seeds))
        done = ablation_table(recipe, root, ablations, seeds)
        if failed:
            shown = "; ".join(f"{row}: {problem}" for row, problem in failed.items())
            cure = "The other rows are finished (see ablation.txt there); start again to try these once more."
            raise TrainingError(f"{len(failed)} rows could not be trained: {shown}", path=root, cure=cure)
        return done


def ablation_table(recipe: Recipe, root: Path, ablations: Sequence[Ablation], seeds: int) -> dict[str, Any]:
    """Write and return the table of what is finished; nothing is trained. Raises RunError: ``root`` does not exist."""
    if not root.is_dir():
        raise RunError("no ablation here", path=root, cure="Start one: realm ablate RECIPE --out DIR")
    recipes = _recipes(recipe, ablations, seeds)
    found = {key: _finished(root, *key, recipes[key]) for key in recipes}
    titles = {ablation.name: ablation.title for ablation in ablations}
    summary = ablation_summary(titles, sorted({seed for _, seed in recipes}), [run for run in found.values() if run is not None])
    on_first(lambda: write_ablation(root, summary))
    return {"out": str(root), **summary}


def _recipes(recipe: Recipe, ablations: Sequence[Ablation], seeds: int) -> dict[tuple[str, int], Recipe]:
    """The recipe of each (row, seed): a whole seed first, so that a table is there early."""
    numbers = range(recipe.run.seed, recipe.run.seed + seeds)
    return {(ablation.name, seed): ablation_recipe(recipe, ablation, seed) for seed in numbers for ablation in ablations}


def _check_rows(paths: RunPaths, ablations: Sequence[Ablation], recipes: Mapping[tuple[str, int], Recipe]) -> None:
    """The corpus is large enough for every row: known now, not after days."""
    seed = min(seed for _, seed in recipes)
    for ablation in ablations:
        try:
            check_corpus(paths, recipes[ablation.name, seed])
        except CorpusError as error:
            cure = f"{error.cure} Or leave the row out of --rows."
            raise CorpusError(f"row {ablation.name}: {error.problem}", path=error.path, cure=cure) from error


def _train_rows(
    shared: SharedStages, ablations: Sequence[Ablation], recipes: Mapping[tuple[str, int], Recipe], finished: Callable[[], Any]
) -> dict[str, str]:
    """Every row and seed that is not finished; ``finished`` is called after each. Returns what went wrong, by row and seed."""
    known, failed = {ablation.name: ablation for ablation in ablations}, {}
    for (name, seed), recipe in recipes.items():
        root = shared.paths.root
        if on_first(partial(_finished, root, name, seed, recipe)) is not None:
            continue
        shared.progress.say(f"row {name}, seed {seed}")
        try:
            measures = _measure(shared, known[name], recipe)
        except TrainingError as error:
            failed[f"{name}, seed {seed}"] = error.problem
            shared.progress.say(f"row {name}, seed {seed}: {error}")
            continue
        run = {"row": name, "seed": seed, "recipe": recipe_digest(recipe), **measures}
        on_first(partial(write_json, _row_file(root, name, seed), run))
        finished()
    return failed


def _measure(shared: SharedStages, ablation: Ablation, recipe: Recipe) -> dict[str, Any]:
    """Train what a row needs, and measure it before and after fine-tuning."""
    pretrained = _pretrained(shared, ablation, recipe)
    last = pretrained
    with timed(pretrained.paths, "eval"):
        before = on_first(partial(evaluate_stage, pretrained.context, "pretrain"))
    utility, gain = utility_gain(pretrained.context.log.rows()) or (None, None)  # none if not measured
    after: dict[str, Any] = {}
    if recipe.train_files:
        last = shared.publish(FINETUNE, recipe, {"pretrain": pretrained})
        with timed(last.paths, "eval"):
            after = on_first(partial(evaluate_stage, last.context, "finetune"))
    return {
        **_recalls("", before),
        **_recalls("tuned_", after),
        "em": after.get("em"),
        "em_interval": after.get("em_interval"),
        "f1": after.get("f1"),
        "marginal_utility": before["marginal_utility"],
        "held_out_utility": utility,
        "held_out_gain": gain,
        "tokens": stage_facts(pretrained.paths, "pretrain")["encoded"],
        "seconds": round(last.seconds(), 1),
        "run": str(last.paths.root.relative_to(shared.paths.root)),
    }


def _pretrained(shared: SharedStages, ablation: Ablation, recipe: Recipe) -> SharedStage:
    """The row's stage "pretrain": REALM's own, or one combined of parts."""
    section = recipe.pretrain
    warm = {"warm": shared.publish(WARM, recipe, {})} if section.from_warm else {}
    ict = shared.publish(ICT, recipe, {}) if section.from_ict or ablation.retriever != PRETRAINED else None
    realm = shared.publish(PRETRAIN, recipe, {**warm, **({"ict": ict} if ict and section.from_ict else {})})
    if not ablation.mixed:
        return realm
    retriever = realm if ablation.retriever == PRETRAINED else ict
    encoder = realm if ablation.encoder == PRETRAINED else shared.publish(CONTINUED, recipe, {**warm, "pretrain": realm})
    assert retriever is not None
    return shared.publish(COMBINED, recipe, {"retriever": retriever, "encoder": encoder})


def _recalls(prefix: str, result: Mapping[str, Any]) -> dict[str, float | None]:
    """Recall at 1 and 5 by gold document and by answer."""
    kinds = {"gold": result.get("recall_gold") or {}, "answer": result.get("recall") or {}}
    return {f"{prefix}{kind}_recall_{depth}": values.get(str(depth)) for kind, values in kinds.items() for depth in (1, 5)}


def recipe_digest(recipe: Recipe) -> str:
    """Hash of a finished row's recipe, without what may change at any time."""
    values = dataclasses.asdict(recipe)
    values["run"] = {key: value for key, value in values["run"].items() if key not in FREE_RUN_KEYS}
    del values["refresher"], values["index"], values["write"]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _row_file(root: Path, name: str, seed: int) -> Path:
    return root / "rows" / f"{name}-seed-{seed}.json"


def _finished(root: Path, name: str, seed: int, recipe: Recipe) -> Finished | None:
    """A finished row and seed of this recipe; None where there is none yet."""
    run = read_json(_row_file(root, name, seed))
    return run if isinstance(run, dict) and run.get("recipe") == recipe_digest(recipe) else None
