"""Checks before anything is trained: what would fail hours later fails in the first second, naming the file and the cure."""

import os
from pathlib import Path

import torch

from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError, CorpusError, DataError
from realm.evaluation.check import require_readable
from realm.evaluation.questions.loading import dataset_names, load_datasets, load_questions, pooled, shared
from realm.recipe import Recipe
from realm.runs.forecast import meta_model, step_bytes
from realm.storage.paths import RunPaths
from realm.training.baselines.closed_book import written

ROOM = 4
"""So many times this machine's memory may the count be wrong before a run is refused for it."""


def check_memory(recipe: Recipe) -> None:
    """A step of the recipe could fit into this machine, by its configuration. Networks that are published have sizes that were run before.

    Raises:
        ConfigError: it needs several times the memory of the machine and of its largest GPU.
    """
    if recipe.model.body:
        return
    needed = step_bytes(recipe, meta_model(recipe))
    memory = max(machine_memory(), *(torch.cuda.get_device_properties(n).total_memory for n in range(torch.cuda.device_count())), 0)
    if needed > ROOM * memory:
        problem = f"a step of this recipe needs {needed / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f}"
        raise ConfigError(problem, cure="Make [model] or a batch smaller; realm run RECIPE --plan shows the memory of a recipe")


def machine_memory() -> int:
    """Bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_questions(recipe: Recipe) -> None:
    """Refuse question files that cannot be read. Raises ConfigError: one is named twice; DataError: naming file and line."""
    for files in (recipe.train_files, recipe.dev_files, recipe.eval_files):
        dataset_names([Path(file) for file in files])
    for path in question_files(recipe):
        load_questions(path)


def shared_questions(recipe: Recipe) -> str:
    """A line that warns of dev questions that are asked in the evaluation, too; "" where there are none, or nothing is fine-tuned."""
    if not (recipe.train_files and recipe.dev_files and recipe.eval_files):
        return ""
    dev, test = (pooled(load_datasets(files)) for files in (recipe.dev_files, recipe.eval_files))
    if not (both := len(shared(dev, test))):
        return ""
    rest = f"the other {len(dev) - both}" if both < len(dev) else "no questions, so answers have p but no confidence"
    return (
        f"warning: {both} of {len(dev)} questions of finetune.dev are also in eval.qa, so the evaluation is biased, "
        f"and confidence is calibrated on {rest}. Name other questions in finetune.dev: "
        "realm data convert TRAIN --out REST --dev DEV splits some off."
    )


def check_closed_book(recipe: Recipe) -> None:
    """Refuse a closed book that has nothing to write. Raises DataError: all answers are patterns."""
    if not any(written(load_questions(Path(name))) for name in recipe.train_files):
        cure = "Leave it out with --rows, or name questions with answers as strings, too."
        problem = "the closed-book baseline writes answers and cannot learn from patterns alone"
        raise DataError(problem, path=recipe.train_files[0], cure=cure)


def question_files(recipe: Recipe) -> list[Path]:
    """The question files that the recipe names, each once."""
    return [Path(name) for name in dict.fromkeys((*recipe.train_files, *recipe.dev_files, *recipe.eval_files))]


def check_corpus(paths: RunPaths, recipe: Recipe) -> None:
    """The corpus is large enough for the recipe, and every answer is shorter than a block.

    Raises:
        CorpusError: fewer blocks than candidates.
        DataError: an answer that no block can hold.
    """
    store = BlockStore.open(paths.corpus)
    blocks = int(store.live.sum())
    # The origin block is excluded and the null document is a candidate: k candidates need k blocks, or one more without it.
    section = recipe.pretrain
    beside = int(section.exclude and not section.sentences) - int(section.null)
    wanted = {"pretrain.candidates": (section.candidates, beside)} if section.steps else {}
    wanted |= {"eval.read": (recipe.eval.read, 0)} if recipe.eval_files else {}
    wanted |= {"finetune.read": (recipe.finetune.read, 0)} if recipe.train_files else {}
    for key, (k, more) in wanted.items():
        if blocks < k + more:
            cure = (
                f"Add documents, or set {key} = {blocks - more}." if blocks > 1 else "Add documents: one block leaves nothing to retrieve."
            )
            raise CorpusError(f"the corpus has {blocks} blocks, fewer than {key} = {k} needs", path=paths.corpus, cure=cure)
    for path in question_files(recipe):
        require_readable(path, store)
