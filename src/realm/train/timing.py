"""Where the time of training goes."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Charges every moment to exactly one part of the work.

    Parts nest: what an inner part takes does not count for the outer one. A part costs two looks at the clock, so it may stand in a step.

    Args:
        outside: the part that moments outside every block belong to.
        clock: seconds from any origin.
    """

    def __init__(self, outside: str, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._parts = [outside]
        self._seconds: dict[str, float] = defaultdict(float)
        self._since = clock()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        self._charge()
        self._parts.append(part)
        try:
            yield
        finally:
            self._charge()
            self._parts.pop()

    def take(self) -> dict[str, float]:
        """Seconds of each part since the last call (or since the beginning), which are forgotten."""
        self._charge()
        taken, self._seconds = dict(self._seconds), defaultdict(float)
        return taken

    def _charge(self) -> None:
        now = self._clock()
        self._seconds[self._parts[-1]] += now - self._since
        self._since = now
