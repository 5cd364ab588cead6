"""Another process embeds: the trainer publishes parameters every so many steps and goes over to their index when it is there."""

import logging
import os
import time

from realm.errors import SnapshotError, TrainingError
from realm.models.model import RealmModel
from realm.search.publishing.generation import Generation
from realm.search.publishing.parameters import forget_requests, request_index, requested
from realm.search.publishing.refresher import Status, read_status
from realm.storage.generations import CURRENT, current_generation
from realm.training.refresh.index_source import IndexSource, RefreshContext
from realm.training.refresh.refresher_process import RefresherProcess

WAIT_SECONDS = 0.05
logger = logging.getLogger(__name__)


class AsyncRefresh(IndexSource):
    """Asks a refresher every so many steps and swaps when an answer is there.

    Below the staleness limit a step never waits: it costs one ``stat``. Above, it waits as long as the refresher gets on.

    Args:
        context: of the stage; its options are the refresher's.
        process: the refresher as a child, which leaves the first index and the last to this process; None: the user has started one
            (``realm refresh RUN``), and it makes them all.
    """

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
        if self._process is not None:  # otherwise somebody else holds the index, and does it when he sees the stage
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
        """Wait for a generation of parameters that are not older than ``least``. If there is an answer that cannot be used, ask again.

        Raises:
            TrainingError: the refresher gave no sign for the deadline.
        """
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
