"""The words of ``question_words.toml``, and which of its languages a text is written in."""

import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import regex

WORD = regex.compile(r"[\p{L}\p{M}]+['’]?")
HAN, HANGUL, KANA, LATIN = (regex.compile(pattern) for pattern in (r"\p{Han}", r"\p{Hangul}", r"[\p{Hiragana}\p{Katakana}]", r"\p{Latin}"))
KNOWN_SHARE = 0.15
"""At least so many of a text's words must be a language's function words for it to be that language."""


@dataclass(frozen=True)
class Language:
    """The words of one language, as ``question_words.toml`` explains them; sets of words are in lower case."""

    name: str
    words: Mapping[str, frozenset[str]]
    ask: Mapping[str, tuple[str, ...]]
    instead: Mapping[str, Mapping[str, str]]
    behind: Mapping[str, str]
    endings: Mapping[str, str]
    opens: str
    closes: str
    moves: bool
    rest_first: bool
    strands: bool
    nouns_are_names: bool

    @property
    def edges(self) -> tuple[str, ...]:
        """Characters with which nothing begins or ends that could be asked for."""
        return tuple(self.words["not_edges"])

    @property
    def spaced(self) -> bool:
        """Whether spaces stand between its words."""
        return self.name != "zh"


def _language(name: str, table: Mapping[str, Any]) -> Language:
    words = {key: frozenset(word.replace("_", " ") for word in value.split()) for key, value in table.items() if isinstance(value, str)}
    ask = {kind: tuple(drawn.split("|")) for kind, drawn in table["ask"].items()}
    return Language(
        name=name,
        words=defaultdict(frozenset, words),
        ask=ask,
        instead=table.get("instead", {}),
        behind=table.get("behind", {}),
        endings=table.get("endings", {}),
        opens=table["opens"],
        closes=table["closes"],
        moves=table["moves"],
        rest_first=table.get("rest_first", False),
        strands=table.get("strands", False),
        nouns_are_names=table.get("nouns_are_names", False),
    )


_TABLES = tomllib.loads((files("realm.answering.questions") / "words.toml").read_text("utf-8"))
_OTHERS = {name: frozenset(words.split()) for name, words in _TABLES.pop("others").items()}
LANGUAGES = {name: _language(name, table) for name, table in _TABLES.items()}
_IN_LATIN = [name for name, language in LANGUAGES.items() if language.words["function_words"]]
_FUNCTION_WORDS = {name: LANGUAGES[name].words["function_words"] for name in _IN_LATIN} | _OTHERS


@lru_cache(maxsize=4096)
def detect_language(text: str) -> str | None:
    """Which of ``LANGUAGES`` a sentence is written in, by its script and its function words; None: none of them, or too little to tell."""
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
    clear = hits[best] > hits[second] and hits[best] >= max(others, KNOWN_SHARE * len(words))
    return best if clear else None
