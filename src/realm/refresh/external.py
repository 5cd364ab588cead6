"""``realm refresh RUN``: a refresher started by hand, by a job scheduler, or on another machine that sees the run directory."""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from realm.config import Recipe, load_recipe
from realm.data.blocks import open_inputs
from realm.paths import RunPaths
from realm.refresh.embedding import PartsOf, Progress, embed_parts
from realm.refresh.locks import publishing
from realm.refresh.parameters import prune_run, requested
from realm.refresh.refresher import Refresher
from realm.refresh.refresher_process import embed_options
from realm.stages import has_stage, require_run


def open_recipe(root: Path) -> tuple[RunPaths, Recipe]:
    """The places of a run that can be refreshed, and its recipe.

    Raises:
        RunError: no run here, or one of another version.
    """
    paths = RunPaths(root)
    require_run(paths)
    return paths, load_recipe(paths.config)


def serve_run(root: Path, *, once: bool, say: Callable[[str], None], progress: Progress, parts_of: PartsOf = embed_parts) -> None:
    """Answer a trainer's requests until pre-training has ended.

    Args:
        once: end when nothing is asked for.
        say: gets a line when it starts and when it ends.
        progress: gets (blocks done, blocks).
        parts_of: who embeds.

    Raises:
        RunError: no run here.
        SnapshotError: another process builds this index, or the disk refuses.
    """
    paths, recipe = open_recipe(root)
    wanted = recipe.run.device
    device = wanted if wanted != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(recipe.refresher.threads)
    inputs = open_inputs(paths.corpus, recipe.model.query_length)
    refresher = Refresher(paths, inputs, embed_options(recipe.refresher, device, bf16=recipe.run.bf16), progress, parts_of)
    say(f"refreshing the index of {root}; end it with Ctrl-C")

    def ended() -> bool:
        return requested(paths) is None and (once or has_stage(paths, "pretrain"))

    refresher.serve(ended, time.sleep)
    if has_stage(paths, "pretrain"):
        with publishing(paths.index):
            prune_run(paths, frozenset())  # what the last checkpoints needed: nobody goes back to them
    say("nothing is asked for" if once else "pre-training has ended")
