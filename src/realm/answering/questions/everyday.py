"""Everyday forms of questions: as typed into a search box, or asked by a person whom the documents are about.

"When was the boiler replaced?" becomes "when was our boiler replaced", "boiler replaced when", "When was the bolier replaced?".
"""

import numpy as np
import regex

from realm.text.words import STOPWORDS

CHANGED = 0.3
"""Share of the questions that are changed."""
LONG_ENOUGH = 5
"""Letters of a word that may have a typing error."""
_WORD = regex.compile(r"\p{L}+")
_DEFINITE = regex.compile(r"\b[Tt]he\b(?=\s+\p{Ll})")
OWNERS = ("our", "my", "the")


def everyday(question: str, rng: np.random.Generator) -> str:
    """The question, or in ``CHANGED`` of all draws one of its everyday forms. Languages that none of the rules fits stay as they are."""
    if rng.random() >= CHANGED:
        return question
    rules = (without_mark, owned, keywords, mistyped)
    return rules[int(rng.integers(len(rules)))](question, rng) or question


def without_mark(question: str, rng: np.random.Generator) -> str:
    """Without its question mark."""
    return question.rstrip(" ?？")


def owned(question: str, rng: np.random.Generator) -> str:
    """One "the" before a common noun becomes "our" or "my"."""
    found = list(_DEFINITE.finditer(question))
    if not found:
        return question
    chosen = found[int(rng.integers(len(found)))]
    return question[: chosen.start()] + OWNERS[int(rng.integers(2))] + question[chosen.end() :]


def keywords(question: str, rng: np.random.Generator) -> str:
    """Its content words and its first word, such as "who founded company 1911"; unchanged where fewer than three would be left."""
    words = question.rstrip(" ?？").split()
    kept = [word for at, word in enumerate(words) if not at or word.lower() not in STOPWORDS]
    return " ".join(kept) if len(kept) >= 3 else question


def mistyped(question: str, rng: np.random.Generator) -> str:
    """Two neighbouring letters behind the first of one long lower-case word change places, or the second of them is missing."""
    found = [word for word in _WORD.finditer(question) if len(word.group()) >= LONG_ENOUGH and word.group().islower()]
    if not found:
        return question
    word = found[int(rng.integers(len(found)))]
    at = word.start() + 1 + int(rng.integers(len(word.group()) - 2))
    pair = question[at : at + 2]
    return question[:at] + (pair[::-1] if rng.random() < 0.5 else pair[:1]) + question[at + 2 :]
