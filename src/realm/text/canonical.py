"""Canonical text, in which every offset counts: line ends are ``\\n``, and control and invisible format characters are gone."""

import re

import regex

# Zero-width joiners shape Persian, Indic and emoji text, and the prepended marks (U+0600...) are visible: they stay.
_INVISIBLE = regex.compile(
    r"(?V1)[[\p{Cc}\p{Cf}]--[\t\n\r\v\f\x85\u200c\u200d\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]]+"
)
# Nearly all text has none of what the slower patterns look for: one fast search says so. It holds every Cc, Cf and line end but "\n".
_SUSPECT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
_LINE_ENDS = regex.compile(r"\r\n|[\r\v\f\x85\u2028\u2029]")
_SURROGATE = regex.compile(r"[\ud800-\udfff]")


def canonical_text(text: str) -> str:
    """Canonical form of a document's decoded text. Idempotent. Lone surrogates become U+FFFD."""
    if _SUSPECT.search(text) is None:
        return text
    return _SURROGATE.sub("\ufffd", _LINE_ENDS.sub("\n", _INVISIBLE.sub("", text)))


def canonical_line(text: str) -> str:
    """Canonical form of a title or an id: one line, single spaces, none around it."""
    return " ".join(canonical_text(text).split())
