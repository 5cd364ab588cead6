"""Salient spans that another block states too: those whose sentences some document can help to fill.

In few documents most sentences state what nothing else does. Whatever is retrieved for them is beside the point, and what the retriever
learns from it is chance. A span is taken if a block that the sentence may be given holds it together with another span of the sentence
(:class:`Partners`): a document that states it and can be found by what is left to see.
"""

from collections import Counter
from collections.abc import Sequence as SequenceOf

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.data.masking.exclusion import Exclusion
from realm.data.masking.kinds import Maskable, MaskKind, Span
from realm.data.types import TokenIds

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


NOWHERE_ELSE = "stated nowhere else"
"""Why a span is left out."""


class StatedSpans:
    """Of the spans that another kind lists, those that a block states which does not hold the sentence itself.

    Args:
        sentences: the pre-training corpus X.
    """

    def __init__(self, listed: MaskKind, sentences: BlockStore, blocks: BlockStore):
        self.listed = listed
        self.sentences = sentences
        self.blocks = blocks
        self.partners = Partners(blocks)
        self.exclusion = Exclusion(sentences, blocks)

    def maskable(self, row: int, shown: int, dropped: Counter[str]) -> Maskable:
        table, ids = self.sentences.sentences(row), self.sentences.token_ids(row).tolist()
        for sentence, spans in self.listed.maskable(row, shown, dropped):
            first = int(table.tokens[sentence, 0])
            wordpieces = [tuple(ids[first + start : first + end]) for start, end in spans]
            holding = set(self.blocks.rows_of(self.exclusion.blocks(row, int(table.hashes[sentence]))).tolist())
            stated = [span for span, own in zip(spans, wordpieces, strict=True) if self.partners.rows(own, wordpieces, holding)]
            if len(stated) < len(spans):
                dropped[NOWHERE_ELSE] += len(spans) - len(stated)
            if stated:
                yield sentence, stated

    def hide(self, ids: TokenIds, spans: list[Span], rng: np.random.Generator) -> tuple[list[Span], list[Span]]:
        return self.listed.hide(ids, spans, rng)
