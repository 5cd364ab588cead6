"""Masking: which sentences of the pre-training corpus are queries, and which of their wordpieces are hidden (REALM, section 3.4).

``sentences.py`` makes the queries, ``kinds.py`` has the ways to choose what is hidden, collocations among them,
``exclusion.py`` says which blocks a sentence must not be given, ``partners.py`` finds blocks that say the same in other words,
``recurring.py`` finds spans that another block can help to fill among all runs of words: ``corpus_words.py`` has the words of a corpus
in arrays, ``grams.py`` counts their runs, ``evidence.py`` finds the blocks that help.
"""

from realm.data.masking.exclusion import Exclusion
from realm.data.masking.kinds import MAX_MASKS, ListedSpans, MaskKind, RandomSpans, UniformTokens, collocation_spans, salient_spans
from realm.data.masking.recurring import RecurringSpans
from realm.data.masking.sentences import MaskedSentences, hide_more

__all__ = [
    "MAX_MASKS",
    "Exclusion",
    "ListedSpans",
    "MaskKind",
    "MaskedSentences",
    "RandomSpans",
    "RecurringSpans",
    "UniformTokens",
    "collocation_spans",
    "hide_more",
    "salient_spans",
]
