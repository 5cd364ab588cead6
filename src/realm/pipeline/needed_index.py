"""The generation of the index that a run's last stage searches: what it is made of, and how it is rebuilt if it is damaged."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from realm.data.blocks import open_inputs
from realm.errors import RunError, SnapshotError
from realm.nn.model import RealmModel
from realm.opening import read_run_recipe
from realm.paths import RunPaths
from realm.progress import Progress
from realm.refresh import EmbedOptions, open_generation
from realm.refresh.mending import IndexParts, rebuild
from realm.stages import has_stage, stage_facts

STAGES = ("finetune", "pretrain")
"""Stages whose networks search, the last one first."""


def index_parts(paths: RunPaths, progress: Progress) -> IndexParts | None:
    """What the index of a run is made of; None in a run that has none.

    Raises:
        RealmError: recipe, corpus or the facts of the last stage are damaged.
    """
    if not paths.corpus.is_dir():
        return None
    recipe = read_run_recipe(paths)
    inputs = open_inputs(paths.corpus, recipe.model.query_length)
    last = next((stage for stage in STAGES if has_stage(paths, stage)), None)
    needed = None if last is None else stage_facts(paths, last).get("generation")
    networks = partial(_networks, paths, last, queries_alone=recipe.pretrain.queries_alone)
    options = EmbedOptions(bf16=recipe.run.bf16, threads=recipe.run.threads)
    return IndexParts(paths, inputs, needed, networks, options, partial(progress.count, "index: blocks embedded"))


def _networks(paths: RunPaths, stage: str | None, *, queries_alone: bool) -> RealmModel:
    """The embedder of the documents as the last stage has it."""
    if stage is None or (stage == "pretrain" and queries_alone):
        raise RunError("no stage holds the networks that embedded the documents", path=paths.root)
    model = RealmModel.from_pretrained(paths.stage(stage))
    return model.with_parts(embedder=model.documents, document_embedder=None, encoder=None, reader=None)


def restore_index(run: Path, progress: Progress) -> bool:
    """Build the generation that a run's last stage searches again, under its number.

    Returns:
        Whether there is one.

    Raises:
        RealmError: what it is made of is damaged, too.
    """
    parts = index_parts(RunPaths(run), progress)
    return parts is not None and rebuild(parts)


def whole_index(run: Path, progress: Progress, say: Callable[[str], None]) -> None:
    """See that the generation which a run's last stage searches is whole, every byte of it; where it is not, build it again.

    Args:
        say: gets a line where it is built again.

    Raises:
        RealmError: what it is made of is damaged, too; or another process builds the index.
    """
    parts = index_parts(RunPaths(run), progress)
    if parts is None or parts.needed is None:
        return
    try:
        open_generation(parts.paths, parts.inputs, parts.needed)
    except SnapshotError as error:
        say(f"index: {error.problem}; generation {parts.needed}, which the last stage searches, is rebuilt")
        rebuild(parts)
