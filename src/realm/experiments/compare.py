"""``realm compare``: the baselines beside REALM, like the paper's Table 1. Every row and every seed is resumable; stages are shared."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from realm.errors import ConfigError, require_package
from realm.progress import Progress
from realm.recipe import Recipe
from realm.report.tables import comparison, write_comparison
from realm.runs.checks import check_closed_book
from realm.runs.directory import alone
from realm.runs.run import STAGES, run_recipe
from realm.search.publishing.parameters import lend_index
from realm.storage.files import make_directory
from realm.storage.layout import RunPaths, stage_facts
from realm.storage.manifests import read_note
from realm.training.baselines.rows import CONTENDERS, Contender, run_contender
from realm.training.context import open_context
from realm.training.loop.distributed import world

SHARED_FILES = ("corpus", "sources.json", "sentences", "sentences.json")
"""Files that runs of the same recipe and another seed share."""
TRAINED_STAGES = tuple(stage for stage in STAGES if stage != "eval")
"""The stages of each run; the row realm is the evaluation of its fine-tuning."""

UNSUITED = {
    "published": "no pre-training starts from published weights (model.body, pretrain.steps)",
    "orqa": "it is ICT and the warm stage, of which one is skipped, or pre-training over published weights (model.body, pretrain.steps)",
}


def compare(recipe: Recipe, out: Path, *, rows: Sequence[str] = (), seeds: int = 1, progress: Progress) -> dict[str, Any]:
    """Train and measure rows of ``CONTENDERS`` (default: all that suit) for ``seeds`` from the recipe's own, in runs ``out/seed-N``.

    What is published or measured is not repeated. Returns :func:`realm.report.tables.comparison`.

    Raises ConfigError: no questions, no such row, or no seed; MissingExtra: a row needs one; RunError: another process compares here;
    RealmError: the same call continues."""
    chosen = chosen_rows(rows, recipe)
    _check(recipe, chosen, seeds)
    found: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in chosen}
    with alone(out, "Wait until it has ended; compare.txt there says what is finished."):
        for number in range(seeds):
            seed = recipe.run.seed + number
            own = dataclasses.replace(recipe, run=dataclasses.replace(recipe.run, seed=seed))
            paths = RunPaths(out / f"seed-{seed}")
            _share(RunPaths(out / f"seed-{recipe.run.seed}"), paths, recipe.pretrain.queries_alone)
            run_recipe(own, paths.root, stages=TRAINED_STAGES, progress=progress)
            context = open_context(paths, own, progress.report, progress.say, progress.count_long)
            for contender in chosen:
                row = run_contender(context, contender)
                found[contender.name].append({"seed": seed, **row, "zero_shot": _zero_shot(paths, contender.name)})
                progress.say(f"compare: seed {seed}, {contender.title}: EM {100 * row['em']:.1f}")
                write_comparison(out, comparison({name: rows for name, rows in found.items() if rows}))
    return {"out": str(out), **comparison(found)}


def chosen_rows(names: Sequence[str], recipe: Recipe) -> list[Contender]:
    """Rows by name in table order, "realm" for "finetune"; none named: all that suit. Raises ConfigError: an unknown or unsuited one."""
    wanted = {"finetune" if name == "realm" else name for name in names}
    known = [contender.name for contender in CONTENDERS]
    for name in sorted(wanted - set(known)):
        listed = ", ".join("realm" if row == "finetune" else row for row in known)
        raise ConfigError(f"no row '{name}' in a comparison", cure=f"Rows are: {listed}.")
    suiting = [contender for contender in CONTENDERS if contender.suits(recipe)]
    for name in sorted(wanted - {contender.name for contender in suiting}):
        raise ConfigError(f"the row {name} has nothing to start from in this recipe: {UNSUITED[name]}", cure="Leave it out with --rows.")
    return [contender for contender in suiting if not wanted or contender.name in wanted]


def _check(recipe: Recipe, chosen: Sequence[Contender], seeds: int) -> None:
    if seeds < 1:
        raise ConfigError(f"--seeds {seeds}: no seed to train with", cure="Give 1 or more.")
    if not recipe.train_files or not recipe.eval_files:
        cure = "Name question files in [finetune] train and in [eval] qa."
        raise ConfigError("a comparison needs training questions and evaluation questions", cure=cure)
    if any(c.name == "closed_book" for c in chosen):
        check_closed_book(recipe)
    if world() > 1:
        raise ConfigError("a comparison runs in one process", cure="Start it without torchrun; train its runs with torchrun first.")
    if {"tfidf", "bm25", "hardem"} & {c.name for c in chosen}:
        require_package("bm25s", "a row of this comparison", "bm25")


def _share(first: RunPaths, paths: RunPaths, still: bool) -> None:
    """Let a run of another seed use the first one's corpus, and its index where documents are ``still``: neither depends on the seed."""
    if first.root == paths.root or paths.corpus.exists():
        return
    make_directory(paths.root)
    for name in SHARED_FILES:
        there, here = first.root / name, paths.root / name
        if there.exists() and not here.exists():
            here.symlink_to(os.path.relpath(there, paths.root), target_is_directory=there.is_dir())
    if still:
        lend_index(first, paths, stage_facts(first, "pretrain")["generation"])


def _zero_shot(paths: RunPaths, name: str) -> dict[str, Any] | None:
    """Recall before fine-tuning, of the two rows whose retriever is pre-trained here."""
    stage = {"orqa": "ict", "finetune": "pretrain"}.get(name)
    row = read_note(paths.results / f"{stage}.json") if stage else None
    return {key: row.get(key) for key in ("recall", "recall_gold")} if isinstance(row, dict) else None
