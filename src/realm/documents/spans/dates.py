"""Dates, years, centuries, times, numbers and quantities of one sentence, by patterns.

Every run of digits that no span holds yet is an anchor: what may stand before it ("Friday, March", "£", "mid-") is read backwards, and
the forms of dates, quantities and plain numbers are tried from there. So the patterns, which are long, are tried at digits only. Words
for numbers, and Chinese, Japanese and Korean, have their own passes. The forms stand in forms.toml."""

import re
import tomllib
from pathlib import Path
from typing import Any

import regex

from realm.documents.spans.spans import TaggedSpan
from realm.text import deferred
from realm.text.words import FULL_MONTHS

_TABLES = tomllib.loads(Path(__file__).with_name("forms.toml").read_text("utf-8"))


def _put_together(patterns: dict[str, str | list[str]]) -> dict[str, str]:
    """Patterns with those that they name in braces put in; a pattern names only earlier ones."""
    whole: dict[str, str] = {}
    for name, written in patterns.items():
        pattern = "|".join(written) if isinstance(written, list) else "".join(map(str.strip, written.split("\n")))
        whole[name] = re.sub(r"\{([a-z_]+)\}", lambda named: whole[named[1]], pattern)
    return whole


PATTERNS = _put_together(_TABLES["patterns"])
_WORDS = {name: words.split() for name, words in _TABLES["words"].items()}
ENGLISH_MONTHS = [*FULL_MONTHS, *_WORDS["short_months"], *(f"{month}." for month in _WORDS["short_months"])]
MONTHS = [*ENGLISH_MONTHS, *_WORDS["other_months"]]
# Written out as a set, which is looked up, because a pattern of two hundred branches would try one after the other.
UNITS = [
    *_WORDS["lengths"], *(f"{kind} {length}" for kind in ("square", "cubic", "nautical") for length in _WORDS["lengths"]),
    *_WORDS["units"], *_TABLES["units_of_words"],
]  # fmt: skip
_LABELS, _NEVER_YEARS, _OPENERS = (frozenset(_WORDS[name]) for name in ("labels", "never_years", "openers"))
_WORD_BEFORE = re.compile(r"(?:^|[\s\"“‘'(\[—–])([^\s\"“‘'(\[—–]+)\s$")


def is_label(text: str, start: int, end: int) -> bool:
    """Return whether the plain number ``text[start:end]`` names something: a chapter, a product, a list item, a reference."""
    following = text[end : end + 1]
    if start == 0 and following in (".", ")") and end < len(text) - 1:
        return True
    before = text[start - 1 : start]
    if before in ("[", "(") and following in ("]", ")", ",") and end - start < 4:
        return True
    if before != " ":
        return False
    match = _WORD_BEFORE.search(text, max(0, start - 40), start)
    if match is None:
        return False
    word = match.group(1)
    small = word.rstrip(".").lower()
    if small in _LABELS:
        return True
    if word == small or word.islower():
        return False
    return match.start(1) > 1 or not (small in _OPENERS or small.endswith(("ly", "ed")))


def is_never_year(text: str, start: int) -> bool:
    """Return whether the word before ``start`` says that a number from 1000 to 2099 there is no year: "PO Box 1234"."""
    word = text[text.rfind(" ", 0, max(0, start - 1)) + 1 : start]
    return word[-1:] == " " and word[:-1].rstrip(".").lower() in _NEVER_YEARS


_MONTHS: dict[str, Any] = {"months": MONTHS, "english": ENGLISH_MONTHS}
_FORMS = deferred(PATTERNS["form"], units=UNITS, **_MONTHS)
_LED_FORMS = deferred(PATTERNS["led_form"], units=UNITS, **_MONTHS)
_BEFORE = deferred(PATTERNS["before"], **_MONTHS)
# The commonest case, a year before a comma or a full stop, needs no pattern of many branches.
_CLEAR_YEAR = re.compile(rf"(?<=[ (]){PATTERNS['year']}(?=[,;)](?!\d)|\.(?:\s|$)|$)")
_DIGITS = regex.compile(r"\d+")
_HAN_OR_HANGUL = deferred(r"[\p{Han}\p{Hangul}\p{Hiragana}\p{Katakana}]")
_EAST_ASIAN = deferred(PATTERNS["east_asian"])
_IN_WORDS = deferred(PATTERNS["in_words"], units=UNITS)
_HINT, _ALONE = re.compile(PATTERNS["hint"]), re.compile(PATTERNS["alone"])


