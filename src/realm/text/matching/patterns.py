"""Patterns from question files: compiled with the official evaluation's flags, matched within a time limit, given up when hopeless."""

import importlib
import re
import string
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, TypeVar

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
    ``MAX_MEAN_SECONDS`` a text over all of them, is not tried again. Time is the processor's: a busy machine loses no pattern."""

    def __init__(self, timeout_s: float = 0.5, strikes: int = 2, grace_s: float = 2.0):
        self.timeout_s = timeout_s
        self.strikes = strikes
        self.grace_s = grace_s
        self._exceeded: Counter[str] = Counter()
        self._lost: dict[str, float] = {}
        self._suspects: set[str] = set()

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
        # The clock, which runs on while the machine does other things, is asked in a twentieth of the time that the processor's takes.
        clock = time.thread_time if pattern in self._suspects else time.perf_counter
        began = clock()
        try:
            return look(compiled)
        except (TimeoutError, MemoryError):
            self._exceeded[pattern] += 1
            return otherwise
        finally:
            self._charge(pattern, clock() - began)

    def _charge(self, pattern: str, seconds: float) -> None:
        """Note the time of a pattern in one text: what is slow by the clock is suspected, and given up if it is slow by the processor."""
        lost = self._lost.get(pattern, 0.0) + seconds - MAX_MEAN_SECONDS
        if lost > self.grace_s and pattern in self._suspects:
            self._exceeded[pattern] = self.strikes
        elif lost > self.grace_s:
            self._suspects.add(pattern)
            self._lost[pattern] = 0.0
        elif lost > 0 or pattern in self._lost:
            self._lost[pattern] = max(0.0, lost)


MAX_STRINGS = 64
"""Spellings of a part of a pattern beyond which nothing is said of it."""
SHORTEST = 2
"""A single letter stands in nearly every text; a digit or a mark does not."""
_FOLDS = str.maketrans({"İ": "i", "ı": "i", "ſ": "s", "K": "k"})
_PARSER_FLAGS = re.IGNORECASE | re.UNICODE | re.MULTILINE
_ESCAPED = re.compile(r"\\.", re.DOTALL)
# Where the engine that matches reads more into a pattern than the parser asked here: {e<=1} for spelling errors, [[:alpha:]] for classes.
_OTHERWISE = re.compile(r"\{(?!\d+(?:,\d*)?\})|\[:")

Strings = frozenset[str]
_NOTHING: Strings = frozenset()


def folded(text: str) -> str:
    """A text in the form in which :func:`required_strings` are looked for. Letters that a pattern takes for the same, whatever their case,
    are the same in it: K (Kelvin), ſ and the Turkic i's, too."""
    return text.translate(_FOLDS).lower()


def required_strings(pattern: str) -> Strings:
    """Strings of which every text with a match of a pattern that compiles holds at least one, in the form of :func:`folded`; none where
    nothing is known."""
    if _OTHERWISE.search(_ESCAPED.sub("", pattern)):
        return _NOTHING
    try:
        parsed = importlib.import_module("re._parser").parse(pattern, _PARSER_FLAGS)
    except (ImportError, AttributeError, RecursionError):  # no public module parses: without this one every text is tried
        return _NOTHING
    every, needed = _of_sequence(list(parsed))
    found = needed if every is None else every
    shorter = {one for one in found if not any(other != one and other in one for other in found)}
    rare = all(len(one) >= SHORTEST or (one and not one.isalpha() and not one.isspace()) for one in shorter)
    return frozenset(shorter) if rare else _NOTHING


_Known = tuple[Strings | None, Strings]
"""All strings that a part of a pattern matches, None where they are too many or unknown; strings of which a match needs one, if known.

Both may hold strings too many and never one too few: a look-around, which matches no character, counts as the empty string."""
_EMPTY: Strings = frozenset({""})


def _of_sequence(items: Sequence[tuple[Any, Any]]) -> _Known:
    """Of parts that follow each other: known ones are joined as far as they go, and the most telling run of them is needed."""
    runs: list[Strings] = []
    run, whole = _EMPTY, True
    for item in items:
        every, needed = _of_item(*item)
        if every is not None and len(run) * len(every) <= MAX_STRINGS:
            run = frozenset(first + second for first, second in product(run, every))
            continue
        runs.append(run)
        whole = False
        run = _EMPTY if every is None else every
        if needed:
            runs.append(needed)
    if whole:
        return run, _NOTHING
    return None, max((*runs, run), key=lambda strings: (min(map(len, strings)), -len(strings)))


def _of_item(kind: Any, value: Any) -> _Known:
    match str(kind):
        case "LITERAL":
            return _characters([chr(value)])
        case "IN":
            return _characters([chr(code) if str(part) == "LITERAL" else "" for part, code in value])
        case "BRANCH":
            return _either(map(_of_sequence, value[1]))
        case "SUBPATTERN":
            return _of_sequence(list(value[3]))
        case "ATOMIC_GROUP":
            return _of_sequence(list(value))
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _repeated(value[0], value[1], _of_sequence(list(value[2])))
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return _EMPTY, _NOTHING
    return None, _NOTHING


def _characters(listed: list[str]) -> _Known:
    """One of some characters; of others than ASCII's it is not said here which count as the same."""
    known = all(one and one in string.printable for one in listed)
    return (frozenset(map(str.lower, listed)) if known and len(listed) <= MAX_STRINGS else None), _NOTHING


def _repeated(least: int, most: int, part: _Known) -> _Known:
    every, needed = part
    if (least, most) == (0, 1):
        return (None if every is None else every | _EMPTY), _NOTHING
    if least == 0:
        return None, _NOTHING
    return (every if most == 1 else None), needed if every is None or "" in every else every


def _either(parts: Iterable[_Known]) -> _Known:
    every: Strings | None = _NOTHING
    needed: Strings | None = _NOTHING
    for strings, some in parts:
        every = None if every is None or strings is None or len(every | strings) > MAX_STRINGS else every | strings
        some = some if strings is None or "" in strings else strings
        needed = None if needed is None or not some else needed | some
    return every, needed or _NOTHING


class LikelyPatterns:
    """Says which of many patterns that compile can match in a text at all, by one search for all their required strings; without the
    extra ``eval``, that all can."""

    def __init__(self, patterns: Iterable[str]):
        self.anywhere: list[str] = []
        self._owners: dict[str, list[str]] = {}
        for pattern in patterns:
            needed = required_strings(pattern)
            for one in needed:
                self._owners.setdefault(one, []).append(pattern)
            if not needed:
                self.anywhere.append(pattern)
        self._strings = list(self._owners)
        self._automaton = automaton(self._strings)
        if self._automaton is None:
            self.anywhere = list(dict.fromkeys((*self.anywhere, *(one for some in self._owners.values() for one in some))))

    def of(self, text: str) -> list[str]:
        """The patterns that may match somewhere in a text; the others do not."""
        if self._automaton is None:
            return self.anywhere
        hits = {hit[0] for hit in self._automaton.find_matches_as_indexes(folded(text), overlapping=True)}
        return [*self.anywhere, *dict.fromkeys(owner for hit in sorted(hits) for owner in self._owners[self._strings[hit]])]


def automaton(strings: list[str]) -> Any:
    """Finds all of some strings at once; None without the extra ``eval``."""
    try:
        import ahocorasick_rs
    except ImportError:
        return None
    return ahocorasick_rs.AhoCorasick(strings)
