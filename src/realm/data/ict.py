"""Inverse cloze task examples: a sentence as pseudo-query for the block it came from (ORQA, section 5)."""

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.data.types import IctExample


class InverseCloze:
    """Blocks of at least two sentences; a one-sentence block has nothing left when its sentence is removed.

    Args:
        keep_rate: how often the sentence stays in the block, so that exact overlap is learnt too.
    """

    def __init__(self, store: BlockStore, *, keep_rate: float):
        self.store = store
        self.keep_rate = keep_rate
        self._rows = [int(row) for row in np.flatnonzero(store.live) if len(store.sentences(int(row)).tokens) > 1]

    def __len__(self) -> int:
        return len(self._rows)

    def example(self, item: int, rng: np.random.Generator) -> IctExample:
        """One sentence of block ``item`` drawn by ``rng``."""
        row = self._rows[item]
        sentences = self.store.sentences(row).tokens
        start, end = (int(v) for v in sentences[int(rng.integers(len(sentences)))])
        body = self.store.token_ids(row).tolist()
        query = body[start:end]
        if rng.random() >= self.keep_rate:
            del body[start:end]
        return IctExample(query, self.store.title_ids(row).tolist(), body, int(self.store.block_ids[row]))
