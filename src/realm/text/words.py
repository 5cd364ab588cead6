"""Words as sparse search counts them: of any script, in lower case, without the commonest words of English."""

from itertools import pairwise

import regex

from realm.text.scripts import UNSPACED

_STOPWORDS = """a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with"""
STOPWORDS = frozenset(_STOPWORDS.split())
"""Lucene's list."""
_HAS_UNSPACED = regex.compile(rf"[{UNSPACED}]")
_WORD = regex.compile(r"\w{2,}")
_RUN_OR_WORD = regex.compile(rf"([{UNSPACED}]+)|([^\W{UNSPACED}]{{2,}})")


def words(text: str) -> list[str]:
    """The words of a text of two characters or more, each as often as it occurs. A run of characters of a script that puts no spaces
    between words, or glues them (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese, Tibetan), gives its pairs of neighbouring characters
    instead; a single character gives itself."""
    lower = text.lower()
    if _HAS_UNSPACED.search(lower) is None:
        return [word for word in _WORD.findall(lower) if word not in STOPWORDS]
    found: list[str] = []
    for run, word in _RUN_OR_WORD.findall(lower):
        if run:
            found += [first + second for first, second in pairwise(run)] or [run]
        elif word not in STOPWORDS:
            found.append(word)
    return found
