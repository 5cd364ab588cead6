"""Trivial retrieval: the blocks that a masked sentence must not be given, because they hold it (REALM, section 3.4).

Known beforehand are the blocks that hold the sentence verbatim. Which others share a long run of wordpieces with it is looked up in
what was retrieved: an index over all runs of a large corpus would take more room than its vectors.
"""

from collections.abc import Sequence as SequenceOf

import numpy as np

from realm.corpus.store.blocks import NULL_BLOCK, BlockStore
from realm.data.types import MaskedQuery


class Exclusion:
    """Blocks of the knowledge corpus Z that hold a sentence of the pre-training corpus X verbatim, its own block included.

    Args:
        blocks: Z; the same object where X = Z.
        documents: every other block of their documents is excluded, too, and in Z those of the document that a sentence of X is from.
    """

    def __init__(self, sentences: BlockStore, blocks: BlockStore, *, documents: bool = False):
        self._own = sentences is blocks
        self._sentences, self._blocks = sentences, blocks
        self._documents = documents

    def blocks(self, row: int, sentence_hash: int) -> np.ndarray:
        """int64 [n], ascending: ids of the blocks.

        Args:
            sentence_hash: of the sentence, as ``SentenceTable.hashes`` has it.
        """
        rows = self._blocks.rows_with_sentence(sentence_hash)
        if self._own:
            rows = np.union1d(np.asarray(rows, np.int64), np.asarray([row], np.int64))
        if self._documents:
            names = sorted({self._sentences.doc_id(row), *(self._blocks.doc_id(int(held)) for held in rows)})
            rows = np.unique(np.concatenate([rows, *(self._blocks.rows_of_document(name) for name in names)]).astype(np.int64))
        return np.asarray(self._blocks.block_ids)[rows]


class NoExclusion(Exclusion):
    """Nothing is excluded: what trivial retrieval does to training is one of the ablations.

    Only for experiments: a retriever that may find the sentence itself learns to find that and nothing else.
    """

    def __init__(self) -> None:
        pass

    def blocks(self, row: int, sentence_hash: int) -> np.ndarray:
        return np.empty(0, np.int64)


def runs(ids: SequenceOf[int], length: int) -> set[tuple[int, ...]]:
    """Every run of ``length`` wordpieces; none if there are fewer."""
    return set(zip(*(ids[start:] for start in range(length)), strict=False))


def overlapping(query: MaskedQuery, block_ids: np.ndarray, store: BlockStore, length: int) -> np.ndarray:
    """int64 [m]: those of ``block_ids`` that share a run of ``length`` wordpieces with the sentence as it was before it was masked.

    Args:
        block_ids: of the knowledge corpus; :data:`NULL_BLOCK` shares nothing.
        length: at least 1.
    """
    sentence = runs(query.whole, length)
    real = block_ids[block_ids != NULL_BLOCK]
    bodies = (store.token_ids(int(row)).tolist() for row in store.rows_of(real))
    return real[np.array([not sentence.isdisjoint(runs(body, length)) for body in bodies], bool)] if len(real) else real
