"""Model inputs of blocks by block id: the one place that joins rows of the store and the featuriser; and targets of a reader that points:
the places of a hidden span in a block, and its likelihood if no block holds it."""

import math
import string
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence as SequenceOf
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path

import numpy as np

from realm.documents.store.blocks import NULL_BLOCK, BlockStore
from realm.errors import DataError
from realm.models.featurize import Featurizer
from realm.models.types import Sequence
from realm.text.wordpieces import BEGINS, bare_entry, word_table

ARTICLES = ("a", "an", "the")
COUNTED = 20_000
"""Blocks, evenly spread, whose salient spans are counted for the prior."""
SMOOTHING = 0.5
"""Added to the count of every span, and of one that was never seen."""
KEPT = 2**14
"""Blocks whose spelling is kept."""

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class SpanPlaces:
    """The spans of a knowledge corpus, compared as answers are: case, punctuation, spaces and articles around a span do not count."""

    def __init__(self, store: BlockStore):
        self._store = store
        tokenizer = store.tokenizer
        self._begins = word_table(tokenizer).starts
        special = set(vars(tokenizer.special).values())
        entries = ("" if number in special else bare_entry(tokenizer, number) for number in range(tokenizer.vocab_size))
        # As ``normalize_answer`` would write them.
        self._texts = [unicodedata.normalize("NFD", entry.lstrip("".join(BEGINS))).lower().translate(_NO_PUNCTUATION) for entry in entries]
        self._spelled = lru_cache(KEPT)(self._spell_row)

    def key(self, wordpieces: SequenceOf[int]) -> str:
        """The normalised characters of a span without the articles around it; empty where it has no letter and no digit."""
        words: list[str] = []
        for wordpiece in wordpieces:
            if self._begins[wordpiece] or not words:
                words.append("")
            words[-1] += self._texts[wordpiece]
        telling = [at for at, word in enumerate(words) if word and word not in ARTICLES]
        return "".join(words[telling[0] : telling[-1] + 1]) if telling else ""

    def places(self, row: int, wordpieces: SequenceOf[int]) -> list[tuple[int, int]]:
        """The places of a span in the body of a row: (start, end) in whole words, without punctuation around; they may overlap."""
        key = self.key(wordpieces)
        if not key:
            return []
        text, starts, places, borders = self._spelled(row)
        found, at = [], text.find(key)
        while at >= 0:
            first, last = bisect_left(starts, at), bisect_left(starts, at + len(key))
            if starts[first] == at and starts[last] == at + len(key) and borders[first] and borders[last]:
                found.append((places[first], places[last - 1] + 1))
            at = text.find(key, at + 1)
        return found

    def log_prior(self, wordpieces: SequenceOf[int]) -> float:
        """log pi(y): the share of a span among the salient spans of the corpus, smoothed."""
        counts, total = self._counts
        return math.log((counts[self.key(wordpieces)] + SMOOTHING) / (total + SMOOTHING * (len(counts) + 1)))

    @cached_property
    def likeliest(self) -> str:
        """The key of the span that stands in the corpus most often: what pi(y) alone would say; empty where no span is known."""
        counts, _ = self._counts
        return max(counts, key=lambda key: (counts[key], key), default="")

    @cached_property
    def _counts(self) -> tuple[Counter[str], int]:
        live = np.flatnonzero(self._store.live)
        counts: Counter[str] = Counter()
        for row in live[:: max(1, -(-len(live) // COUNTED))].tolist():
            body = self._store.token_ids(row).tolist()
            counts.update(self.key(body[start:end]) for start, end in self._store.spans(row).tokens.tolist())
        del counts[""]
        return counts, counts.total()

    def _spell_row(self, row: int) -> tuple[str, list[int], list[int], list[bool]]:
        """The normalised characters of a row's body; of each wordpiece that has any: where they start (and where the last ends), which
        wordpiece it is, whether a word begins there (after the last one does)."""
        body = self._store.token_ids(row).tolist()
        places = [place for place, wordpiece in enumerate(body) if self._texts[wordpiece]]
        texts = [self._texts[body[place]] for place in places]
        borders = [bool(self._begins[body[place]]) or not place for place in places]
        return "".join(texts), [0, *accumulate(map(len, texts))], places, [*borders, True]


NO_ROW = -1  # a missing candidate, or a block that is not in the corpus
NULL_ROW = -2  # the null document, a candidate like any other that is in no corpus


class BlockInputs:
    """Block and joint inputs from a store; :data:`NULL_BLOCK`, in :data:`NULL_ROW`, is the empty document."""

    def __init__(self, store: BlockStore, featurizer: Featurizer):
        self.store = store
        self.featurizer = featurizer

    def rows(self, block_ids: np.ndarray) -> np.ndarray:
        """Rows of block ids, any shape; :data:`NULL_ROW` for :data:`NULL_BLOCK`."""
        real = block_ids != NULL_BLOCK
        rows = np.full(block_ids.shape, NULL_ROW, np.int64)
        rows[real] = self.store.rows_of(block_ids[real])
        return rows

    @cached_property
    def span_places(self) -> SpanPlaces:
        """Positions of spans in the blocks, for a reader that points."""
        return SpanPlaces(self.store)

    def blocks_of_documents(self, documents: SequenceOf[str]) -> np.ndarray:
        """Ids of the live blocks of documents, int64 [n], ascending. Raises DataError: one of them is not in the corpus."""
        rows = [np.empty(0, np.int64)]
        for document in documents:
            rows.append(self.store.live_rows_of_document(document))
            if not len(rows[-1]):
                cure = "Give the id of a document, not a title."
                raise DataError(f"no document '{document}' in the corpus", path=self.store.path, cure=cure)
        return np.asarray(self.store.block_ids)[np.unique(np.concatenate(rows))]

    def block(self, row: int) -> Sequence:
        """The embedder's input of one row; :data:`NULL_ROW` is the null document."""
        if row == NULL_ROW:
            return self.featurizer.block([], [])
        return self.featurizer.block(self.store.title_ids(row).tolist(), self.store.token_ids(row).tolist())

    def blocks(self, rows: SequenceOf[int]) -> list[Sequence]:
        return [self.block(int(row)) for row in rows]

    def joint(self, query: SequenceOf[int], row: int) -> Sequence:
        """The encoder's or reader's input of a query with one row; :data:`NULL_ROW` is the null document."""
        return self.featurizer.joint(query, [] if row == NULL_ROW else self.store.token_ids(row).tolist())

    def titled(self, query: SequenceOf[int], row: int) -> tuple[Sequence, int]:
        """:meth:`joint` with the block's title before its body, and the position of the body's first wordpiece."""
        if row == NULL_ROW:
            return self.featurizer.titled(query, [], [])
        return self.featurizer.titled(query, self.store.title_ids(row).tolist(), self.store.token_ids(row).tolist())

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """Wordpieces of the rows' block inputs, special tokens counted. int64 [n]."""
        return np.minimum(self.store.lengths[rows] + 3, self.featurizer.block_length)


def open_inputs(corpus: Path, query_length: int) -> BlockInputs:
    """Open a corpus with the run's featuriser, by its special tokens and block length. Raises CorpusError: no usable corpus."""
    store = BlockStore.open(corpus)
    special, length = store.tokenizer.special, store.manifest.block_length
    ids = {"cls": special.cls, "sep": special.sep, "mask": special.mask, "pad": special.pad}
    return BlockInputs(store, Featurizer(**ids, query_length=query_length, block_length=length))
