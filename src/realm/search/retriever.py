"""The retriever: embed queries, search by them alone or by their words too, with exclusions, null document first.

Dense and sparse search together: each proposes its best; scores are standardised over the best of the query, and added."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from realm.documents.store.blocks import NULL_BLOCK
from realm.search.index.mips import MipsIndex
from realm.search.publishing.snapshot import Snapshot
from realm.search.sparse import SparseIndex

PROPOSAL_DEPTH = 200  # blocks proposed by either search, and standardised over


@dataclass(frozen=True)
class Proposals:
    """Blocks found for each of b queries, best first by the sum; [b, k] each."""

    block_ids: np.ndarray  # int64, -1 if missing
    dense: np.ndarray  # float32, inner products
    sparse: np.ndarray  # float32, BM25; 0 if sparse search did not propose the block
    total: np.ndarray  # float32, the scaled sum; of sparse search alone, BM25


def standardised(scores: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Scores [c] minus the mean of the query's best ones, in units of their standard deviation; float64 [c]."""
    best = best.astype(np.float64)
    return (scores - best.mean()) / (best.std() + 1e-9) if len(best) else np.zeros(len(scores))


class HybridSearch:
    """Dense and sparse search, or sparse search alone (``dense`` False), over the blocks of one generation.

    ``weight`` is of the standardised BM25 score against the standardised dense score; ``index`` hides removed blocks."""

    def __init__(self, snapshot: Snapshot, index: MipsIndex, sparse: SparseIndex, *, weight: float = 1.0, dense: bool = True):
        self.snapshot, self.index, self.sparse = snapshot, index, sparse
        self.weight, self.dense = weight, dense

    def __len__(self) -> int:
        return len(self.index)

    def search(self, query_emb: np.ndarray, texts: Sequence[str], k: int, exclude: Sequence[np.ndarray] | None = None) -> Proposals:
        """The k best blocks of b queries among the PROPOSAL_DEPTH best of each search (of dense, k if that is more).

        ``query_emb`` [b,d] is as for ``MipsIndex.search``; ``exclude`` has block ids (int64) that each query must not get."""
        found = Proposals(np.full((len(texts), k), -1, np.int64), *(np.zeros((len(texts), k), np.float32) for _ in range(3)))
        ids, scores = self.sparse.search(texts, min(PROPOSAL_DEPTH if self.dense else max(k, PROPOSAL_DEPTH), len(self.index)), exclude)
        hits = self.index.search(query_emb, min(max(k, PROPOSAL_DEPTH), len(self.index)), exclude)
        for i, valid in enumerate(hits.valid):
            one = self._one(query_emb[i], hits.ids[i, valid], hits.scores[i, valid], ids[i], scores[i])
            order = np.argsort(-one.total, kind="stable")[:k]
            for name, values in vars(one).items():
                getattr(found, name)[i, : len(order)] = values[order]
        return found

    def _one(self, query: np.ndarray, near: np.ndarray, products: np.ndarray, ids: np.ndarray, scores: np.ndarray) -> Proposals:
        """All proposals for one query [d], unordered: blocks ``near`` and BM25's ``ids``."""
        worded = ids[ids >= 0]
        others = worded[~np.isin(worded, near)]
        both = np.concatenate([near, others]) if self.dense else worded
        by_id, of_near = np.argsort(both), np.isin(near, both)
        dense, sparse = np.zeros(len(both), np.float32), np.zeros(len(both), np.float32)

        def place(wanted: np.ndarray) -> np.ndarray:
            return by_id[np.searchsorted(both, wanted, sorter=by_id)]

        dense[place(near[of_near])] = products[of_near]
        dense[place(others)] = np.asarray(self.snapshot.vectors[np.searchsorted(self.snapshot.block_ids, others)], np.float32) @ query
        sparse[place(worded)] = scores[: len(worded)]
        scaled = standardised(dense, products[:PROPOSAL_DEPTH]) + self.weight * standardised(sparse, scores[:PROPOSAL_DEPTH])
        return Proposals(both, dense, sparse, scaled.astype(np.float32) if self.dense else sparse)


NULL_INDEX = 0  # the column of the null document, where there is one

QueryBatch = TypeVar("QueryBatch")


@dataclass(frozen=True)
class Retrieved:
    """Candidates of each query, best first, after the null document if asked for."""

    block_ids: np.ndarray  # int64 [b,k], NULL_BLOCK for the null document and invalid ones
    valid: np.ndarray  # bool [b,k], True at the null document, too
    scores: np.ndarray  # float32 [b,k], of the search, stale in pre-training; nan at the null document, -inf if invalid

    @classmethod
    def of(cls, block_ids: np.ndarray, valid: np.ndarray, scores: np.ndarray, *, null: bool) -> "Retrieved":
        """Results [b,k'] of a search, after the null document if ``null``; ids int64, any value if not valid."""
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
        """True if candidate 0 is the null document."""
        return bool((self.valid[:, NULL_INDEX] & (self.block_ids[:, NULL_INDEX] == NULL_BLOCK)).all())

    @property
    def real(self) -> np.ndarray:
        """Mask of documents: valid, and not the null document. bool [b,k]"""
        return self.valid & (self.block_ids != NULL_BLOCK)

    @property
    def documents(self) -> np.ndarray:
        """``block_ids`` without the null document's column. [b,k] or [b,k-1]"""
        return self.block_ids[:, int(self.has_null) :]


class Retriever(Generic[QueryBatch]):
    """Candidates of queries.

    >>> from realm.search.index.choice import make_index
    >>> index = make_index(np.eye(3, dtype=np.float32), ids=np.array([10, 11, 12]))
    >>> Retriever(lambda queries: queries, index).retrieve(np.array([[0.0, 2.0, 1.0]]), k=3, null=True).block_ids
    array([[-1, 11, 12]])

    Args:
        embed_queries: queries -> float32 [b,d]. In pre-training the embedder published with the snapshot; later the question embedder.
        index: of the same d.
        hybrid: searches the same blocks by words too; None: the embeddings alone propose."""

    def __init__(self, embed_queries: Callable[[QueryBatch], np.ndarray], index: MipsIndex, hybrid: HybridSearch | None = None):
        self.embed_queries = embed_queries
        self.index = index
        self.hybrid = hybrid

    def retrieve(
        self,
        queries: QueryBatch,
        k: int,
        *,
        null: bool,
        exclude: Sequence[np.ndarray] | None = None,
        texts: Sequence[str] = (),
        proposals: int = 0,
    ) -> Retrieved:
        """Exactly k candidates per query: the null document if ``null``, and the best live blocks not excluded, each once.

        In a small corpus the last candidates are invalid; nothing excluded is ever put back.

        Args:
            queries: b arguments of ``embed_queries``.
            k: candidates, the null document included.
            exclude: for each query, forbidden block ids (int64): its origin and the blocks with the same sentence.
            texts: the queries' words, for a hybrid search.
            proposals: number of hybrid proposals that are then reranked by their embeddings; 0: order by the sum of both searches.

        Raises ValueError: k < 1, a query embedding that is not finite or of another dimension, or one exclusion list too many or too few.
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
