"""Language of a text by ISO 639-1: ``en``, ``zh``; ``und-Latn`` where only the script is known.

Letters tell scripts of one language; between languages of one script py3langid (extra ``languages``) decides, if it is installed."""

import importlib
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import regex

from realm.text.words import east_asian

FULL_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
"""Months of English."""
DETECTION_CHARS = 500
"""Characters of a text by which its language is told."""
_OF_SCRIPT = {"Thai": "th", "Lao": "lo", "Khmer": "km", "Myanmar": "my", "Tibetan": "bo", "Greek": "el", "Georgian": "ka", "Armenian": "hy"}
_OTHERS = {
    "Latin": "Latn", "Cyrillic": "Cyrl", "Arabic": "Arab", "Hebrew": "Hebr", "Devanagari": "Deva", "Bengali": "Beng", "Tamil": "Taml",
    "Telugu": "Telu", "Gujarati": "Gujr", "Kannada": "Knda", "Malayalam": "Mlym", "Sinhala": "Sinh", "Ethiopic": "Ethi",
}  # fmt: skip
_EAST_ASIAN = regex.compile(r"[\p{Han}\p{Hangul}\p{Hiragana}\p{Katakana}]")
_SCRIPTS = {name: regex.compile(rf"\p{{{name}}}") for name in (*_OF_SCRIPT, *_OTHERS)}
_LETTER = regex.compile(r"\p{L}")


@lru_cache(maxsize=2**12)
def language_of(text: str) -> str:
    """The language of a text, of which the beginning is looked at; "" of one without letters."""
    seen = text[:DETECTION_CHARS]
    counts = Counter({name: len(script.findall(seen)) for name, script in _SCRIPTS.items()} if not seen.isascii() else {})
    if seen.isascii():
        counts["Latin"] = len(_LETTER.findall(seen))
    of_east_asia = 0 if seen.isascii() else len(_EAST_ASIAN.findall(seen))
    script, most = max(counts.items(), key=lambda pair: pair[1])
    if of_east_asia and 2 * of_east_asia > most:  # a character is a syllable or more
        return east_asian(seen)
    if not most:
        return ""
    if script in _OF_SCRIPT:
        return _OF_SCRIPT[script]
    classify = _classifier()
    return f"und-{_OTHERS[script]}" if classify is None else str(classify(seen)[0])


@cache
def _classifier() -> Callable[[str], tuple[str, Any]] | None:
    """py3langid's, loaded once; None where it is not installed."""
    try:
        return importlib.import_module("py3langid").classify  # type: ignore[no-any-return]
    except ImportError:
        return None
