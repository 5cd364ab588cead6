"""Salient spans that another block states too: those whose sentences some document can help to fill.

In few documents most sentences state what nothing else does. Whatever is retrieved for them is beside the point, and what the retriever
learns from it is chance. A span is taken if a block that the sentence may be given holds it together with another span of the sentence
(``partners.py``): a document that states it and can be found by what is left to see.
"""

from collections import Counter

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.data.masking.exclusion import Exclusion
from realm.data.masking.kinds import Maskable, MaskKind, Span
from realm.data.partners import Partners
from realm.data.types import TokenIds

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
