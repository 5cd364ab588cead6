"""Which blocks a block leads to: those of the documents that it links to, else of those whose titles occur in its text.

Nothing of this is stored: links name their targets by key, which are looked up among the documents that are live now (keyed.py).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from realm.corpus.keyed import KeyedDocuments
from realm.corpus.links import title_key
from realm.corpus.mentions import mentions
from realm.corpus.store.blocks import BlockStore
from realm.corpus.store.segments import LINKS

MOST_BLOCKS = 500
"""Neighbours of one block: the first block of every linked document, then the second ones, and so on."""


class Neighbours:
    """The edges of one version of a corpus.

    Args:
        store: its blocks.
    """

    def __init__(self, store: BlockStore):
        self._store = store
        self._documents = KeyedDocuments(store)
        self.of_row = lru_cache(maxsize=2**12)(self._of_row)

    def _of_row(self, row: int) -> np.ndarray:
        """int64 [n]: live rows that the block at ``row`` leads to, in the order of its links, none of its own document.

        A block of a document with hyperlinks leads where its own lead; any other where the titles in its text do.
        """
        own, _ = self._documents.bounds(row)
        documents: dict[int, np.ndarray] = {}
        for first in self._linked(row):
            if first not in documents and first != own:
                start, end = self._documents.bounds(first)
                documents[first] = start + np.flatnonzero(self._store.live[start:end])[:MOST_BLOCKS]
        return _by_turns(list(documents.values()))

    def _linked(self, row: int) -> Iterator[int]:
        """First rows of the documents that a block names."""
        start, segment = self._documents.segment(row)
        first, end = self._documents.bounds(row)
        if segment.has_elements(LINKS, first - start, end - start):
            for key in self._store.links(row).tolist():
                yield from self._documents.of_key(key)
        else:
            yield from self._titled(row)

    def _titled(self, row: int) -> Iterator[int]:
        """First rows of the documents whose titles occur in a block's text; of names that overlap the first, and of these the longest."""
        text, behind = self._store.block(row).text, 0
        places = mentions(text, [(start, end) for start, end in self._store.sentences(row).chars.tolist()])
        names = [mention for place in places for mention in place]
        known = self._documents.are_titles(np.array([title_key(mention.name) for mention in names], np.uint64))
        for mention, is_title in zip(names, known.tolist(), strict=True):
            if not is_title or mention.start < behind:
                continue
            exact = [first for first in self._documents.titled(title_key(mention.name)) if self._store.block(first).title == mention.name]
            if exact:
                behind = mention.end
                yield from exact


def _by_turns(documents: Sequence[np.ndarray]) -> np.ndarray:
    """The first row of each, then the second of each, and so on; ``MOST_BLOCKS`` of them."""
    if not documents:
        return np.empty(0, np.int64)
    turn = np.concatenate([np.arange(len(rows)) for rows in documents])
    return np.concatenate(list(documents))[np.argsort(turn, kind="stable")][:MOST_BLOCKS]
