"""The words and patterns of ``forms.toml``, put together; and which digits are only labels ("chapter 5", "Boeing 747")."""

import re
import tomllib
from importlib.resources import files

from realm.text.months import FULL_MONTHS

_TABLES = tomllib.loads((files("realm.corpus.tagging") / "forms.toml").read_text("utf-8"))


def _put_together(patterns: dict[str, str | list[str]]) -> dict[str, str]:
    """Patterns with those that they name in braces put in; a pattern names only earlier ones."""
    whole: dict[str, str] = {}
    for name, written in patterns.items():
        pattern = "|".join(written) if isinstance(written, list) else "".join(map(str.strip, written.split("\n")))
        whole[name] = re.sub(r"\{([a-z_]+)\}", lambda named: whole[named[1]], pattern)
    return whole


PATTERNS = _put_together(_TABLES["patterns"])
_WORDS = {name: words.split() for name, words in _TABLES["words"].items()}
ENGLISH_MONTHS = [*FULL_MONTHS, *_WORDS["short_months"], *(f"{month}." for month in _WORDS["short_months"])]
MONTHS = [*ENGLISH_MONTHS, *_WORDS["other_months"]]
# Written out as a set, which is looked up, because a pattern of two hundred branches would try one after the other.
UNITS = [
    *_WORDS["lengths"], *(f"{kind} {length}" for kind in ("square", "cubic", "nautical") for length in _WORDS["lengths"]),
    *_WORDS["units"], *_TABLES["units_of_words"],
]  # fmt: skip
_LABELS, _NEVER_YEARS, _OPENERS = (frozenset(_WORDS[name]) for name in ("labels", "never_years", "openers"))
_WORD_BEFORE = re.compile(r"(?:^|[\s\"“‘'(\[—–])([^\s\"“‘'(\[—–]+)\s$")


def is_label(text: str, start: int, end: int) -> bool:
    """Whether the plain number ``text[start:end]`` names something: a chapter, a product, a list item, a reference."""
    following = text[end : end + 1]
    if start == 0 and following in (".", ")") and end < len(text) - 1:
        return True
    before = text[start - 1 : start]
    if before in ("[", "(") and following in ("]", ")", ",") and end - start < 4:
        return True
    if before != " ":
        return False
    match = _WORD_BEFORE.search(text, max(0, start - 40), start)
    if match is None:
        return False
    word = match.group(1)
    small = word.rstrip(".").lower()
    if small in _LABELS:
        return True
    if word == small or word.islower():
        return False
    return match.start(1) > 1 or not (small in _OPENERS or small.endswith(("ly", "ed")))


def is_never_year(text: str, start: int) -> bool:
    """Whether the word before ``start`` says that a number from 1000 to 2099 there is no year: "PO Box 1234"."""
    word = text[text.rfind(" ", 0, max(0, start - 1)) + 1 : start]
    return word[-1:] == " " and word[:-1].rstrip(".").lower() in _NEVER_YEARS
