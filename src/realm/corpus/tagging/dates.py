"""Dates, years, centuries, times, numbers and quantities of one sentence, by patterns.

Every run of digits that no span holds yet is an anchor: what may stand before it ("Friday, March", "£", "mid-") is read backwards, and
the forms of dates, quantities and plain numbers are tried from there. So the patterns, which are long, are tried at digits only. Words
for numbers, and Chinese, Japanese and Korean, have their own passes. The forms stand in date_forms.py and number_forms.py.
"""

import re
from typing import Any

import regex

from realm.corpus.tagging import date_forms, number_forms
from realm.corpus.tagging.spans import TaggedSpan

# Not inside a word, a version (1.2.3), a phone number (555-1234), a path, an address, an assignment or a coordinate.
_START = r"(?<![\p{L}\p{M}\p{N}_\u200c\u200d])(?<!\p{N}[.,:/\-–])(?<![./\-#@:=&?+§|°′″\\])"
_END = r"(?![\p{L}\p{M}\p{N}_%|°′″\u200c\u200d])(?![.,:/\-–]\p{N})(?![-/]\p{L})"
_MONTH_LISTS = {"months": date_forms.MONTHS, "english": date_forms.ENGLISH_MONTHS}
_FORMS = regex.compile(
    rf"(?:{_START}|{date_forms.AFTER_DAY})(?:(?P<date>{date_forms.DATE})(?:{_END}|{date_forms.BEFORE_DAY})"
    rf"|(?:(?P<quantity>{number_forms.QUANTITY})|(?P<time>{date_forms.BARE_TIME})"
    rf"|(?P<range>{date_forms.YEAR_RANGE})|(?P<year>{date_forms.YEAR}{number_forms.NO_STREET})"
    rf"|(?P<plain>{number_forms.PLAIN}{number_forms.NO_STREET})){_END})",
    units=number_forms.UNITS,
    **_MONTH_LISTS,
)
_LED_FORMS = regex.compile(
    rf"(?:{_START}|{date_forms.AFTER_DAY})(?:(?P<date>{date_forms.LED_DATE})(?:{_END}|{date_forms.BEFORE_DAY})"
    rf"|(?P<quantity>{number_forms.LED_QUANTITY}){_END})",
    units=number_forms.UNITS,
    **_MONTH_LISTS,
)
_BEFORE = regex.compile(rf"(?r)(?<![\p{{L}}\p{{M}}\p{{N}}_])(?:{date_forms.BEFORE}|{number_forms.BEFORE})", **_MONTH_LISTS)
# The commonest case, a year before a comma or a full stop, needs no pattern of many branches.
_CLEAR_YEAR = re.compile(rf"(?<=[ (]){date_forms.YEAR}(?=[,;)](?!\d)|\.(?:\s|$)|$)")
_DIGITS = regex.compile(r"\d+")


class DateNumberTagger:
    """Tags "12 March 1969", "1914–18", "the 19th century", "10:30 a.m.", "1,200 kg", "$3.5 million", "twenty-three". Needs no corpus."""

    def tag(self, text: str) -> list[TaggedSpan]:
        spans = number_forms.spelled(text)
        anchor = _DIGITS.search(text)
        if anchor is None:
            return spans
        found = _from_digits(text, anchor)
        spans = _merged(spans, found) if spans else found
        if not text.isascii() and date_forms.HAN_OR_HANGUL.search(text):
            return _merged(spans, date_forms.east_asian(text))
        return spans

    def state(self) -> dict[str, Any]:
        return {"type": "dates"}


def _from_digits(text: str, anchor: regex.Match[str] | None) -> list[TaggedSpan]:
    """Spans that hold a digit, from the first ``anchor`` on."""
    spans: list[TaggedSpan] = []
    reached = 0
    while anchor is not None:
        span = _span_at(text, reached, anchor.start())
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
        if year is not None and not number_forms.is_never_year(text, digit):
            return TaggedSpan(digit, year.end(), "date")
        match = _FORMS.match(text, digit)
    if match is None:
        return None
    kind = match.lastgroup
    if kind in ("plain", "time") and number_forms.is_label(text, match.start(), match.end()):
        return None
    if kind == "year" and number_forms.is_never_year(text, match.start()):
        return None
    if kind == "range" and not _rises(match.group()):
        return None
    return TaggedSpan(match.start(), match.end(), "number" if kind in ("quantity", "plain") else "date")


def _rises(years: str) -> bool:
    """Whether the second year of "1914-18" comes after the first."""
    first, second = regex.split(r"[–/-]", years)
    return int(second) > int(first[-len(second) :])


def _merged(first: list[TaggedSpan], second: list[TaggedSpan]) -> list[TaggedSpan]:
    """Both lists in order; of the second only what overlaps nothing of the first."""
    free = [span for span in second if all(span.end <= other.start or other.end <= span.start for other in first)]
    return sorted([*first, *free])
