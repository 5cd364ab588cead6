"""The time of a run by kind of work: a stopwatch that charges every moment to one kind of work.

    with running(Stopwatch("other")) as watch:
        with charged("search"):
            ...
    watch.seconds()  # {"search": 1.2, "other": 0.1}

Whatever computes says so by :func:`charged`, wherever it is called from; where no stopwatch runs, that costs nothing and counts nothing."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

KINDS = (
    "tokenising",
    "data",
    "search",
    "forward",
    "backward",
    "optimiser",
    "embedding",
    "evaluation",
    "watching",
    "checkpoints",
    "waiting",
    "other",
)
"""Kinds of work in a stage."""


class Stopwatch:
    """Charges every moment to exactly one kind of work; time in an inner block does not count for the outer one.

    Args:
        outside: kind of moments outside every block.
        clock: seconds from any origin.
        settle: waits for an accelerator before each look at the clock; without it, its work is charged to the block that waits for it."""

    def __init__(self, outside: str, clock: Callable[[], float] = time.perf_counter, settle: Callable[[], None] = lambda: None):
        self._clock, self._settle = clock, settle
        self._kinds = [outside]
        self._seconds: dict[str, float] = defaultdict(float)
        self._whole = False
        self._since = clock()

    @contextmanager
    def __call__(self, kind: str, *, whole: bool = False) -> Iterator[None]:
        """Charge the block to ``kind``; ``whole``: with all that inner blocks would take for themselves."""
        if self._whole:
            yield
            return
        self._charge()
        self._kinds.append(kind)
        self._whole = whole
        try:
            yield
        finally:
            self._charge()
            self._whole = False
            self._kinds.pop()

    def seconds(self) -> dict[str, float]:
        """Seconds of each kind since the beginning."""
        self._charge()
        return dict(self._seconds)

    def _charge(self) -> None:
        self._settle()
        now = self._clock()
        self._seconds[self._kinds[-1]] += now - self._since
        self._since = now


_running: ContextVar[Stopwatch | None] = ContextVar("stopwatch", default=None)


@contextmanager
def running(watch: Stopwatch) -> Iterator[Stopwatch]:
    """The stopwatch that :func:`charged` charges to inside the block, in this thread."""
    token = _running.set(watch)
    try:
        yield watch
    finally:
        _running.reset(token)


@contextmanager
def charged(kind: str, *, whole: bool = False) -> Iterator[None]:
    """Charge the block, of one of ``KINDS``, to the stopwatch that runs, if one does; ``whole`` as for :class:`Stopwatch`."""
    watch = _running.get()
    if watch is None:
        yield
        return
    with watch(kind, whole=whole):
        yield


def seconds() -> dict[str, float]:
    """Seconds of each kind by the stopwatch that runs; nothing where none does."""
    watch = _running.get()
    return {} if watch is None else watch.seconds()


def since(before: dict[str, float]) -> dict[str, float]:
    """Seconds of each kind since :func:`seconds` gave ``before``."""
    return {kind: found - before.get(kind, 0.0) for kind, found in seconds().items()}
