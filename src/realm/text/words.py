"""Words of any script, and the scripts that decide what counts as one; stop words of sparse search; languages by ISO 639-1.

Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan put no space between words, and Korean glues particles to them: what stands
between spaces there is no word that an answer could be compared with. Texts mostly of such letters are read character by character."""

import importlib
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import regex

from realm.text import deferred
from realm.text.folding import UNSPACED, unaccented

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
_CHARACTER = regex.compile(rf"[{UNSPACED}]")
_OTHER_WORD = regex.compile(rf"[^\W\d_{UNSPACED}]+")
_BETWEEN_SPACES = re.compile(r"\S+")
# Punctuation beyond ASCII parts words and is none; that of ASCII stays inside of what it stands in ("1,200", "U.S.").
_CHARACTERS = regex.compile(rf"(?V1)[{UNSPACED}]|[^\s[{UNSPACED}[\p{{P}}--[\u0000-\u007f]]]]+")
_HAN, _HANGUL = regex.compile(r"\p{Han}"), regex.compile(r"\p{Hangul}")
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")


@lru_cache(maxsize=2**12)
def by_characters(text: str) -> bool:
    """Return whether a text is mostly written in letters that are no words between spaces: more of them than words in other letters."""
    if text.isascii() or _CHARACTER.search(text) is None:
        return False
    return len(_CHARACTER.findall(text)) > len(_OTHER_WORD.findall(text))


def has_characters(text: str) -> bool:
    return not text.isascii() and _CHARACTER.search(text) is not None


def word_ranges(text: str) -> list[tuple[int, int]]:
    """(start, end) in code points of what counts as a word of a text, in order: what stands between white space; in a text that is read by
    characters each of its letters, and what other letters and digits stand between them."""
    return [match.span() for match in (_CHARACTERS if by_characters(text) else _BETWEEN_SPACES).finditer(text)]


def characters_of(text: str) -> list[str]:
    """The words of a text as they would be in a text that is read by characters, whatever its own letters are."""
    return _CHARACTERS.findall(text)


def east_asian(text: str) -> str:
    """The East Asian language of a text that is read by characters, by its letters: ko, ja, zh, or "" (another)."""
    hangul, kana, han = (len(script.findall(text)) for script in (_HANGUL, _KANA, _HAN))
    if not hangul + kana + han:
        return ""
    if hangul >= kana + han:
        return "ko"
    return "ja" if 10 * kana > han else "zh"


STOPWORDS = frozenset(TABLES["stopwords"].split())
"""Lucene's list."""
# A number with its point or comma is one word, and so are C++ and C#; a single letter beside an apostrophe is none.
_WORD = r"\d+(?:[.,]\d+)+|[^\W{0}]{{2,}}+(?:\+\+)?|(?<!['’])[^\W{0}](?:\+\+|\#(?!\w)|(?!['’]))"
_WORDS = regex.compile(_WORD.format(""))
_RUN_OR_WORD = regex.compile(rf"([{UNSPACED}]+)|({_WORD.format(UNSPACED)})")
_DIGIT = re.compile(r"(?![0-9])\d")
_THOUSANDS = regex.compile(r"\d{1,3}(?:,\d{3})+")


def words(text: str) -> list[str]:
    """The words of a text in their one spelling, each as often as it occurs: 4,500 and 4500 are one, and so are É, é and e. A run of
    characters of a script that puts no spaces between words, or glues them (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese, Tibetan),
    gives its pairs of neighbouring characters instead; a single character gives itself."""
    plain = unaccented(text)
    if _CHARACTER.search(plain) is None:
        return [_number(word) for word in _WORDS.findall(plain) if word not in STOPWORDS]
    found: list[str] = []
    for run, word in _RUN_OR_WORD.findall(plain):
        if run:
            found += [first + second for first, second in pairwise(run)] or [run]
        elif word not in STOPWORDS:
            found.append(_number(word))
    return found


def _number(word: str) -> str:
    """A number in ASCII digits, without the commas between its thousands."""
    word = _DIGIT.sub(lambda digit: str(int(digit[0])), word) if not word.isascii() else word
    return word.replace(",", "") if "," in word and _THOUSANDS.fullmatch(word) else word


FIRST, LAST = ord("가"), ord("힣")
_FINALS, _N, _L, _BS, _SS = 28, 4, 8, 18, 20
"""Final consonants of a syllable, "none" counted, and the numbers of ㄴ, ㄹ, ㅄ and ㅆ among them."""
_MIN_STEM_CHARS = 2
"""Characters that a word keeps at least when its particle is taken off: "국가" and "종이" are whole."""
_PARTICLES: dict[str, str] = TABLES["particles"]
_OPENERS, _ENDINGS = frozenset(TABLES["openers"].split()), tuple(TABLES["endings"].split())


def final_of(character: str) -> int | None:
    """The number of a syllable's final consonant, 0 for none; None for what is no Hangul syllable."""
    return (ord(character) - FIRST) % _FINALS if FIRST <= ord(character) <= LAST else None


def particle_length(word: str) -> int:
    """Number of characters at a word's end that are a particle: 0 where none fits what stands before it, or too little would be left. After
    letters and digits of other scripts, whose sound the spelling does not tell, any particle fits."""
    for particle, wanted in _PARTICLES.items():
        stem = word[: len(word) - len(particle)]
        if not word.endswith(particle) or len(stem) < _MIN_STEM_CHARS or not stem[-1].isalnum():
            continue
        final = final_of(stem[-1])
        fits = {"consonant": bool(final), "vowel": final == 0, "liquid": final in (0, _L), "either": True}
        if final is None or fits[wanted]:
            return len(particle)
    return 0


def is_grammar(words: Sequence[str]) -> bool:
    """Return whether words that stand together often say nothing by themselves: "그 결과", "않고 있다", "등 다양한"."""
    return words[0] in _OPENERS or words[-1].endswith(_ENDINGS)


def asking(statement: str) -> str:
    """A statement in the plain style with the ending that asks: 했다 to 했는가, 낸다 to 내는가, 이다 to 인가, 높다 to 높은가.

    Any other is not changed."""
    if not statement.endswith("다") or len(statement) < 2:
        return statement
    stem, last = statement[:-2], statement[-2]
    final = final_of(last)
    if final is None:
        return statement
    if final in (_SS, _BS):
        return f"{stem}{last}는가"
    if final == _N:
        return f"{stem}{chr(ord(last) - _N)}는가"
    return f"{stem}{chr(ord(last) + _N)}가" if final == 0 else f"{stem}{last}은가"


FULL_MONTHS: list[str] = TABLES["months"].split()
"""Months of English."""
DETECTION_CHARS = 500
"""Characters of a text by which its language is told."""
_EAST_ASIAN = deferred(r"[\p{Han}\p{Hangul}\p{Hiragana}\p{Katakana}]")
_OF_SCRIPT, _OTHERS = TABLES["language_of_script"], TABLES["code_of_script"]
_SCRIPTS = {name: deferred(rf"\p{{{name}}}") for name in (*_OF_SCRIPT, *_OTHERS)}
_LETTER = deferred(r"\p{L}")


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
        return str(_OF_SCRIPT[script])
    classify = _classifier()
    return f"und-{_OTHERS[script]}" if classify is None else str(classify(seen)[0])


@cache
def _classifier() -> Callable[[str], tuple[str, Any]] | None:
    """py3langid's, loaded once; None where it is not installed."""
    try:
        return importlib.import_module("py3langid").classify  # type: ignore[no-any-return]
    except ImportError:
        return None
