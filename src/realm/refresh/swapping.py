"""The trainer's side of a refresh: which index it searches from which step on. One class for each mode, one question: ``between``.

``Inline`` does everything in the trainer's process and is bit-reproducible, ``Beside`` asks another process and swaps when the answer is
there, ``Replay`` repeats the swaps that another run took.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from realm.data.blocks import BlockInputs
from realm.errors import SnapshotError, TrainingError
from realm.nn.model import RealmModel
from realm.paths import RunPaths
from realm.refresh.beside import Companion
from realm.refresh.building import ALONE, refresh_index
from realm.refresh.embedding import EmbedOptions, Progress
from realm.refresh.generation import Generation, open_generation
from realm.refresh.locks import publishing
from realm.refresh.parameters import forget_requests, parameters_path, prune_run, read_facts, request_index, requested
from realm.refresh.refresher import Status, read_status
from realm.storage.generations import CURRENT, current_generation

WAIT_SECONDS = 0.05
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Schedule:
    """When.

    Args:
        steps: of the stage.
        every: steps between refreshes; 0: only before the first step and after the last.
        limit: staleness in steps above which the trainer waits for a fresher index.
        deadline: seconds without a sign of the refresher after which waiting is given up.
    """

    steps: int
    every: int
    limit: int = 0
    deadline: float = 600.0

    def due(self, step: int) -> bool:
        return step in (0, self.steps) or bool(self.every and step % self.every == 0)


class Inline:
    """Refreshes in the trainer's process, between two steps.

    Args:
        paths, inputs, device: of the run.
        schedule: when.
        protect: generations that kept checkpoints need, asked before anything is deleted.
        options: how to embed while training; what outlives the stage is always embedded in float32.
        progress: called with (blocks embedded, of all).

    Attributes:
        generation: what is searched; None before the first.
        made_with: CPU threads that embedded it, and whether in bfloat16.
    """

    def __init__(
        self,
        paths: RunPaths,
        inputs: BlockInputs,
        device: torch.device,
        schedule: Schedule,
        protect: Callable[[], frozenset[int]],
        options: EmbedOptions = ALONE,
        progress: Progress | None = None,
    ):
        self.paths = paths
        self.inputs = inputs
        self.device = device
        self.schedule = schedule
        self.protect = protect
        self.options = options
        self.progress = progress
        self.generation: Generation | None = None
        self.made_with = (0, False)

    @property
    def restarts(self) -> int:
        """How often a refresher had to be started again."""
        return 0

    def resume(self, number: int) -> Generation:
        """Go on with the generation that a checkpoint was searching."""
        self.generation = open_generation(self.paths, self.inputs, number, device=self.device)
        return self.generation

    def between(self, step: int, model: RealmModel) -> Generation | None:
        """The generation to search from this step on, if it is another one now."""
        if not self.schedule.due(step):
            return None
        if step == self.schedule.steps:
            return self.settle(step, model)
        return self._here(step, model, self.options)

    def settle(self, step: int, model: RealmModel) -> Generation:
        """The index of the parameters as they are after the last step, in float32: it outlives the stage."""
        return self._here(step, model, ALONE)

    def state(self) -> dict[str, Any]:
        """JSON that a checkpoint carries besides the number of the generation."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""

    def tidy(self) -> None:
        """After the stage: its checkpoints are gone, and the generations that only they needed go too."""
        with publishing(self.paths.index):
            prune_run(self.paths, self.protect())

    def close(self) -> None:
        """End what was started."""

    def _here(self, step: int, model: RealmModel, options: EmbedOptions) -> Generation:
        protect, progress = self.protect(), self.progress
        found = refresh_index(model, self.inputs, self.paths, step=step, protect=protect, options=options, progress=progress)
        self.generation, self.made_with = found, (torch.get_num_threads(), options.bf16)
        return found


