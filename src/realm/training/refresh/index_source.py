"""Which index a trainer searches from which step on: one interface for every mode, and what they all need to know of the run.

``Inline`` does everything in the trainer's process and is bit-reproducible; ``async_refresh`` asks another process. In a job of several
ranks (``Ranked``) the first one refreshes as the recipe says and proposes a generation by its number before each step; the others wait
for that number and open the generation, so every rank maps the same files. A child that embeds belongs to the first rank.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch

from realm.models.model import RealmModel
from realm.progress import Advance
from realm.search.blocks import BlockInputs
from realm.search.publishing.embedding import IN_PROCESS, EmbedOptions
from realm.search.publishing.generation import Generation, open_generation
from realm.search.publishing.parameters import prune_run, publishing
from realm.search.publishing.refresher import refresh_index
from realm.storage.paths import RunPaths
from realm.training.loop.distributed import is_first, on_first, world

STALE_REFRESHES = 5
"""Refreshes that an index may miss before the trainer waits for a fresher one."""


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


@dataclass(frozen=True)
class RefreshContext:
    """What a stage says of its refreshes, whichever process embeds.

    Args:
        paths, inputs, device: of the run.
        schedule: when.
        protect: generations that kept checkpoints need, asked before anything is deleted.
        options: how to embed while training; what outlives the stage is always embedded in float32.
        progress: called with (blocks embedded, of all), where the trainer itself embeds.
    """

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
    """Where a trainer gets its index from. What has a body here is that of a source without processes or state of its own.

    Args:
        context: of the stage.

    Attributes:
        generation: what is searched; None before the first.
    """

    def __init__(self, context: RefreshContext):
        self.context = context
        self.generation: Generation | None = None

    @property
    def restarts(self) -> int:
        """How often a refresher had to be started again."""
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
        return self._embed(step, model, EmbedOptions(bf16=self.context.options.bf16).lasting(model.documents))

    def tidy(self) -> None:
        """After the stage: its checkpoints are gone, and the generations that only they needed go too."""
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
    """Refreshes in the trainer's process, between two steps."""

    def between(self, step: int, model: RealmModel) -> Generation | None:
        schedule = self.context.schedule
        if not schedule.due(step):
            return None
        return self.finalize(step, model) if step == schedule.steps else self._embed(step, model, self.context.options)


def for_all_ranks(source: IndexSource) -> IndexSource:
    """``source`` itself in a job of one rank, else what the first rank's gives to all."""
    return source if world() == 1 else Ranked(source)


class Ranked(IndexSource):
    """A source of generations on one rank of several.

    Args:
        first: what the first rank asks; the other ranks' is never asked.
    """

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
