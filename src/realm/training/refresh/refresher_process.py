"""The refresher as a child of the trainer: started, watched, started again, and never left behind.

``python -m realm.training.refresh.refresher_process RUN DEVICE`` ends when its standard input does, however the trainer ends."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from realm.errors import RealmError, TrainingError
from realm.progress import Advance
from realm.recipe import Recipe, RefresherConfig, load_recipe
from realm.search.blocks import open_inputs
from realm.search.publishing.embedding import EmbedOptions, PartsOf, embed_parts
from realm.search.publishing.parameters import prune_run, publishing, requested
from realm.search.publishing.refresher import Refresher
from realm.storage.layout import RunPaths, has_stage, require_run
from realm.storage.processes import end_with_stdin, python

NICE = 10
"""Nice level of a refresher beside the trainer."""
RESTARTS = 5
"""In a row, without a generation published in between."""
STOP_SECONDS = 10.0
LOG = "refresher.log"
logger = logging.getLogger(__name__)


def embed_options(refresher: RefresherConfig, device: str, *, bf16: bool) -> EmbedOptions:
    """A refresher's embedding options: its recipe's, by default where the trainer computes."""
    return EmbedOptions(1, refresher.devices or (() if device == "cpu" else (device,)), refresher.threads, bf16)


class RefresherProcess:
    """The trainer's handle on its refresher, which writes to ``refresher.log``; ``restarts``: how often it was started again."""

    def __init__(self, paths: RunPaths, threads: int, device: str):
        self.restarts = 0
        self._paths = paths
        self._threads = threads
        self._device = device
        self._process: subprocess.Popen[bytes] | None = None
        self._in_a_row = 0
        self._not_before = 0.0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def reset_failures(self) -> None:
        """It has published something: the deaths before that count no more."""
        self._in_a_row = 0

    def watch(self) -> None:
        """Start it if it does not run, at the cost of one ``waitpid``. Raises TrainingError: ``RESTARTS`` deaths in a row."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None and self._not_before == 0.0:
            self._in_a_row += 1
            words = f"the refresher (process {self._process.pid}) died with code {self._process.returncode}: {self._last_words()}"
            if self._in_a_row > RESTARTS:
                log = self._paths.root / LOG
                cure = f"Fix the problem shown in {log}, or set pretrain.refresh to inline; the run continues from its checkpoint"
                raise TrainingError(words, cure=cure)
            logger.warning("%s; restarting it (%d of %d)", words, self._in_a_row, RESTARTS)
            self._not_before = time.monotonic() + 0.1 * 2**self._in_a_row
        if time.monotonic() >= self._not_before:
            if self._process is not None:
                self.restarts += 1
                self._process.communicate()  # it has ended: closes the pipe
            self._start()

    def stop(self) -> None:
        """End it: first by closing its standard input, then by force."""
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=STOP_SECONDS)  # closes the pipe and waits
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._threads), "MKL_NUM_THREADS": str(self._threads)}
        command = python("realm.training.refresh.refresher_process", str(self._paths.root), self._device)
        with open(self._paths.root / LOG, "ab") as log:
            # A session of its own: Ctrl-C in the terminal is the trainer's to answer.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env=environment, start_new_session=True
            )
        self._not_before = 0.0

    def _last_words(self) -> str:
        try:
            lines = (self._paths.root / LOG).read_text("utf-8", errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it said nothing"


def main(root: Path, device: str) -> int:
    """The child: refresh until the parent has gone. Returns the exit code."""
    end_with_stdin()
    try:
        paths = RunPaths(root)
        recipe = load_recipe(paths.config)
        os.nice(NICE)
        torch.set_num_threads(recipe.refresher.threads)
        inputs = open_inputs(paths.corpus, recipe.model.query_length)
        Refresher(paths, inputs, embed_options(recipe.refresher, device, bf16=recipe.run.bf16)).serve(lambda: False)
    except (RealmError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))


def open_recipe(root: Path) -> tuple[RunPaths, Recipe]:
    """Places and recipe of a run that can be refreshed. Raises RunError: no run here, or one of another version."""
    paths = RunPaths(root)
    require_run(paths)
    return paths, load_recipe(paths.config)


def serve_run(root: Path, *, once: bool, say: Callable[[str], None], progress: Advance, parts_of: PartsOf = embed_parts) -> None:
    """Answer a trainer's requests until pre-training has ended, or with ``once`` until nothing is asked for; ``parts_of`` embeds.

    Raises RunError: no run here; SnapshotError: another process builds this index, or the disk refuses."""
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
    say("no index is requested" if once else "pre-training has ended")
