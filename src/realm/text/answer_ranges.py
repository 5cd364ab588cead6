"""Where an answer stands in a text, in the text's own characters, by one of the ways to compare answers with texts."""

import re
import string
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import regex

from realm.text.answers import normalize_answer

MATCHES = ("wordpiece", "raw", "normalised")
"""Ways to find an answer in a text. wordpiece: the same wordpieces in a row (Hugging Face's REALM); raw: the same characters in a row, case
and all (the TensorFlow release's retriever); normalised: the same words in a row after the official normalisation."""

Range = tuple[int, int]
_TOKENS = regex.compile(r"\S+")


def raw_ranges(text: str, answers: Iterable[str]) -> list[Range]:
    """(start, end) of every place where an answer stands character by character, in order; places may overlap."""
    places = (match.span(1) for answer in answers if answer for match in re.finditer(f"(?=({re.escape(answer)}))", text))
    return sorted(set(places))


def normalised_ranges(text: str, answers: Iterable[str]) -> list[Range]:
    """(start, end) of every place whose normalised words are an answer's, in order, as the text writes them.

    Words, not characters: "art" is not in "party". An answer without words ("the", "?") is in no text. Deleted punctuation joins words, so
    "New York" is not in "New York-based". Punctuation around a place is left out, and so are articles before and after it.
    """
    words, owners = _words_of(text)
    needles = {tuple(normalize_answer(answer).split()) for answer in answers} - {()}
    found = {(owners[at], owners[at + len(needle) - 1]) for needle in needles for at in _word_places(words, needle)}
    if not found:
        return []
    tokens = [match.span() for match in _TOKENS.finditer(text)]
    return sorted({_without_punctuation(text, tokens[first][0], tokens[last][1]) for first, last in found})


def normalised_text(text: str) -> str:
    """``normalize_answer`` of a text, faster: words are looked up, and most of a text's words were seen before."""
    return " ".join(_words_of(text)[0])


def _words_of(text: str) -> tuple[list[str], list[int]]:
    """The normalised words of a text, and for each the number of the token, counted between white space, that it comes from.

    Normalisation looks at nothing beyond white space, so token by token gives the same as all at once (a test compares them).
    """
    words: list[str] = []
    owners: list[int] = []
    for number, token in enumerate(text.split()):
        for word in _token_words(token):
            words.append(word)
            owners.append(number)
    return words, owners


@lru_cache(maxsize=2**18)
def _token_words(token: str) -> tuple[str, ...]:
    return tuple(normalize_answer(token).split())


def _word_places(words: Sequence[str], needle: tuple[str, ...]) -> Iterator[int]:
    first, width = needle[0], len(needle)
    for at, word in enumerate(words):
        if word == first and tuple(words[at : at + width]) == needle:
            yield at


def _without_punctuation(text: str, start: int, end: int) -> Range:
    while start < end and text[start] in string.punctuation:
        start += 1
    while start < end and text[end - 1] in string.punctuation:
        end -= 1
    return start, end
