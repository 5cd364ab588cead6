"""Collocations of a corpus in any script, learned from its wordpieces (PMI masking, Levine et al. 2021).

The tagger of ``corpus/tagging/collocations.py`` marks terms in scripts without letter case only, since names are better found by case
where there is one. Here every script is counted, by the same rule: words that stand together more often than chance, with free
neighbours. A run of words ends at punctuation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.corpus.tagging.collocations import CollocationCounts, TermFinder
from realm.data.masking.kinds import MAX_MASKS, ListedSpans, Span
from realm.text.wordpieces import WordTable, word_table

COUNTED = 10_000
"""Blocks, evenly spread, that the collocations are learned from: a million words or two."""


class Collocations:
    """The collocations of a corpus and where they stand in it.

    Args:
        store: the corpus; live rows are counted.
    """

    def __init__(self, store: BlockStore):
        self.store = store
        self.words: WordTable = word_table(store.tokenizer)
        self._names = [str(number) for number in range(len(self.words.starts))]
        counts = CollocationCounts()
        live = np.flatnonzero(store.live)
        for row in live[:: max(1, -(-len(live) // COUNTED))].tolist():
            for _, sentence in groupby(self._runs(row), key=attrgetter("sentence")):
                counts.add_words([run.words for run in sentence])
        self._finder = TermFinder(counts.terms(), lambda _: "words")

    @property
    def terms(self) -> frozenset[str]:
        """Words spelled by their ids, "12_9 7" for one of two wordpieces and one of one."""
        return self._finder.terms

    def listed(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Spans [m, 2] in the row's wordpieces, apart and in order, and the sentence of each [m]."""
        spans: list[Span] = []
        sentences: list[int] = []
        for run in self._runs(row):
            for first, stop in self._finder.find(run.words, "words"):
                spans.append((run.borders[first], run.borders[stop]))
                sentences.append(run.sentence)
        return np.array(spans, np.int64).reshape(-1, 2), np.array(sentences, np.int64)

    def _runs(self, row: int) -> Iterator["_Run"]:
        """The stretches of words between punctuation, sentence by sentence."""
        body = self.store.token_ids(row)
        if not len(body):
            return
        table = self.store.sentences(row).tokens
        begins = self.words.starts[body]
        begins[table[:, 0]] = True  # a sentence may begin in the middle of a word that was cut
        firsts = np.flatnonzero(begins)
        letters = np.logical_or.reduceat(self.words.letters[body], firsts).tolist()
        sentences = (np.searchsorted(table[:, 0], firsts, side="right") - 1).tolist()
        borders, ids = [*firsts.tolist(), len(body)], body.tolist()
        run: _Run | None = None
        for at, (sentence, lettered) in enumerate(zip(sentences, letters, strict=True)):
            if run and (not lettered or sentence != run.sentence):
                yield run
                run = None
            if lettered:
                run = run or _Run(sentence, [], [borders[at]])
                run.words.append(self._spell(ids[borders[at] : borders[at + 1]]))
                run.borders.append(borders[at + 1])
        if run:
            yield run

    def _spell(self, ids: list[int]) -> str:
        return self._names[ids[0]] if len(ids) == 1 else "_".join(map(str, ids))


@dataclass(frozen=True)
class _Run:
    """Words in a row without punctuation: spelled by their ids, and where each begins and the last ends in the row."""

    sentence: int
    words: list[str]
    borders: list[int]


def collocation_spans(store: BlockStore, *, count: int = 1, max_masks: int = MAX_MASKS) -> ListedSpans:
    """The collocations of the corpus as spans to hide."""
    return ListedSpans(store, Collocations(store).listed, count=count, max_masks=max_masks)
