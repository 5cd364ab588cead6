"""Dense and sparse search together: each proposes its best, each score is scaled by its spread over the best of the query, and added."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from realm.search.index.mips import MipsIndex
from realm.search.publishing.snapshot import Snapshot
from realm.search.sparse import SparseIndex

DEPTH = 200
"""Blocks that either search proposes, and over whose scores the spread is taken."""


@dataclass(frozen=True)
class Proposals:
    """What was found for each of b queries, best first by the sum.

    Attributes:
        block_ids: int64 [b,k], -1 where there is none.
        dense: float32 [b,k], inner products.
        sparse: float32 [b,k], BM25; 0 where sparse search did not propose the block.
        total: float32 [b,k], the scaled sum; of sparse search alone, BM25.
        dense_rank, sparse_rank: int64 [b,k], from 1; 0 where that search did not propose the block.
    """

    block_ids: np.ndarray
    dense: np.ndarray
    sparse: np.ndarray
    total: np.ndarray
    dense_rank: np.ndarray
    sparse_rank: np.ndarray


def standardised(scores: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Scores [c] minus the mean of the best ones of their query, in units of their standard deviation; float64 [c]."""
    best = best.astype(np.float64)
    return (scores - best.mean()) / (best.std() + 1e-9) if len(best) else np.zeros(len(scores))


class HybridSearch:
    """Dense and sparse search, or sparse search alone, over the blocks of one generation.

    Args:
        snapshot: its embeddings.
        index: the dense search over them, which hides what was removed.
        sparse: over the same blocks.
        weight: of the standardised BM25 score against the standardised dense score.
        dense: False: sparse search alone proposes.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        index: MipsIndex,
        sparse: SparseIndex,
        *,
        weight: float = 1.0,
        dense: bool = True,
    ):
        self.snapshot, self.index, self.sparse = snapshot, index, sparse
        self.weight, self.dense = weight, dense

    def __len__(self) -> int:
        return len(self.index)

    def search(self, query_emb: torch.Tensor, texts: Sequence[str], k: int, exclude: Sequence[np.ndarray] | None = None) -> Proposals:
        """The k best blocks of b queries: of the best DEPTH (or k, where that is more) of dense and the best DEPTH of sparse search.

        Args:
            query_emb: [b,d], as for ``MipsIndex.search``.
            texts: the queries as written.
            k: blocks.
            exclude: for each query the block ids (int64) it must not get.
        """
        kinds = ("f4",) * 3 + (np.int64,) * 2
        found = Proposals(np.full((len(texts), k), -1, np.int64), *(np.zeros((len(texts), k), kind) for kind in kinds))
        for i, (one, _) in enumerate(self._proposed(query_emb, texts, k, exclude)):
            order = np.argsort(-one.total, kind="stable")[:k]
            for name, values in vars(one).items():
                getattr(found, name)[i, : len(order)] = values[order]
        return found

    def search_by_weight(
        self, query_emb: torch.Tensor, texts: Sequence[str], weights: Sequence[float], k: int, exclude: Sequence[np.ndarray] | None = None
    ) -> np.ndarray:
        """Block ids int64 [w,b,k], -1 where there is none, that are found at each of w weights; arguments as for ``search``."""
        found = np.full((len(weights), len(texts), k), -1, np.int64)
        for i, (one, parts) in enumerate(self._proposed(query_emb, texts, k, exclude)):
            for ids, weight in zip(found[:, i], weights, strict=True):
                order = np.argsort(-_total(parts, weight), kind="stable")[:k]
                ids[: len(order)] = one.block_ids[order]
        return found

    def _proposed(
        self, query_emb: torch.Tensor, texts: Sequence[str], k: int, exclude: Sequence[np.ndarray] | None
    ) -> Iterator[tuple[Proposals, np.ndarray]]:
        """For each query what ``_one`` makes of both searches."""
        ids, scores = self.sparse.search(texts, min(DEPTH if self.dense else max(k, DEPTH), len(self.index)), exclude)
        vectors = query_emb.detach().float().cpu()
        hits = self.index.search(vectors, min(max(k, DEPTH), len(self.index)), exclude)
        for i in range(len(texts)):
            valid = hits.valid[i]
            yield self._one(vectors[i].numpy(), hits.ids[i, valid], hits.scores[i, valid], ids[i], scores[i])

    def _one(
        self, query: np.ndarray, near: np.ndarray, products: np.ndarray, ids: np.ndarray, scores: np.ndarray
    ) -> tuple[Proposals, np.ndarray]:
        """All proposals for one query [d]: blocks ``near`` by inner product, and ``ids`` (-1: none) by BM25; flat, unordered.

        With what is added: the scaled scores, dense and sparse, float64 [2, c].
        """
        worded = ids[ids >= 0]
        others = worded[~np.isin(worded, near)]
        both = np.concatenate([near, others]) if self.dense else worded
        by_id, of_near = np.argsort(both), np.isin(near, both)
        dense, sparse = np.zeros(len(both), np.float32), np.zeros(len(both), np.float32)
        ranks = np.zeros((2, len(both)), np.int64)

        def place(wanted: np.ndarray) -> np.ndarray:
            return by_id[np.searchsorted(both, wanted, sorter=by_id)]

        here = place(near[of_near])
        dense[here], ranks[0, here] = products[of_near], 1 + np.flatnonzero(of_near)
        here = place(others)
        dense[here] = np.asarray(self.snapshot.vectors[np.searchsorted(self.snapshot.block_ids, others)], np.float32) @ query
        here = place(worded)
        sparse[here], ranks[1, here] = scores[: len(worded)], np.arange(1, len(worded) + 1)
        parts = np.stack([standardised(dense, products[:DEPTH]), standardised(sparse, scores[:DEPTH])])
        total = _total(parts, self.weight) if self.dense else sparse
        return Proposals(both, dense, sparse, total, ranks[0], ranks[1]), parts


def _total(parts: np.ndarray, weight: float) -> np.ndarray:
    """The sum that blocks are ordered by, float32 [c], of parts [2, c]."""
    return (parts[0] + weight * parts[1]).astype(np.float32)
