"""The index that a trainer searches: one interface for every mode of refresh.

``Inline`` embeds in the trainer's process and is bit-reproducible; ``AsyncRefresh`` asks another process. With several ranks (``Ranked``)
the first one proposes a generation by its number before each step, and the others open it, so every rank maps the same files."""

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch

from realm.errors import SnapshotError, TrainingError
from realm.models.model import RealmModel
from realm.progress import Advance
from realm.search.blocks import BlockInputs
from realm.search.publishing.embedding import IN_PROCESS, EmbedOptions
from realm.search.publishing.generation import Generation, open_generation
from realm.search.publishing.parameters import forget_requests, prune_run, publishing, request_index, requested
from realm.search.publishing.refresher import Status, read_status, refresh_index
from realm.storage.generations import CURRENT, current_generation
from realm.storage.layout import RunPaths
from realm.training.loop.distributed import is_first, on_first, world
from realm.training.refresh.refresher_process import RefresherProcess

STALE_REFRESHES = 5
"""Refreshes that an index may miss before the trainer waits for a fresher one."""


@dataclass(frozen=True)
class Schedule:
    """Steps of a stage, steps between refreshes (0: none), staleness ``limit`` in steps, seconds of silence before giving up."""

    steps: int
    every: int
    limit: int = 0
    deadline: float = 600.0

    def due(self, step: int) -> bool:
        return step in (0, self.steps) or bool(self.every and step % self.every == 0)


@dataclass(frozen=True)
class RefreshContext:
    """A stage's facts for its refreshes, whichever process embeds.

    ``protect``: generations that kept checkpoints need; ``options``: how to embed while training (what outlives the stage is in float32);
    ``progress`` gets (blocks embedded, of all) if the trainer embeds."""

    paths: RunPaths
    inputs: BlockInputs
    device: torch.device
    schedule: Schedule
    protect: Callable[[], frozenset[int]]
    options: EmbedOptions = IN_PROCESS
    progress: Advance | None = None

    def open(self, number: int) -> Generation:
        """A published generation, where the trainer computes."""
        return open_generation(self.paths, self.inputs, number, device=self.device)

    def prune(self) -> None:
        """Delete generations that are no longer needed. No refresher may hold the index."""
        with publishing(self.paths.index):
            prune_run(self.paths, self.protect())


class IndexSource(ABC):
    """A trainer's source of indexes; ``generation`` is searched, None before the first."""

    def __init__(self, context: RefreshContext):
        self.context = context
        self.generation: Generation | None = None

    @property
    def restarts(self) -> int:
        """Number of refreshers that had to be started again."""
        return 0

    def resume(self, number: int) -> Generation:
        """Continue with the generation that a checkpoint was searching."""
        self.generation = self.context.open(number)
        return self.generation

    @abstractmethod
    def between(self, step: int, model: RealmModel) -> Generation | None:
        """The generation to search from this step on, if it is another one now."""

    def finalize(self, step: int, model: RealmModel) -> Generation:
        """The index of the parameters as they are after the last step, which outlives the stage."""
        return self._embed(step, model, self.context.options.lasting(model.documents))

    def tidy(self) -> None:
        """Delete the generations that only the stage's checkpoints needed."""
        self.context.prune()

    def close(self) -> None:
        """End what was started."""
        return

    def _embed(self, step: int, model: RealmModel, options: EmbedOptions) -> Generation:
        """The index of the parameters as they are, made by this process."""
        context = self.context
        self.generation = refresh_index(
            model, context.inputs, context.paths, step=step, protect=context.protect(), options=options, progress=context.progress
        )
        return self.generation


class Inline(IndexSource):
    """Source that embeds in the trainer's process, between two steps."""

    def between(self, step: int, model: RealmModel) -> Generation | None:
        schedule = self.context.schedule
        if not schedule.due(step):
            return None
        return self.finalize(step, model) if step == schedule.steps else self._embed(step, model, self.context.options)


def for_all_ranks(source: IndexSource) -> IndexSource:
    """``source`` itself in a job of one rank, else what the first rank's gives to all."""
    return source if world() == 1 else Ranked(source)


class Ranked(IndexSource):
    """A source of generations on one rank of several; only the first rank's own source is asked."""

    def __init__(self, first: IndexSource):
        super().__init__(first.context)
        self._first = first

    @property
    def restarts(self) -> int:
        return self._first.restarts

    def resume(self, number: int) -> Generation:
        return self._go_over(on_first(lambda: self._first.resume(number).number))

    def between(self, step: int, model: RealmModel) -> Generation | None:
        def ask() -> int | None:
            found = self._first.between(step, model)
            return None if found is None else found.number

        number = on_first(ask)
        return None if number is None else self._go_over(number)

    def finalize(self, step: int, model: RealmModel) -> Generation:
        return self._go_over(on_first(lambda: self._first.finalize(step, model).number))

    def tidy(self) -> None:
        on_first(self._first.tidy)

    def close(self) -> None:
        if is_first():
            self._first.close()

    def _go_over(self, number: int) -> Generation:
        """Search generation ``number`` on this rank, too."""
        if is_first():
            assert self._first.generation is not None
            self.generation = self._first.generation
        else:
            self.generation = self.context.open(number)
        return self.generation


