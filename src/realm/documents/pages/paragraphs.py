"""Lines of pages that were made to be looked at, and of pictures of them, as paragraphs; words that a line's end parted as words."""

import json
import re
from collections.abc import Callable
from functools import cache

from realm.text.tokenizer import RELEASED
from realm.text.words import by_characters

FULL = 0.75
"""A line this long, in parts of its page's longest, continues in the next one, unless it ends a sentence or the next begins a point."""
POINT = re.compile(r"[•‣▪–—*-] |\(?[0-9a-z]{1,2}[.)] ")
"""The beginning of a point of a list."""
ENDS = tuple(".!?:;。！？")
_PARTED = re.compile(r"(?:^|\s)\W*([\w-]*\w)[-\u2010\u00ad]$")
_FIRST = re.compile(r"[\w-]*\w")
_ADDRESS = re.compile(r"(?:www\.|://|@)\S*-$")
_FOREIGN = ("der", "die", "und", "le", "les", "de", "el", "los", "il", "di", "het", "een", "och", "det", "na", "się", "на", "не")
_SHARED_ENDING = frozenset(("and", "or", "to", "und", "oder", "bis", "et", "ou", "y", "o", "en"))
"""Words after which a hyphen at a line's end stands for the rest of a word: "pre- and postwar"."""


def unwrapped(text: str) -> str:
    """Lines of a page as paragraphs: what only the width of the page has parted is joined.

    Example: "The bridge was re-\\npaired in 1931 by the com-\\npany of Smith." is one line, "The bridge was repaired in 1931 by ..."."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    words = words_of_lines(lines)
    widest = max(map(len, lines), default=0)
    paragraphs: list[str] = []
    going_on = False
    for line in lines:
        if not line:
            going_on = False
            continue
        if going_on and not POINT.match(line):
            paragraphs[-1] = continued(paragraphs[-1], line, words.__contains__)
        else:
            paragraphs.append(line)
        going_on = len(line) >= FULL * widest and not (line.endswith(ENDS) and len(line) < widest * 0.9)
    return "\n\n".join(paragraphs)


def words_of_lines(lines: list[str]) -> set[str]:
    """Words that stand whole in lines, in lower case, with their hyphens."""
    found = set[str]()
    for line in lines:
        words = line.lower().split()
        found.update(word.strip(".,;:!?()[]\"'“”‘’„»«") for word in words[:-1] + [word for word in words[-1:] if word[-1] not in "-\u2010"])
    return found


def continued(before: str, line: str, occurs: Callable[[str], bool]) -> str:
    """A line and the one that continues it. A word parted by a hyphen is joined where it is known whole, where its end is no word, and in
    other languages than English; else the hyphen stays. ``occurs`` says whether a word, in lower case, stands in the same document."""
    parted, first = _PARTED.search(before), _FIRST.match(line)
    if _ADDRESS.search(before):
        return before + line
    if parted is None or first is None or first[0].lower() in _SHARED_ENDING:
        return before + line if by_characters(before[-1:]) and by_characters(line[:1]) else f"{before} {line}"
    start, end = parted[1].lower(), first[0].lower()
    whole = start + end
    kept = len(start) < 2 or parted[1].isupper() or "-" in start or occurs(f"{start}-{end}")
    cut = whole in dictionary() or not (end in dictionary() or occurs(end)) or (any(map(occurs, _FOREIGN)) and not occurs("the"))
    joins = end[0].isalpha() and first[0][0].islower() and (occurs(whole) or (cut and not kept))
    return (before[:-1] if joins or before[-1] == "\u00ad" else before) + line


def carried(before: str, line: str, occurs: Callable[[str], bool]) -> tuple[str, str] | None:
    """The last line of a page and the first of the next, with the word that both share whole in the first; None: they share none."""
    end, _, rest = line.partition(" ")
    whole = continued(before, end, occurs)
    return (whole, rest) if _PARTED.search(before) and end[:1].islower() and not whole.endswith(f" {end}") else None


@cache
def dictionary() -> frozenset[str]:
    """English words that are whole in the vocabulary of the released model."""
    return frozenset(json.loads((RELEASED / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
