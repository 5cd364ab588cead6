"""Sentences without some of their words and out of order."""

from itertools import pairwise

import numpy as np
import pytest

from realm.data.statements import BESIDE, DROPPED, thinned, thinned_cloze
from realm.data.types import MaskedQuery

WORDS = 40
STARTS = np.arange(1000) % 3 != 2
"""Every third wordpiece goes on with a word: words of one wordpiece and of two, by turns."""
SENTENCE = list(range(3 * WORDS // 2))
MASK = 999


def words_of(ids: list[int]) -> list[tuple[int, ...]]:
    found: list[list[int]] = []
    for wordpiece in ids:
        if STARTS[wordpiece] or not found:
            found.append([])
        found[-1].append(wordpiece)
    return [tuple(word) for word in found]


def test_words_are_left_out_and_moved_but_stay_whole() -> None:
    before, kept, moved = words_of(SENTENCE), 0, 0
    assert len(before) == WORDS
    for seed in range(200):
        after = words_of(thinned(SENTENCE, STARTS, np.random.default_rng(seed)))
        assert set(after) <= set(before) and len(set(after)) == len(after)
        places = [before.index(word) for word in after]
        kept += len(after)
        moved += sum(a > b for a, b in pairwise(places))
    assert kept / (200 * WORDS) == pytest.approx(1 - DROPPED, abs=0.02) and 0.15 < moved / kept < 0.6
    assert thinned(SENTENCE, STARTS, np.random.default_rng(3)) == thinned(SENTENCE, STARTS, np.random.default_rng(3))


def test_something_is_always_left() -> None:
    assert all(thinned([3], STARTS, np.random.default_rng(seed)) == [3] for seed in range(50))
    assert thinned([], STARTS, np.random.default_rng(0)) == []


@pytest.mark.parametrize("place", [0, 21, 57])
def test_a_cloze_keeps_the_words_around_one_mask(place: int) -> None:
    """Wherever the span stands, of however many wordpieces it is."""
    ids = [*SENTENCE[:place], MASK, MASK, *SENTENCE[place + 2 :]]
    query = MaskedQuery(ids, [place, place + 1], SENTENCE[place : place + 2], origin=0)
    sizes = set()
    for seed in range(100):
        cloze = thinned_cloze(query, MASK, STARTS, np.random.default_rng(seed))
        at = cloze.index(MASK)
        assert cloze.count(MASK) == 1 and set(cloze[:at]) <= set(ids[:place]) and set(cloze[at + 1 :]) <= set(ids[place + 2 :])
        sizes.add(max(len(words_of(cloze[:at])), len(words_of(cloze[at + 1 :]))))
    assert max(sizes) < BESIDE[1] + 1 and len(sizes) > 3