WAIT_SECONDS = 0.05
logger = logging.getLogger(__name__)


class AsyncRefresh(IndexSource):
    """Source that asks a refresher every so many steps and swaps when an answer is there.

    Below the staleness limit a step never waits. ``process``: the refresher as a child, which leaves the first and the last index to this
    process; None: the user's own (``realm refresh RUN``), which makes them all."""

    def __init__(self, context: RefreshContext, process: RefresherProcess | None):
        super().__init__(context)
        self._process = process
        self._seen: tuple[int, int] | None = None
        self._asked = 0  # step of the last request
        self._forgotten = range(0)

    @property
    def restarts(self) -> int:
        return 0 if self._process is None else self._process.restarts

    def resume(self, number: int) -> Generation:
        # Whatever was asked for after the checkpoint belongs to steps that are forgotten: it must not be swapped in.
        self._forgotten = forget_requests(self.context.paths, number)
        found = super().resume(number)
        self._asked = found.step
        return found

    def between(self, step: int, model: RealmModel) -> Generation | None:
        schedule = self.context.schedule
        if self.generation is None or step == schedule.steps:
            return self.finalize(step, model)
        if self._process is not None:
            self._process.watch()
        found = self._poll()
        if step > self._asked and schedule.due(step):
            self._ask(step, model)
        if found is None and step - self.generation.step > schedule.limit:
            found = self._wait(step, model, step - schedule.limit)
        return found

    def finalize(self, step: int, model: RealmModel) -> Generation:
        if self._process is not None:
            self._process.stop()  # this process is the one that publishes now
            return super().finalize(step, model)
        if self.generation is None:
            self._forgotten = forget_requests(self.context.paths, 0)
        self._ask(step, model, exact=True)
        return self._wait(step, model, step, exact=True)

    def tidy(self) -> None:
        busy = () if self._process is not None else (SnapshotError,)  # an external refresher does it when he sees the stage
        with suppress(*busy):
            self.context.prune()

    def close(self) -> None:
        if self._process is not None:
            self._process.stop()

    def _ask(self, step: int, model: RealmModel, *, exact: bool = False) -> None:
        paths, status = self.context.paths, read_status(self.context.paths.index)
        in_use = set() if self.generation is None else {self.generation.number}
        spare = None if status is None else status.generation
        request_index(model, paths, step, protect=self.context.protect() | in_use, exact=exact, spare=spare)
        self._asked = step

    def _poll(self) -> Generation | None:
        """The newest generation, opened, if it is newer than ours and made by parameters of this run's own steps."""
        paths = self.context.paths
        try:
            stat = os.stat(paths.index / CURRENT)
        except FileNotFoundError:
            return None
        if (stat.st_ino, stat.st_mtime_ns) == self._seen:
            return None
        self._seen = (stat.st_ino, stat.st_mtime_ns)
        newest = current_generation(paths.index)
        ours = 0 if self.generation is None else self.generation.number
        if newest is None or newest <= ours or newest in self._forgotten:
            return None
        try:
            self.generation = self.context.open(newest)
        except SnapshotError as error:
            logger.warning("generation %d cannot be used, the index is unchanged: %s", newest, error)
            return None
        if self._process is not None:
            self._process.reset_failures()
        return self.generation

    def _wait(self, step: int, model: RealmModel, least: int, *, exact: bool = False) -> Generation:
        """Wait for a generation of parameters not older than ``least``. Raises TrainingError: no sign of the refresher in time."""
        paths = self.context.paths
        if self._asked < least:
            self._ask(step, model, exact=exact)
        started = heard = time.monotonic()
        said = read_status(paths.index)
        while True:
            answered = requested(paths) is None
            found = self._poll()
            if found is not None and found.step >= least:
                return found
            if answered:
                self._ask(step, model, exact=exact)
            if self._process is not None:
                self._process.watch()
            status = read_status(paths.index)
            if status != said:
                said, heard = status, time.monotonic()
            if time.monotonic() - heard > self.context.schedule.deadline:
                raise TrainingError(
                    _silence(status, time.monotonic() - started), cure="See refresher.log; the run continues from its checkpoint"
                )
            time.sleep(WAIT_SECONDS)


def _silence(status: Status | None, waited: float) -> str:
    """Describe which refresher timed out, and in what."""
    if status is None:
        return f"the index is too old and no refresher has started (realm refresh RUN): waited {waited:.0f} s"
    over = "" if status.generation is None else f" over generation {status.generation}, {status.done} of {status.total} blocks"
    return f"the index is too old and the refresher (process {status.pid} on {status.host}) is silent{over}: waited {waited:.0f} s"
