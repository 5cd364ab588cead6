"""Patterns from question files: compiled with the official evaluation's flags, matched within a time limit, given up when hopeless."""

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

import regex

_FLAGS = regex.VERSION0 | regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
MAX_MEAN_SECONDS = 5e-4
"""Seconds of a processor that a pattern may take for a text in the long run: forty times what usual ones take for a block."""
Found = TypeVar("Found")


def pattern_matches(pattern: str, text: str, timeout_s: float) -> bool:
    """Return whether a pattern matches at the start of a text. One that is invalid or exceeds the limit matches nothing."""
    compiled = compiled_pattern(pattern)
    try:
        return compiled is not None and compiled.match(text, timeout=timeout_s) is not None
    except (TimeoutError, MemoryError):
        return False


@lru_cache(maxsize=4096)
def compiled_pattern(pattern: str) -> "regex.Pattern[str] | None":
    """The compiled pattern, None if it is invalid: bad syntax, flags that contradict each other, nesting beyond the stack. What the
    standard library's ``re`` refuses is invalid, because the official evaluation compiles with it; ``regex`` takes more."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what may mean something else one day
            re.compile(pattern, re.IGNORECASE | re.UNICODE | re.MULTILINE)
            return regex.compile(pattern, _FLAGS)
    except (re.error, regex.error, ValueError, OverflowError, RecursionError):
        return None


class PatternSearch:
    """Searches patterns in many texts: one that exceeds ``timeout_s`` ``strikes`` times, or that takes ``grace_s`` more than
    ``MAX_MEAN_SECONDS`` a text over all of them, is not tried again; of the latter, the processor's time: a busy machine loses none."""

    def __init__(self, timeout_s: float = 0.5, strikes: int = 2, grace_s: float = 2.0):
        self.timeout_s = timeout_s
        self.strikes = strikes
        self.grace_s = grace_s
        self._exceeded: Counter[str] = Counter()
        self._lost: dict[str, float] = {}

    def found(self, text: str, patterns: Iterable[str]) -> bool:
        return any(self._tried(one, lambda compiled: compiled.search(text, timeout=self.timeout_s) is not None, False) for one in patterns)

    def begins(self, text: str, pattern: str) -> bool:
        """Return whether the pattern matches at the start of the text, as of an answer that is right."""
        return self._tried(pattern, lambda compiled: compiled.match(text, timeout=self.timeout_s) is not None, False)

    def ranges(self, text: str, pattern: str) -> list[tuple[int, int]]:
        """(start, end) of the pattern's matches in the text, in order and not overlapping. Matches without a character do not count."""

        def look(compiled: "regex.Pattern[str]") -> list[tuple[int, int]]:
            spans = (match.span() for match in compiled.finditer(text, timeout=self.timeout_s))
            return [(start, end) for start, end in spans if start < end]

        return self._tried(pattern, look, [])

    @property
    def too_slow(self) -> list[str]:
        """Patterns that exceeded their time at least once: what is said of them depends on the machine."""
        return sorted(self._exceeded)

    def gave_up(self, pattern: str) -> bool:
        return self._exceeded[pattern] >= self.strikes

    def _tried(self, pattern: str, look: Callable[["regex.Pattern[str]"], Found], otherwise: Found) -> Found:
        compiled = compiled_pattern(pattern)
        if compiled is None or self.gave_up(pattern):
            return otherwise
        began = time.thread_time()
        try:
            return look(compiled)
        except (TimeoutError, MemoryError):
            self._exceeded[pattern] += 1
            return otherwise
        finally:
            self._charge(pattern, time.thread_time() - began)

    def _charge(self, pattern: str, seconds: float) -> None:
        """Note the seconds of a pattern in one text, and give it up if it is slow."""
        lost = self._lost.get(pattern, 0.0) + seconds - MAX_MEAN_SECONDS
        if lost > self.grace_s:
            self._exceeded[pattern] = self.strikes
        elif lost > 0 or pattern in self._lost:
            self._lost[pattern] = max(0.0, lost)
