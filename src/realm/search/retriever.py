"""The retriever: embed queries, search by them alone or by their words too, with exclusions, put the null document first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch

from realm.documents.store.blocks import NULL_BLOCK
from realm.search.hybrid import HybridSearch
from realm.search.index.mips import MipsIndex

NULL_INDEX = 0  # the column of the null document, where there is one

Queries = TypeVar("Queries")


@dataclass(frozen=True)
class Retrieved:
    """The candidates of each query: null first if asked for, then the best blocks, best first.

    block_ids: int64 [b,k], NULL_BLOCK for the null document and where invalid. valid: bool [b,k]; the null document is valid.
    scores: float32 [b,k], of the search, hence stale in pre-training; nan for the null document, -inf where invalid.
    """

    block_ids: np.ndarray
    valid: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(cls, block_ids: np.ndarray, valid: np.ndarray, scores: np.ndarray, *, null: bool) -> "Retrieved":
        """What a search found, behind the null document if ``null``: arrays [b,k'], ids int64, any where not valid."""
        block_ids = np.where(valid, block_ids, NULL_BLOCK)
        if not null:
            return cls(block_ids, valid, scores)
        b = len(block_ids)
        return cls(
            block_ids=np.concatenate([np.full((b, 1), NULL_BLOCK, np.int64), block_ids], axis=1),
            valid=np.concatenate([np.ones((b, 1), np.bool_), valid], axis=1),
            scores=np.concatenate([np.full((b, 1), np.nan, np.float32), scores], axis=1),
        )

    @property
    def has_null(self) -> bool:
        """Whether candidate 0 is the null document."""
        return bool((self.valid[:, NULL_INDEX] & (self.block_ids[:, NULL_INDEX] == NULL_BLOCK)).all())

    @property
    def real(self) -> np.ndarray:
        """Which candidates are documents: valid, and not the null document. bool [b,k]"""
        return self.valid & (self.block_ids != NULL_BLOCK)

    @property
    def documents(self) -> np.ndarray:
        """The columns of ``block_ids`` without that of the null document. [b,k] or [b,k-1]"""
        return self.block_ids[:, int(self.has_null) :]


class Retriever(Generic[Queries]):
    """Finds the candidates of queries.

    Args:
        embed_queries: queries -> [b,d]. In pre-training the embedder published with the snapshot; in fine-tuning and answering the question
            embedder.
        index: what is searched; d must agree.
        hybrid: searches the same blocks by words too; None: the embeddings alone propose.
    """

    def __init__(self, embed_queries: Callable[[Queries], torch.Tensor], index: MipsIndex, hybrid: HybridSearch | None = None):
        self.embed_queries = embed_queries
        self.index = index
        self.hybrid = hybrid

    @torch.no_grad()
    def retrieve(
        self,
        queries: Queries,
        k: int,
        *,
        null: bool,
        exclude: Sequence[np.ndarray] | None = None,
        texts: Sequence[str] = (),
        proposals: int = 0,
    ) -> Retrieved:
        """Exactly k candidates a query: the null document if ``null``, and the best live blocks that are not excluded, each once.

        Where the corpus has too few, the last candidates are invalid; nothing excluded is ever put back.

        Args:
            queries: what ``embed_queries`` takes, b of them.
            k: candidates, the null document included.
            null: whether candidate 0 is the null document.
            exclude: for each query the block ids (int64) it must not get: its origin and the blocks that hold it verbatim.
            texts: the queries' words, b of them, where a hybrid search wants them.
            proposals: so many blocks the hybrid search proposes, of which the best by their embeddings are the candidates, in that order;
                0: the best by the sum of both searches are, in that order.

        Raises:
            ValueError: k < 1, a query embedding that is not finite or of another dimension, or one exclusion list too many or too few.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        query_emb = self.embed_queries(queries)
        if self.hybrid is None:
            hits = self.index.search(query_emb, k - int(null), exclude)
            return Retrieved.of(hits.ids, hits.valid, hits.scores, null=null)
        read = k - int(null)
        found = self.hybrid.search(query_emb, texts, max(read, proposals), exclude)
        valid = found.block_ids != NULL_BLOCK
        dense = np.where(valid, found.dense, -np.inf).astype(np.float32)
        order = (np.argsort(-dense, axis=1, kind="stable") if proposals else np.arange(dense.shape[1])[None])[:, :read]
        return Retrieved.of(*(np.take_along_axis(values, order, 1) for values in (found.block_ids, valid, dense)), null=null)
