"""Words of any script, and the scripts that decide what counts as one; stop words of sparse search.

Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan put no space between words, and Korean glues particles to them: what stands
between spaces there is no word that an answer could be compared with. Texts mostly of such letters are read character by character."""

import re
from functools import lru_cache
from itertools import pairwise

import regex

from realm.text.folding import UNSPACED, unaccented

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


_STOPWORDS = """a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with"""
STOPWORDS = frozenset(_STOPWORDS.split())
"""Lucene's list."""
_HAS_UNSPACED = regex.compile(rf"[{UNSPACED}]")
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
    if _HAS_UNSPACED.search(plain) is None:
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
