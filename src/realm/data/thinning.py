"""Queries that the sentence's own block answers: without some of its words and out of order ("noisy cloze", Lewis et al. 2019).

A sentence as it is would teach a reader to look for the same words; a thinned one is like a question, which shares some of them.
"""

from itertools import pairwise

import numpy as np

from realm.data.types import MaskedQuery, TokenIds

DROPPED = 0.15
"""How often a word is left out."""
REACH = 3.0
"""By fewer places than this a word changes places with its neighbours."""
BESIDE = (2, 12)
"""Words that are kept on each side of what is hidden: from so many on, fewer than so many."""


def thinned(ids: TokenIds, starts: np.ndarray, rng: np.random.Generator) -> TokenIds:
    """Wordpieces without some words, the others a little out of order; the wordpieces of a word stay together.

    Args:
        starts: bool [v], of every wordpiece of the vocabulary whether it begins a word.
    """
    words = _words(ids, starts)
    kept = [word for word in words if rng.random() >= DROPPED] or words
    order = np.argsort(np.arange(len(kept)) + REACH * rng.random(len(kept)), kind="stable")
    return [wordpiece for place in order.tolist() for wordpiece in kept[place]]


def thinned_cloze(query: MaskedQuery, mask: int, starts: np.ndarray, rng: np.random.Generator) -> TokenIds:
    """The words around what is hidden of a sentence, thinned, with one [MASK] in its place.

    Args:
        query: with one hidden span.
        mask: the wordpiece [MASK].
        starts: as for :func:`thinned`.
    """
    before, after = _words(query.ids[: query.positions[0]], starts), _words(query.ids[query.positions[-1] + 1 :], starts)
    left, right = before[-int(rng.integers(*BESIDE)) :], after[: int(rng.integers(*BESIDE))]
    first, last = (thinned([wordpiece for word in words for wordpiece in word], starts, rng) for words in (left, right))
    return [*first, mask, *last]


def _words(ids: TokenIds, starts: np.ndarray) -> list[TokenIds]:
    borders = [0, *(np.flatnonzero(starts[ids[1:]]) + 1).tolist(), len(ids)] if ids else []
    return [ids[begin:end] for begin, end in pairwise(borders)]
