"""What kind of answer a question asks for, by its question words: "When ..." asks for a date, "How many ..." for a number.

The words are those of ``question_words.toml``; the kinds are what ``span_kinds.py`` calls a span. Nothing is learnt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import regex

from realm.data.question_words import KANA, LANGUAGES
from realm.data.span_kinds import kind_of

KINDS: Mapping[str, frozenset[str]] = {
    "asks_time": frozenset({"date", "year"}),
    "asks_count": frozenset({"number", "amount", "money", "percent"}),
    "asks_who": frozenset({"person", "name", "institution", "place"}),
    "asks_where": frozenset({"place", "name", "institution"}),
}
"""What answers each sort of question. Names that tell nothing by their shape may be persons and places, and a place may be a team."""
WORDS = {"asks_time": "calendar", "asks_count": "numbers"}
"""Lists of words of which one is enough, whatever the whole is: "six touchdowns", "on Mondays"."""
FIGURES = {"asks_time": r"(?<!\d)(?:1\d|20)\d\d(?!\d)", "asks_count": r"\p{Nd}[\p{Nd}.,]*"}
"""Figures that are as good as such a word."""
ELSE = "asks_else"
SEEN = 120
"""Characters on either side of a span by which its kind is told."""
CLAUSE = regex.compile(r"[,;:，；：、]")


@dataclass(frozen=True)
class Asked:
    """What may answer a question: a sort, a key of ``KINDS``, and the language by whose words a span's kind is told."""

    sort: str
    language: str

    def answered_by(self, text: str, start: int, end: int) -> bool:
        """Whether the characters from ``start`` to ``end`` of a text are of such a kind, by their shape and what is around them."""
        span, before, after = text[start:end], text[max(0, start - SEEN) : start], text[end : end + SEEN]
        return self._tells(span) or kind_of(span, before, after, self.language) in KINDS[self.sort]

    def _tells(self, span: str) -> bool:
        """Whether a figure or a word of the span is enough: beside it stands no name, as in "Super Bowl 50"."""
        told = None if self.sort not in WORDS else _telling(self.language, self.sort).search(span)
        if told is None:
            return False
        beside = span[: told.start()] + span[told.end() :]
        return LANGUAGES[self.language].nouns_are_names or not regex.search(r"\p{Lu}", beside)


@lru_cache
def _telling(language: str, sort: str) -> regex.Pattern[str]:
    """Figures, and the words of a language, that tell an answer to a sort of question."""
    edge = r"\b" if LANGUAGES[language].moves else ""
    words = "|".join(sorted(map(regex.escape, LANGUAGES[language].words[WORDS[sort]]), key=len, reverse=True))
    return regex.compile(f"{FIGURES[sort]}|{edge}(?:{words}){edge}", regex.I)


@lru_cache(maxsize=1024)
def asked_for(question: str) -> Asked | None:
    """What a question asks for, by its first question word; None: anything, or that cannot be told.

    "What did he do when it rained?" asks for anything. Where two clauses have a question word, as in "When it rained, what did he do?",
    nothing is told.
    """
    words = question.lower()
    found = [match for clause in CLAUSE.split(words) if (match := QUESTION_WORDS.search(clause))]
    if len(found) != 1 or KANA.search(words):
        return None
    language, _, sort = (found[0].lastgroup or "").partition("_")
    return None if sort == ELSE else Asked(sort, language)


def _pattern() -> regex.Pattern[str]:
    """All question words, the longest first, each in a group that names its language and sort; whole words where these stand apart."""
    words = [(word, language, sort) for sort in (*KINDS, ELSE) for language, of in LANGUAGES.items() for word in of.words[sort]]
    words.sort(key=lambda told: -len(told[0]))
    edges = {language: r"\b" if of.moves else "" for language, of in LANGUAGES.items()}
    return regex.compile("|".join(f"(?P<{of}_{sort}>{edges[of]}{regex.escape(word)}{edges[of]})" for word, of, sort in words))


QUESTION_WORDS = _pattern()
