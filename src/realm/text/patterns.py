"""Patterns that somebody else wrote: compiled with the official evaluation's flags, matched within a time limit, given up when hopeless."""

import re
import warnings
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import regex

_FLAGS = regex.VERSION0 | regex.IGNORECASE | regex.UNICODE | regex.MULTILINE


def pattern_matches(pattern: str, text: str, timeout_s: float, *, anywhere: bool = False) -> bool:
    """Whether a pattern matches at the start of a text, or anywhere in it. One that is invalid or exceeds the limit matches nothing."""
    compiled = compiled_pattern(pattern)
    try:
        return compiled is not None and _match(compiled, text, timeout_s, anywhere)
    except (TimeoutError, MemoryError):
        return False


@lru_cache(maxsize=4096)
def compiled_pattern(pattern: str) -> "regex.Pattern[str] | None":
    """The compiled pattern, None if it is invalid: bad syntax, flags that contradict each other, nesting beyond the stack.

    What the standard library's ``re`` refuses is invalid, because the official evaluation compiles with it; ``regex`` takes more.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what may mean something else one day
            re.compile(pattern, re.IGNORECASE | re.UNICODE | re.MULTILINE)
            return regex.compile(pattern, _FLAGS)
    except (re.error, regex.error, ValueError, OverflowError, RecursionError):
        return None


def _match(compiled: "regex.Pattern[str]", text: str, timeout_s: float, anywhere: bool) -> bool:
    found = compiled.search(text, timeout=timeout_s) if anywhere else compiled.match(text, timeout=timeout_s)
    return found is not None


class PatternSearch:
    """Searches patterns anywhere in many texts: one that exceeds its time ``strikes`` times is not tried again.

    Without that, a pattern that never ends costs its whole time limit in each of a corpus's texts.

    Args:
        timeout_s: the limit for one pattern in one text.
        strikes: how often it may exceed that.
    """

    def __init__(self, timeout_s: float = 0.5, strikes: int = 2):
        self.timeout_s = timeout_s
        self.strikes = strikes
        self._exceeded: Counter[str] = Counter()

    def found(self, text: str, patterns: Iterable[str]) -> bool:
        """Whether any of the patterns matches somewhere in the text."""
        return any(self._found(text, pattern) for pattern in patterns)

    @property
    def too_slow(self) -> list[str]:
        """Patterns that exceeded their time at least once: what is said of them depends on the machine."""
        return sorted(self._exceeded)

    def _found(self, text: str, pattern: str) -> bool:
        compiled = compiled_pattern(pattern)
        if compiled is None or self._exceeded[pattern] >= self.strikes:
            return False
        try:
            return _match(compiled, text, self.timeout_s, True)
        except (TimeoutError, MemoryError):
            self._exceeded[pattern] += 1
            return False
