"""The form of an answer: a span, the sentence that holds it, a list with its items, or yes and no with the sentence that says so.

    How do I renew a lease?         ->  sentence
    What are the opening hours?     ->  list, where the span stands in one
    Is smoking allowed?             ->  yes_no: "no", by "Smoking is not allowed in the house."

The opening of a question decides (``forms.toml``); the words asked for stay marked inside of what is shown."""

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import regex

from realm.text import deferred
from realm.text.sentences import split_sentences
from realm.text.words import words

SPAN, SENTENCE, LIST, YES_NO = "span", "sentence", "list", "yes_no"
FORMS = (SPAN, SENTENCE, LIST, YES_NO)
LONGEST_SHOWN = 600
"""Characters of a sentence or list that is shown as an answer; longer ones are cut around the span at line ends or spaces."""
SHARED_WORDS = 0.5
"""Share of a yes-or-no question's words that a sentence must hold to say yes or no to it."""
_ITEM = deferred(r"[ \t]*(?:[-*•–+▪◦]|\(?\d{1,3}[.)]|\(?[a-z][.)])[ \t]+\S", regex.IGNORECASE)
_SAYING = deferred(r"\W*(?:(yes|ja|oui|sí)|(?:no|nein|non))\b(?=\s*[,.;:!–—-])", regex.IGNORECASE)
_LEADING = regex.compile(r"^[\s¿¡\"'“„«(]+")


@dataclass(frozen=True)
class _Openings:
    spans: regex.Pattern[str] | None
    yes_no: regex.Pattern[str] | None
    reason: regex.Pattern[str] | None
    items: regex.Pattern[str] | None
    negation: regex.Pattern[str]


def _openings(table: dict[str, str]) -> _Openings:
    found = {name: deferred(pattern, regex.IGNORECASE) for name, pattern in table.items()}
    return _Openings(found.get("spans"), found.get("yes_no"), found.get("reason"), found.get("items"), found["negation"])


_LANGUAGES = [_openings(table) for table in tomllib.loads(Path(__file__).with_name("forms.toml").read_text("utf-8")).values()]


@dataclass(frozen=True)
class Shown:
    """An answer as a person reads it.

    Attributes:
        kind: one of ``FORMS``.
        start, end: code points of what is shown, in the block's text; the span itself where ``kind`` is "span".
        said: "yes" or "no" where a yes-or-no question is answered by the sentence; empty otherwise."""

    kind: str
    start: int
    end: int
    said: str = ""


@lru_cache(maxsize=1024)
def form_of(question: str) -> str:
    """Return the form that a question asks for, by its opening: one of ``FORMS``."""
    text = _LEADING.sub("", question)
    for language in _LANGUAGES:
        if language.spans and language.spans.match(text):
            return SPAN
        for pattern, form in ((language.yes_no, YES_NO), (language.items, LIST), (language.reason, SENTENCE)):
            if pattern and pattern.match(text):
                return form
    return SPAN


def shown(question: str, text: str, start: int, end: int) -> Shown:
    """Choose what of a block's text is shown for a span [start, end) of it."""
    form = form_of(question)
    if form == SPAN or start >= end:
        return Shown(SPAN, start, end)
    first, last = _list_around(text, start, end) if form in (LIST, SENTENCE) else (start, end)
    of_steps = regex.match(r"how (?:do|to|can|should)\b|wie\b|comment\b|cómo\b", _LEADING.sub("", question), regex.IGNORECASE) is not None
    if (first, last) != (start, end) and (form == LIST or of_steps):
        return Shown(LIST, *_cut(text, first, last, start, end))
    touched = [(first, last) for first, last in split_sentences(text) if first < end and last > start]
    first, last = (touched[0][0], touched[-1][1]) if touched else (start, end)
    said = _said(question, text[first:last]) if form == YES_NO else ""
    return Shown(YES_NO if form == YES_NO else SENTENCE, *_cut(text, first, last, start, end), said)


def _list_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the range of the list around a span with the line that leads to it; the span itself where there is none."""
    ranges, at = [], 0
    for line in text.splitlines(keepends=True):
        ranges.append((at, at + len(line.rstrip())))
        at += len(line)
    own = next((n for n, (first, last) in enumerate(ranges) if first <= start <= last), None)
    if own is None or not _is_item(text, ranges[own]):
        return start, end
    first = last = own
    while first and _is_item(text, ranges[first - 1]):
        first -= 1
    while last + 1 < len(ranges) and _is_item(text, ranges[last + 1]):
        last += 1
    if first and text[slice(*ranges[first - 1])].rstrip().endswith((":", "：")):
        first -= 1
    return ranges[first][0], ranges[last][1]


def _is_item(text: str, place: tuple[int, int]) -> bool:
    return _ITEM.match(text, place[0], place[1]) is not None


def _cut(text: str, first: int, last: int, start: int, end: int) -> tuple[int, int]:
    """Bound what is shown to ``LONGEST_SHOWN`` characters around the span."""
    if last - first <= LONGEST_SHOWN:
        return first, last
    room = max(0, LONGEST_SHOWN - (end - start)) // 2
    begin, finish = max(first, start - room), min(last, end + room)
    while begin > first and not text[begin - 1].isspace() and begin < start:
        begin += 1
    while finish < last and not text[finish].isspace() and finish > end:
        finish -= 1
    return begin, finish


def _said(question: str, sentence: str) -> str:
    """Return "yes" or "no" as the sentence begins, else by its negations; empty where it shares too few words with the question."""
    if said := _SAYING.match(sentence):
        return "yes" if said[1] else "no"
    asked, held = set(words(question)), set(words(sentence))
    near = sum(any(one == other or (len(one) > 4 and other[:5] == one[:5]) for other in held) for one in asked)
    if not asked or near < SHARED_WORDS * len(asked):
        return ""
    language = next((one for one in _LANGUAGES if one.yes_no and one.yes_no.match(_LEADING.sub("", question))), _LANGUAGES[0])
    negated = [language.negation.search(part.lower()) is not None for part in (question, sentence)]
    return "no" if negated[0] != negated[1] else "yes"
