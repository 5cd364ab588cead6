"""Word tables of ``words.toml`` by language, and detection of those languages."""

import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import regex

WORD = regex.compile(r"[\p{L}\p{M}]+['’]?")
HAN, HANGUL, KANA, LATIN = (regex.compile(pattern) for pattern in (r"\p{Han}", r"\p{Hangul}", r"[\p{Hiragana}\p{Katakana}]", r"\p{Latin}"))
MIN_FUNCTION_WORD_SHARE = 0.15  # least share of function words in a text of a language


@dataclass(frozen=True)
class Language:
    """Words of one language, as ``words.toml`` explains them; sets of words are in lower case."""

    name: str
    words: Mapping[str, frozenset[str]]
    ask: Mapping[str, tuple[str, ...]]
    opens: str
    closes: str
    moves: bool
    instead: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    behind: Mapping[str, str] = field(default_factory=dict)
    endings: Mapping[str, str] = field(default_factory=dict)
    rest_first: bool = False
    strands: bool = False
    nouns_are_names: bool = False

    @property
    def edges(self) -> tuple[str, ...]:
        """Characters with which no askable span begins or ends."""
        return tuple(self.words["not_edges"])

    @property
    def spaced(self) -> bool:
        """True if spaces separate its words."""
        return self.name != "zh"


def _language(name: str, table: Mapping[str, Any]) -> Language:
    words = {key: frozenset(word.replace("_", " ") for word in value.split()) for key, value in table.items() if isinstance(value, str)}
    ask = {kind: tuple(drawn.split("|")) for kind, drawn in table["ask"].items()}
    own = {key: table[key] for key in Language.__dataclass_fields__ if key in table and key not in ("name", "words", "ask")}
    return Language(name, defaultdict(frozenset, words), ask, **own)


_TABLES = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
_OTHERS = {name: frozenset(words.split()) for name, words in _TABLES.pop("others").items()}
LANGUAGES = {name: _language(name, table) for name, table in _TABLES.items()}
_IN_LATIN = [name for name, language in LANGUAGES.items() if language.words["function_words"]]
_FUNCTION_WORDS = {name: LANGUAGES[name].words["function_words"] for name in _IN_LATIN} | _OTHERS


@lru_cache(maxsize=4096)
def detect_language(text: str) -> str | None:
    """Language of a sentence, of ``LANGUAGES``, by its script and function words; None: another, or too little text."""
    latin, hangul, han = (len(script.findall(text)) for script in (LATIN, HANGUL, HAN))
    if hangul > max(latin, han):
        return "ko"
    if 2 * han > latin:  # a Chinese character is a syllable or more
        return None if KANA.search(text) else "zh"
    words = [word.lower() for word in WORD.findall(text)]
    if not latin or not words:
        return None
    hits = {name: sum(word in known for word in words) for name, known in _FUNCTION_WORDS.items()}
    best, second = sorted(_IN_LATIN, key=lambda name: -hits[name])[:2]
    others = max(hits[name] for name in _OTHERS)
    clear = hits[best] > hits[second] and hits[best] >= max(others, MIN_FUNCTION_WORD_SHARE * len(words))
    return best if clear else None
