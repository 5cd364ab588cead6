"""Blocks that state what a masked sentence does in other words: they hold its hidden span together with another of its spans."""

from collections.abc import Sequence as SequenceOf

import numpy as np

from realm.documents.store.blocks import BlockStore

TOO_COMMON = 200
"""A span in more blocks than this says nothing about what a block states."""


class Partners:
    """An inverted list from the wordpieces of every salient span to the rows that hold it, which finds partners of a sentence.

    A sentence and its own block teach an encoder to copy verbatim. Its partners state the fact in other words, and teach it to read.

    Args:
        store: the corpus; only live rows are listed.
    """

    def __init__(self, store: BlockStore):
        found: dict[tuple[int, ...], set[int]] = {}
        for row in np.flatnonzero(store.live).tolist():
            body = store.token_ids(row).tolist()
            for start, end in store.spans(row).tokens.tolist():
                found.setdefault(tuple(body[start:end]), set()).add(row)
        self._rows = found

    def rows(self, hidden: SequenceOf[int], others: SequenceOf[SequenceOf[int]], excluded: set[int]) -> list[int]:
        """Rows outside ``excluded`` that hold the hidden span and at least one of the other spans of its sentence, ascending."""
        having = self._rows.get(tuple(hidden), set())
        if not 0 < len(having) <= TOO_COMMON:
            return []
        beside: set[int] = set()
        for span in others:
            rows = self._rows.get(tuple(span), set())
            if len(rows) <= TOO_COMMON and tuple(span) != tuple(hidden):
                beside |= rows
        return sorted((having & beside) - excluded)
