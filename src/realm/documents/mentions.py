"""Names in a text that may be titles of other documents.

A name counts where it is written with a capital letter that the beginning of a sentence does not explain: "Guatemala City" anywhere,
"Guatemala" within a sentence, "Water" or "New year" never at the beginning of one. In scripts without letter case it has three characters
or more. So titles that are ordinary words do not become links."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import regex

from realm.text.folding import UNSPACED

LONGEST = 8
"""Words of a name."""
LONGEST_UNSPACED = 24
"""Characters of a name in a script without spaces."""
SHORTEST_UNSPACED = 3
_WORD = regex.compile(rf"(?V1)[{UNSPACED}]|[[\w]--[{UNSPACED}]]+(?:['’.&-][[\w]--[{UNSPACED}]]+)*")
_UNSPACED = regex.compile(rf"[{UNSPACED}]")
_JOINED = regex.compile(r"[ \n,.'’&():-]{1,3}")


class Mention(NamedTuple):
    """A name and where it stands: code points in the text."""

    name: str
    start: int
    end: int


def mentions(text: str, sentences: Sequence[tuple[int, int]]) -> list[list[Mention]]:
    """The names that may begin at each place of a block's text, in its order; at one place the longest first. ``sentences`` are (start,
    end) of each, ascending."""
    found: list[list[Mention]] = []
    for start, end in sentences:
        words = list(_WORD.finditer(text, start, end))
        for at, word in enumerate(words):
            unspaced = _UNSPACED.match(word[0]) is not None
            if unspaced or _has_capital(word[0]):
                names = _unspaced_names(text, words, at) if unspaced else _names(text, words, at)
                found.append(names[::-1])
    return found


def _names(text: str, words: list[regex.Match[str]], at: int) -> list[Mention]:
    """Names of one word and more from a word with a capital on, shortest first."""
    start, names = words[at].start(), []
    explained = at == 0 and words[0][0][1:] == words[0][0][1:].lower()  # the capital is the sentence's
    for last in range(at, min(at + LONGEST, len(words))):
        if last > at and not _JOINED.fullmatch(text, words[last - 1].end(), words[last].start()):
            break
        explained = explained and (last == at or not _has_capital(words[last][0]))
        if not explained:
            names += [Mention(" ".join(text[start:end].split()), start, end) for end in _ends(text, words[last].end())]
    return names


def _ends(text: str, end: int) -> list[int]:
    """The ends that a name may have whose last word ends: there, or behind the bracket or stop that follows."""
    return [end, end + 1] if text[end : end + 1] in (")", ".", "!", "?") else [end]


def _unspaced_names(text: str, words: list[regex.Match[str]], at: int) -> list[Mention]:
    start = words[at].start()
    room = range(at, min(at + LONGEST_UNSPACED, len(words)))
    ends = [words[last].end() for last in takewhile(lambda last: last == at or words[last - 1].end() == words[last].start(), room)]
    return [Mention(text[start:end], start, end) for end in ends[SHORTEST_UNSPACED - 1 :]]


def _has_capital(word: str) -> bool:
    return word.lower() != word
