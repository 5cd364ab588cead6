"""Targets of a reader that points: the places of a hidden span in a block, and its likelihood if no block holds it."""

import math
import string
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence as SequenceOf
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.text.wordpieces import BEGINS, bare_entry, word_table

ARTICLES = ("a", "an", "the")
COUNTED = 20_000
"""Blocks, evenly spread, whose salient spans are counted for the prior."""
SMOOTHING = 0.5
"""Added to the count of every span, and of one that was never seen."""
KEPT = 2**14
"""Blocks whose spelling is kept."""

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class SpanPlaces:
    """The spans of a knowledge corpus, compared as answers are: case, punctuation, spaces and articles around a span do not count."""

    def __init__(self, store: BlockStore):
        self._store = store
        tokenizer = store.tokenizer
        self._begins = word_table(tokenizer).starts
        special = set(vars(tokenizer.special).values())
        entries = ("" if number in special else bare_entry(tokenizer, number) for number in range(tokenizer.vocab_size))
        # As ``normalize_answer`` would write them.
        self._texts = [unicodedata.normalize("NFD", entry.lstrip("".join(BEGINS))).lower().translate(_NO_PUNCTUATION) for entry in entries]
        self._spelled = lru_cache(KEPT)(self._spell_row)

    def key(self, wordpieces: SequenceOf[int]) -> str:
        """The normalised characters of a span without the articles around it; empty where it has no letter and no digit."""
        words: list[str] = []
        for wordpiece in wordpieces:
            if self._begins[wordpiece] or not words:
                words.append("")
            words[-1] += self._texts[wordpiece]
        telling = [at for at, word in enumerate(words) if word and word not in ARTICLES]
        return "".join(words[telling[0] : telling[-1] + 1]) if telling else ""

    def places(self, row: int, wordpieces: SequenceOf[int]) -> list[tuple[int, int]]:
        """The places of a span in the body of a row: (start, end) in whole words, without punctuation around; they may overlap."""
        key = self.key(wordpieces)
        if not key:
            return []
        text, starts, places, borders = self._spelled(row)
        found, at = [], text.find(key)
        while at >= 0:
            first, last = bisect_left(starts, at), bisect_left(starts, at + len(key))
            if starts[first] == at and starts[last] == at + len(key) and borders[first] and borders[last]:
                found.append((places[first], places[last - 1] + 1))
            at = text.find(key, at + 1)
        return found

    def log_prior(self, wordpieces: SequenceOf[int]) -> float:
        """log pi(y): the share of a span among the salient spans of the corpus, smoothed."""
        counts, total = self._counts
        return math.log((counts[self.key(wordpieces)] + SMOOTHING) / (total + SMOOTHING * (len(counts) + 1)))

    @cached_property
    def likeliest(self) -> str:
        """The key of the span that stands in the corpus most often: what pi(y) alone would say; empty where no span is known."""
        counts, _ = self._counts
        return max(counts, key=lambda key: (counts[key], key), default="")

    @cached_property
    def _counts(self) -> tuple[Counter[str], int]:
        live = np.flatnonzero(self._store.live)
        counts: Counter[str] = Counter()
        for row in live[:: max(1, -(-len(live) // COUNTED))].tolist():
            body = self._store.token_ids(row).tolist()
            counts.update(self.key(body[start:end]) for start, end in self._store.spans(row).tokens.tolist())
        del counts[""]
        return counts, counts.total()

    def _spell_row(self, row: int) -> tuple[str, list[int], list[int], list[bool]]:
        """The normalised characters of a row's body; of each wordpiece that has any: where they start (and where the last ends), which
        wordpiece it is, whether a word begins there (after the last one does)."""
        body = self._store.token_ids(row).tolist()
        places = [place for place, wordpiece in enumerate(body) if self._texts[wordpiece]]
        texts = [self._texts[body[place]] for place in places]
        borders = [bool(self._begins[body[place]]) or not place for place in places]
        return "".join(texts), [0, *accumulate(map(len, texts))], places, [*borders, True]
