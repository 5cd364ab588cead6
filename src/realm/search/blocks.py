"""Model inputs of blocks by block id: the one place that joins rows of the store and the featuriser."""

from collections.abc import Sequence as SequenceOf
from functools import cached_property
from pathlib import Path

import numpy as np

from realm.documents.span_places import SpanPlaces
from realm.documents.store.blocks import NULL_BLOCK, BlockStore
from realm.errors import DataError
from realm.models.featurize import Featurizer
from realm.models.types import Sequence

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