LONGEST_RUN = 40
"""Digits in a row. More are a key, and no pattern has to be tried at each of them."""


class DateNumberTagger:
    """Tags "12 March 1969", "1914–18", "the 19th century", "10:30 a.m.", "1,200 kg", "$3.5 million", "twenty-three". Needs no corpus."""

    def tag(self, text: str) -> list[TaggedSpan]:
        spans = _spelled(text)
        anchor = _DIGITS.search(text)
        if anchor is None:
            return spans
        found = _from_digits(text, anchor)
        spans = _merged(spans, found) if spans else found
        if not text.isascii() and _HAN_OR_HANGUL.search(text):
            return _merged(
                spans, [TaggedSpan(match.start(), match.end(), match.lastgroup or "number") for match in _EAST_ASIAN.finditer(text)]
            )
        return spans

    def state(self) -> dict[str, Any]:
        return {"type": "dates"}


def _from_digits(text: str, anchor: regex.Match[str] | None) -> list[TaggedSpan]:
    """Spans that hold a digit, from the first ``anchor`` on."""
    spans: list[TaggedSpan] = []
    reached = 0
    while anchor is not None:
        span = None if anchor.end() - anchor.start() > LONGEST_RUN else _span_at(text, reached, anchor.start())
        if span is not None:
            spans.append(span)
        reached = anchor.end() if span is None else span.end
        anchor = _DIGITS.search(text, reached)
    return spans


def _span_at(text: str, reached: int, digit: int) -> TaggedSpan | None:
    """The span that holds ``digit`` and begins at ``reached`` or later."""
    before = _BEFORE.match(text, reached, digit)
    match = None if before is None else _LED_FORMS.match(text, before.start())
    if match is None or match.end() <= digit:
        year = _CLEAR_YEAR.match(text, digit)
        if year is not None and not is_never_year(text, digit):
            return TaggedSpan(digit, year.end(), "date")
        match = _FORMS.match(text, digit)
    if match is None:
        return None
    kind = match.lastgroup
    if kind in ("plain", "time") and is_label(text, match.start(), match.end()):
        return None
    if kind == "year" and is_never_year(text, match.start()):
        return None
    if kind == "range" and not _rises(match.group()):
        return None
    return TaggedSpan(match.start(), match.end(), "number" if kind in ("quantity", "plain") else "date")


def _rises(years: str) -> bool:
    """Return whether the second year of "1914-18" comes after the first."""
    first, second = regex.split(r"[–/-]", years)
    return int(second) > int(first[-len(second) :])


def _merged(first: list[TaggedSpan], second: list[TaggedSpan]) -> list[TaggedSpan]:
    """Both lists in order; of the second only what overlaps nothing of the first."""
    free = [span for span in second if all(span.end <= other.start or other.end <= span.start for other in first)]
    return sorted([*first, *free])


def _spelled(text: str) -> list[TaggedSpan]:
    """Centuries and numbers written in words: from eleven on, or with a unit from two on; in order."""
    spans: list[TaggedSpan] = []
    for hint in _HINT.finditer(" " + text):
        match = _IN_WORDS.match(text, hint.start())  # one further than the edge, one less than in the text
        if match is None or (spans and match.start() < spans[-1].end):
            continue
        if match["date"]:
            spans.append(TaggedSpan(match.start(), match.end(), "date"))
        elif match["fraction"] or _ALONE.match(match["number"]) is None or (match["unit"] and match["number"].lower() != "one"):
            spans.append(TaggedSpan(match.start(), match.end(), "number"))
    return spans