class Beside(Inline):
    """Asks a refresher every so many steps and swaps when an answer is there.

    Below the staleness limit a step never waits: it costs one ``stat``. Above, it waits as long as the refresher gets on.

    Args:
        like: what an inline refresh would have: places, schedule, protection.
        companion: the refresher as a child; None: somebody else has started one (``realm refresh RUN``).
        threads: CPU threads of the refresher, for the record.
    """

    def __init__(self, like: Inline, companion: Companion | None, threads: int = 1):
        options = replace(like.options, threads=threads)
        super().__init__(like.paths, like.inputs, like.device, like.schedule, like.protect, options)
        self.companion = companion
        self._seen: tuple[int, int] | None = None
        self._asked = 0  # step of the last request
        self._forgotten = range(0)

    @property
    def restarts(self) -> int:
        return 0 if self.companion is None else self.companion.restarts

    def resume(self, number: int) -> Generation:
        self._forget(above=number)
        generation = super().resume(number)
        self._asked = generation.step
        return generation

    def between(self, step: int, model: RealmModel) -> Generation | None:
        if self.generation is None or step == self.schedule.steps:
            return self.settle(step, model)
        if self.companion is not None:
            self.companion.watch()
        found = self._poll()
        if step > self._asked and self.schedule.due(step):
            self._ask(step, model)
        if found is None and step - self.generation.step > self.schedule.limit:
            found = self._wait(step, model, step - self.schedule.limit)
        return found

    def settle(self, step: int, model: RealmModel) -> Generation:
        if self.companion is not None:
            self.companion.stop()  # this process is the one that publishes now
            return super().settle(step, model)
        if self.generation is None:
            self._forget(above=0)
        self._ask(step, model, exact=True)
        return self._wait(step, model, step, exact=True)

    def tidy(self) -> None:
        if self.companion is not None:  # otherwise somebody else holds the index, and does it when he sees the stage
            super().tidy()

    def close(self) -> None:
        if self.companion is not None:
            self.companion.stop()

    def _forget(self, above: int) -> None:
        """Whatever was asked for after the checkpoint belongs to steps that are forgotten: it must not be swapped in."""
        self._forgotten = forget_requests(self.paths, above)

    def _ask(self, step: int, model: RealmModel, *, exact: bool = False) -> None:
        status = read_status(self.paths.index)
        in_use = () if self.generation is None else (self.generation.number,)
        spare = None if status is None else status.generation
        request_index(model, self.paths, step, protect=self.protect() | {*in_use}, exact=exact, spare=spare)
        self._asked = step

    def _poll(self) -> Generation | None:
        """The newest generation, opened, if it is newer than ours and made by parameters of this run's own steps."""
        try:
            stat = os.stat(self.paths.index / CURRENT)
        except FileNotFoundError:
            return None
        if (stat.st_ino, stat.st_mtime_ns) == self._seen:
            return None
        self._seen = (stat.st_ino, stat.st_mtime_ns)
        newest = current_generation(self.paths.index)
        ours = 0 if self.generation is None else self.generation.number
        if newest is None or newest <= ours or newest in self._forgotten:
            return None
        try:
            self.generation = open_generation(self.paths, self.inputs, newest, device=self.device)
        except SnapshotError as error:
            logger.warning("generation %d cannot be used, the index stays as it is: %s", newest, error)
            return None
        facts = read_facts(parameters_path(self.paths, newest))
        self.made_with = (self.options.threads, self.options.bf16 and not (facts is not None and facts.exact))
        if self.companion is not None:
            self.companion.well()
        return self.generation

    def _wait(self, step: int, model: RealmModel, least: int, *, exact: bool = False) -> Generation:
        """Wait for a generation of parameters that are not older than ``least``. If there is an answer that cannot be used, ask again.

        Raises:
            TrainingError: the refresher gave no sign for the deadline.
        """
        if self._asked < least:
            self._ask(step, model, exact=exact)
        started = heard = time.monotonic()
        said = read_status(self.paths.index)
        while True:
            answered = requested(self.paths) is None
            found = self._poll()
            if found is not None and found.step >= least:
                return found
            if answered:
                self._ask(step, model, exact=exact)
            if self.companion is not None:
                self.companion.watch()
            status = read_status(self.paths.index)
            if status != said:
                said, heard = status, time.monotonic()
            if time.monotonic() - heard > self.schedule.deadline:
                raise TrainingError(_silence(status, time.monotonic() - started), cure="See refresher.log; the run goes on where it was")
            time.sleep(WAIT_SECONDS)


def _silence(status: Status | None, waited: float) -> str:
    """Who says nothing, and over what."""
    if status is None:
        return f"the index is too old and no refresher has started (realm refresh RUN): waited {waited:.0f} s"
    over = "" if status.generation is None else f" over generation {status.generation}, {status.done} of {status.total} blocks"
    return f"the index is too old and the refresher (process {status.pid} on {status.host}) is silent{over}: waited {waited:.0f} s"
