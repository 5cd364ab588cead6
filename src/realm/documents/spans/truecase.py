"""Names by letter case: a tagger that learns from the user's own corpus which words are usually capitalised.

Nothing is downloaded. A first pass over the corpus counts, away from sentence starts, how often each word is written with a capital.
A name is then a run of capitalised words, joined through linker words ("Bank of England", "Vincent van Gogh")."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import regex

from realm.documents.spans.spans import TaggedSpan
from realm.text.words import FULL_MONTHS

_ROMANCE = ("de", "del", "della", "da", "di", "do", "dos", "du", "la", "le", "el")
LINKERS = ("of", "&", *_ROMANCE, "van", "von", "der", "den", "ter", "al", "bin", "ibn")
# A word counts as usually capitalised from this share on.
USUAL_SHARE = 0.5

_LETTERS = r"[\p{L}\p{M}\p{N}]"
_CAPITALISED = rf"(?:\p{{Lu}}\.(?:-?\p{{Lu}}\.)+|\p{{Lu}}\.|\p{{Lu}}{_LETTERS}*(?:[-'’](?!s\b){_LETTERS}+)*)"
_INNER_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*")
# Bare months and weekdays are spans too, but no names.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_CALENDAR = frozenset((*FULL_MONTHS, *_WEEKDAYS))
_CAPITAL = regex.compile(r"\p{Lu}")


class CasingCounts:
    """Counts surface forms of words away from sentence starts."""

    def __init__(self) -> None:
        self._forms: Counter[str] = Counter()

    def add(self, sentences: Iterable[str]) -> None:
        """Count the words of ``sentences``, the first word of each left out."""
        for sentence in sentences:
            self._forms.update(_INNER_WORD.findall(sentence)[1:])

    def merge(self, forms: Mapping[str, int]) -> None:
        """Add the ``forms`` of another one."""
        self._forms.update(forms)

    def forms(self) -> dict[str, int]:
        """Count of each form."""
        return dict(self._forms)

    def table(self) -> dict[str, tuple[int, int]]:
        """For every lower-cased word: how often it was written with a small and with a capital first letter."""
        table: dict[str, list[int]] = {}
        for form, count in self._forms.items():
            entry = table.setdefault(form.lower(), [0, 0])
            entry[form[0].isupper()] += count
        return {word: (entry[0], entry[1]) for word, entry in sorted(table.items())}


class TruecaseTagger:
    """Tags runs of capitalised words, joined by linkers, up to two in a row.

    Inside a sentence a run counts if one of its words is usually capitalised in the corpus (``table``, as ``CasingCounts.table`` gives it),
    or is unknown to it. A run's first word at the start of a sentence belongs to it only if it is mostly capitalised elsewhere, or unknown
    and followed by a capitalised word."""

    def __init__(self, table: dict[str, tuple[int, int]], linkers: Iterable[str] = LINKERS):
        self.linkers = tuple(linkers)
        self._table = dict(table)
        linker = "|".join(regex.escape(word) for word in sorted(self.linkers, key=len, reverse=True))
        self._run = regex.compile(
            rf"(?<![\p{{L}}\p{{M}}\p{{N}}_\u200c\u200d]){_CAPITALISED}(?:\s(?:(?:{linker})\s(?:(?:{linker}|the)\s)?)?{_CAPITALISED})*(?![\p{{L}}\p{{M}}_\u200c\u200d])"
        )

    def tag(self, text: str) -> list[TaggedSpan]:
        """Spans of kind name (or date, for a bare month or weekday), in order, without overlaps."""
        matches = list(self._run.finditer(text))
        # Capitals stand in runs, so where runs are short nobody shouts, and the letters need not be counted.
        if not matches or (4 * sum(match.end() - match.start() for match in matches) > len(text) and _shouts(text)):
            return []
        spans = []
        at_opening = _INNER_WORD.search(text, 0, matches[0].start()) is None
        for match in matches:
            start, end = self._trim(text, match.start(), match.end(), at_opening)
            if start < end:
                spans.append(TaggedSpan(start, end, "date" if text[start:end] in _CALENDAR else "name"))
            at_opening = False
        return spans

    def state(self) -> dict[str, Any]:
        return {"type": "truecase", "linkers": list(self.linkers), "table": {word: list(counts) for word, counts in self._table.items()}}

    def _trim(self, text: str, start: int, end: int, at_opening: bool) -> tuple[int, int]:
        """Cut words off a run until it is a name; an empty range if nothing is left."""
        if at_opening:
            word = _INNER_WORD.match(text, start, end)
            stop = word.end() if word else end
            if not self._opens_a_name(text[start:stop], alone=stop >= end):
                rest = self._run.search(text, stop, end)
                if rest is None:
                    return start, start
                start = rest.start()
        words = [text[match.start() : match.end()] for match in _INNER_WORD.finditer(text, start, end)]
        if not any(self._is_name_word(word) for word in words):
            return start, start
        return start, end

    def _opens_a_name(self, word: str, alone: bool) -> bool:
        small, capital = self._table.get(word.lower(), (0, 0))
        if small + capital == 0:
            return not alone or (len(word) > 1 and word.isupper())
        return capital > small

    def _is_name_word(self, word: str) -> bool:
        if len(word) > 1 and word.isupper():
            return True
        if len(word) == 1 or word[0].islower():
            return False
        small, capital = self._table.get(word.lower(), (0, 0))
        return capital >= USUAL_SHARE * (small + capital)


def _shouts(text: str) -> bool:
    """A heading in capitals says nothing about names."""
    capitals = len(_CAPITAL.findall(text))
    # The letters are counted only where a cheap bound leaves it open.
    return capitals > 6 and 4 * capitals > len(text) and 2 * capitals > sum(1 for character in text if character.isalpha())
