"""Salient span masking: sentences of the pre-training corpus with one span hidden (REALM, section 3.4).

A span that the query cannot hold whole is a counted drop, never a cut target (realm_facts 10.9 in our own words: a longer span must
not be learnt in part).
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from realm.corpus.blocks import BlockStore
from realm.data.featurize import Featurizer
from realm.data.types import MaskedQuery

MAX_MASKS = 10


class MaskedSentences:
    """Every sentence of a corpus that has at least one maskable span.

    Args:
        store: the pre-training corpus.
        featurizer: says how much of a sentence a query holds.
        max_masks: longest span in wordpieces.

    Attributes:
        dropped: spans left out, counted by reason.
    """

    def __init__(self, store: BlockStore, featurizer: Featurizer, *, max_masks: int = MAX_MASKS):
        self.store = store
        self.featurizer = featurizer
        self.dropped: Counter[str] = Counter()
        self._sentences: list[tuple[int, int, list[tuple[int, int]]]] = []
        for row in np.flatnonzero(store.live):
            self._collect(int(row), max_masks)

    def __len__(self) -> int:
        return len(self._sentences)

    @property
    def spans(self) -> int:
        """Maskable spans over all sentences."""
        return sum(len(spans) for _, _, spans in self._sentences)

    def _collect(self, row: int, max_masks: int) -> None:
        table, sentences = self.store.spans(row), self.store.sentences(row)
        usable: dict[int, list[tuple[int, int]]] = {}
        for (start, end), sentence in zip(table.tokens.tolist(), table.sentence.tolist(), strict=True):
            first = int(sentences.tokens[sentence, 0])
            if end - start > max_masks:
                self.dropped["longer than max_masks"] += 1
            elif end - first > self.featurizer.query_length - 2:
                self.dropped["beyond the query length"] += 1
            elif end - start == int(sentences.tokens[sentence, 1]) - first:
                self.dropped["the whole sentence"] += 1
            else:
                usable.setdefault(sentence, []).append((start - first, end - first))
        self._sentences.extend((row, sentence, spans) for sentence, spans in sorted(usable.items()))

    def query(self, item: int, rng: np.random.Generator) -> MaskedQuery:
        """The sentence ``item`` with one of its spans masked, drawn by ``rng``."""
        row, sentence, spans = self._sentences[item]
        chosen = spans[int(rng.integers(len(spans)))]
        table = self.store.sentences(row)
        first, last = (int(v) for v in table.tokens[sentence])
        ids = self.store.token_ids(row)[first:last].tolist()[: self.featurizer.query_length - 2]
        start, end = chosen
        others = tuple(tuple(ids[a:b]) for a, b in spans if (a, b) != chosen)
        targets = ids[start:end]
        ids[start:end] = [self.featurizer.mask] * (end - start)
        twins = self.store.rows_with_sentence(int(table.hashes[sentence]))
        rows = np.union1d(np.asarray(twins, np.int64), np.asarray([row], np.int64))
        block_ids = np.asarray(self.store.block_ids)
        return MaskedQuery(ids, list(range(start, end)), targets, int(block_ids[row]), sentence, block_ids[rows], others)


def hide_more(query: MaskedQuery, rate: float, mask: int, rng: np.random.Generator) -> MaskedQuery:
    """The query with each of its other wordpieces hidden too at ``rate``: more to fill from one sentence when the block is given."""
    whole = list(query.ids)
    for position, target in zip(query.positions, query.targets, strict=True):
        whole[position] = target
    draw = rng.random(len(whole)) < rate
    positions = [p for p in range(len(whole)) if draw[p] or p in query.positions]
    ids = [mask if p in set(positions) else wordpiece for p, wordpiece in enumerate(whole)]
    return replace(query, ids=ids, positions=positions, targets=[whole[p] for p in positions])
