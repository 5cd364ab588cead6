"""Checks before anything is trained: what would fail hours later fails in the first second, naming the file and the cure."""

import importlib.util
from pathlib import Path

from realm.config import Recipe
from realm.corpus.blocks import BlockStore
from realm.data.check import require_readable
from realm.data.qa import load_questions
from realm.errors import CorpusError, MissingExtra
from realm.paths import RunPaths


def check_questions(recipe: Recipe, *, baselines: bool = True) -> None:
    """Every question file of the recipe can be read.

    Args:
        recipe: the recipe.
        baselines: whether the baselines will run, if the recipe wants them.

    Raises:
        DataError: naming file and line.
        MissingExtra: the baselines need one.
    """
    for path in question_files(recipe):
        load_questions(path)
    if baselines and recipe.eval.baselines and importlib.util.find_spec("bm25s") is None:
        raise MissingExtra("the BM25 baseline", "bm25")


def question_files(recipe: Recipe) -> list[Path]:
    """The question files that the recipe names, each once."""
    names = (recipe.finetune.train, recipe.finetune.dev, *recipe.asked)
    return [Path(name) for name in dict.fromkeys(names) if name]


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
    wanted = {"pretrain.candidates": (section.candidates, beside), "eval.read": (recipe.eval.read, 0)}
    wanted |= {"finetune.read": (recipe.finetune.read, 0)} if recipe.finetune.train else {}
    for key, (k, more) in wanted.items():
        if blocks < k + more:
            cure = (
                f"Add documents, or set {key} = {blocks - more}." if blocks > 1 else "Add documents: one block leaves nothing to retrieve."
            )
            raise CorpusError(f"the corpus has {blocks} blocks, fewer than {key} = {k} needs", path=paths.corpus, cure=cure)
    for path in question_files(recipe):
        require_readable(path, store)
