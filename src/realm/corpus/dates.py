"""Dates, years, numbers and percentages by patterns."""

from typing import Any

import regex

from realm.corpus.tagging import TaggedSpan

_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?)"
)
_DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_YEAR = r"(?:[12]\d{3}(?:\s?(?:AD|BC|CE|BCE))?)"
# Tried in this order at each position, so the longest written form comes first.
_DATE = rf"{_DAY}(?:\sof)?\s{_MONTH}(?:,?\s{_YEAR})?|{_MONTH}\s{_DAY}(?:,\s?{_YEAR})?|{_MONTH},?\s{_YEAR}|[12]\d{{3}}-[01]\d-[0-3]\d"
_PLAIN_YEAR = r"(?:\d{1,3},?)?\d{1,3}\s(?:AD|BC|CE|BCE)|[12]\d{3}s?"
_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_PATTERN = regex.compile(
    # Not inside a word, a version (1.2.3), a phone number (555-1234), a path or an address.
    r"(?<![\p{L}\p{M}\p{N}_\u200c\u200d])(?<![\p{N}][.,:/\-–])(?<![./\-#@])"
    rf"(?:(?P<date>{_DATE})|(?P<year>{_PLAIN_YEAR})|(?P<percent>{_NUMBER}\s?(?:%|percent\b|per\scent\b))|(?P<number>{_NUMBER}(?:\s(?:million|billion|trillion)\b)?))"
    r"(?![\p{L}\p{M}\p{N}_%\u200c\u200d])(?![.,:/\-–]\p{N})(?!-\p{L})"
)
_DIGIT = regex.compile(r"\d")


class DateNumberTagger:
    """Tags "12 March 1969", "March 1969", "1969", "1,200.5", "12 %", "3 million". Needs nothing but the sentence."""

    def tag(self, text: str) -> list[TaggedSpan]:
        """Spans of kind date or number, in order."""
        if _DIGIT.search(text) is None:
            return []
        return [
            TaggedSpan(match.start(), match.end(), "date" if match.lastgroup in ("date", "year") else "number")
            for match in _PATTERN.finditer(text)
        ]

    def state(self) -> dict[str, Any]:
        """Nothing but the type."""
        return {"type": "dates"}
