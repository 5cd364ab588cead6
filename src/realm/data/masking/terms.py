"""Collocations of a corpus in any script, learned from its wordpieces (PMI masking, Levine et al. 2021).

The tagger of ``corpus/tagging/collocations.py`` marks terms in scripts without letter case only, since names are better found by case
where there is one. Here every script is counted, by the same rule: words that stand together more often than chance, with free
neighbours. A run of words ends at punctuation.
"""

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from realm.corpus.blocks import BlockStore
from realm.corpus.tagging.collocations import CollocationCounts, TermFinder
from realm.data.masking.kinds import MAX_MASKS, ListedSpans, Span
from realm.text.wordpieces import WordTable, word_table

COUNTED = 20_000
"""Blocks, evenly spread, that the collocations are learned from: some million words."""


class Collocations:
    """The collocations of a corpus and where they stand in it.

    Args:
        store: the corpus; live rows are counted.
    """

    def __init__(self, store: BlockStore):
        self.store = store
        self.words: WordTable = word_table(store.tokenizer)
        counts = CollocationCounts()
        live = np.flatnonzero(store.live)
        for row in live[:: max(1, -(-len(live) // COUNTED))].tolist():
            for _, sentence in groupby(self._runs(row), key=itemgetter(0)):
                counts.add_words([_spell(run) for _, run in sentence])
        self._finder = TermFinder(counts.terms(), lambda _: "words")

    @property
    def terms(self) -> frozenset[str]:
        """Words spelled by their ids, "12_9 7" for one of two wordpieces and one of one."""
        return self._finder.terms

    def listed(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Spans [m, 2] in the row's wordpieces, apart and in order, and the sentence of each [m]."""
        spans: list[Span] = []
        sentences: list[int] = []
        for sentence, run in self._runs(row):
            borders = [start for start, _ in run] + [run[-1][0] + len(run[-1][1])]
            for first, stop in self._finder.find(_spell(run), "words"):
                spans.append((borders[first], borders[stop]))
                sentences.append(sentence)
        return np.array(spans, np.int64).reshape(-1, 2), np.array(sentences, np.int64)

    def _runs(self, row: int) -> Iterator[tuple[int, list[tuple[int, list[int]]]]]:
        """(sentence, words in a row as (first wordpiece, ids)) of every run without punctuation."""
        body = self.store.token_ids(row)
        starts, letters = self.words.starts[body], self.words.letters[body]
        ids = body.tolist()
        for sentence, (first, last) in enumerate(self.store.sentences(row).tokens.tolist()):
            borders = [first, *(np.flatnonzero(starts[first + 1 : last]) + first + 1).tolist(), last]
            run: list[tuple[int, list[int]]] = []
            for start, end in pairwise(borders):
                if letters[start:end].any():
                    run.append((start, ids[start:end]))
                elif run:
                    yield sentence, run
                    run = []
            if run:
                yield sentence, run


def _spell(run: list[tuple[int, list[int]]]) -> list[str]:
    return ["_".join(map(str, ids)) for _, ids in run]


def collocation_spans(store: BlockStore, *, count: int = 1, max_masks: int = MAX_MASKS) -> ListedSpans:
    """The collocations of the corpus as spans to hide."""
    return ListedSpans(store, Collocations(store).listed, count=count, max_masks=max_masks)
