"""Strings that a text must hold for a pattern to match in it: looking for them takes a fraction of the pattern's time."""

import importlib
import re
import string
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

MAX_STRINGS = 64
"""Spellings of a part of a pattern beyond which nothing is said of it."""
SHORTEST = 2
"""A single letter stands in nearly every text; a digit or a mark does not."""
_FOLDS = str.maketrans({"İ": "i", "ı": "i", "ſ": "s", "K": "k"})
_FLAGS = re.IGNORECASE | re.UNICODE | re.MULTILINE
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
    """Strings of which every text with a match holds at least one, in the form of :func:`folded`; none where nothing is known.

    Args:
        pattern: one that compiles.
    """
    if _OTHERWISE.search(_ESCAPED.sub("", pattern)):
        return _NOTHING
    try:
        parsed = importlib.import_module("re._parser").parse(pattern, _FLAGS)
    except (ImportError, AttributeError, RecursionError):  # no public module parses: without this one every text is tried
        return _NOTHING
    every, needed = _of_sequence(list(parsed))
    found = needed if every is None else every
    shorter = {one for one in found if not any(other != one and other in one for other in found)}
    rare = all(len(one) >= SHORTEST or (one and not one.isalpha() and not one.isspace()) for one in shorter)
    return frozenset(shorter) if rare else _NOTHING


_Known = tuple[Strings | None, Strings]
"""All strings that a part of a pattern matches, None where they are too many or unknown; strings of which a match needs one, if known.

Both may hold strings too many and never one too few: a look-around, which matches no character, counts as the empty string.
"""
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
    """Says which of many patterns can match in a text at all, by one search for all their required strings.

    Without the extra ``eval``, whose automaton searches, it says that all of them can.

    Args:
        patterns: that compile.
    """

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
