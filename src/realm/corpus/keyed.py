"""Documents by their keys (links.py): of their ids and of their titles. Nothing of this is stored.

Memory: 16 bytes a document, made when the first title is asked for.
"""

from collections.abc import Iterator

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.corpus.store.views import Segment

SAME_NAME = 50
"""Documents of one title that a link to it leads to, the first ones; paragraphs of one article may share theirs."""


class KeyedDocuments:
    """The live documents of one version of a corpus.

    Args:
        store: its blocks.
    """

    def __init__(self, store: BlockStore):
        self._store = store
        self._starts = np.cumsum([0, *(segment.rows for segment in store.segments)])

    def of_key(self, key: int) -> Iterator[int]:
        """First rows of the documents with a key: of their id, or of their title."""
        for start, segment in zip(self._starts.tolist(), self._store.segments, strict=False):
            yield from (start + row for row in segment.lookup.first_rows_of_key(key) if self._store.live[start + row])
        yield from self.titled(key)

    def titled(self, key: int) -> list[int]:
        """First rows of the documents with a title's key, ``SAME_NAME`` of them at most."""
        found: list[int] = []
        for start, segment in zip(self._starts.tolist(), self._store.segments, strict=False):
            keys, rows = segment.titles
            first, last = np.searchsorted(keys, np.uint64(key), "left"), np.searchsorted(keys, np.uint64(key), "right")
            found += (start + rows[first:last]).tolist()
        return [row for row in found if self._store.live[row]][:SAME_NAME]

    def are_titles(self, keys: np.ndarray) -> np.ndarray:
        """bool [n]: which keys are those of titles, of removed documents too."""
        known = np.zeros(len(keys), np.bool_)
        for segment in self._store.segments:
            titles, _ = segment.titles
            known |= titles[np.minimum(np.searchsorted(titles, keys), len(titles) - 1)] == keys if len(titles) else False
        return known

    def bounds(self, row: int) -> tuple[int, int]:
        """First row and row behind the last of the document of the block at ``row``."""
        start, segment = self.segment(row)
        starts = segment.lookup.starts
        at = int(np.searchsorted(starts, row - start, "right"))
        return start + int(starts[at - 1]), start + (int(starts[at]) if at < len(starts) else segment.rows)

    def segment(self, row: int) -> tuple[int, Segment]:
        """First row of the segment that holds a row, and the segment."""
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        return int(self._starts[number]), self._store.segments[number]
