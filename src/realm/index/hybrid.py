"""Dense and sparse search together: each proposes its best, each score is scaled by its spread over the best of the query, and added.

What the entities of a query say of a block may be added too; they propose nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from realm.index.mips import MipsIndex
from realm.index.snapshot import Snapshot
from realm.index.sparse import SparseIndex

DEPTH = 200
"""Blocks that either search proposes, and over whose scores the spread is taken."""


class Overlap(Protocol):
    """How much blocks speak of the entities that a query names."""

    def __call__(self, text: str, block_ids: np.ndarray, /) -> np.ndarray:
        """float64 [c], from 0 to 1, of each block (int64 [c])."""


class Weights(NamedTuple):
    """Of the standardised BM25 score, and of the overlap in entities, against the standardised dense score."""

    sparse: float = 1.0
    entities: float = 0.0


PLAIN = Weights()
"""Both searches alike, and no entities."""


@dataclass(frozen=True)
class Proposals:
    """What was found for each of b queries, best first by the sum.

    Attributes:
        block_ids: int64 [b,k], -1 where there is none.
        dense: float32 [b,k], inner products.
        sparse: float32 [b,k], BM25; 0 where sparse search did not propose the block.
        total: float32 [b,k], the scaled sum; of sparse search alone and without entities, BM25.
        dense_rank, sparse_rank: int64 [b,k], from 1; 0 where that search did not propose the block.
        overlap: float32 [b,k], in entities; 0 without entities.
    """

    block_ids: np.ndarray
    dense: np.ndarray
    sparse: np.ndarray
    total: np.ndarray
    dense_rank: np.ndarray
    sparse_rank: np.ndarray
    overlap: np.ndarray


def standardised(scores: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Scores [c] minus the mean of the best ones of their query, in units of their standard deviation; float64 [c]."""
    best = best.astype(np.float64)
    return (scores - best.mean()) / (best.std() + 1e-9) if len(best) else np.zeros(len(scores))


class HybridSearch:
    """Dense search, sparse search or both over the blocks of one generation.

    Args:
        snapshot: its embeddings.
        index: the dense search over them, which hides what was removed.
        sparse: over the same blocks; None: dense search alone proposes.
        weights: of the parts of the sum.
        dense: False: sparse search alone proposes.
        overlap: None: entities do not count.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        index: MipsIndex,
        sparse: SparseIndex | None,
        *,
        weights: Weights = PLAIN,
        dense: bool = True,
        overlap: Overlap | None = None,
    ):
        self.snapshot, self.index, self.sparse = snapshot, index, sparse
        self.weights, self.dense, self.overlap = weights, dense, overlap

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
        kinds = ("f4",) * 3 + (np.int64,) * 2 + ("f4",)
        found = Proposals(np.full((len(texts), k), -1, np.int64), *(np.zeros((len(texts), k), kind) for kind in kinds))
        for i, (one, _) in enumerate(self._proposed(query_emb, texts, k, exclude, self.weights.entities > 0)):
            order = np.argsort(-one.total, kind="stable")[:k]
            for name, values in vars(one).items():
                getattr(found, name)[i, : len(order)] = values[order]
        return found

    def search_by_weight(
        self, query_emb: torch.Tensor, texts: Sequence[str], weights: Sequence[Weights], k: int, exclude: Sequence[np.ndarray] | None = None
    ) -> np.ndarray:
        """Block ids int64 [w,b,k], -1 where there is none, that are found at each of w weights; arguments as for ``search``."""
        found = np.full((len(weights), len(texts), k), -1, np.int64)
        for i, (one, parts) in enumerate(self._proposed(query_emb, texts, k, exclude, any(some.entities for some in weights))):
            for ids, some in zip(found[:, i], weights, strict=True):
                order = np.argsort(-self._total(parts, some), kind="stable")[:k]
                ids[: len(order)] = one.block_ids[order]
        return found

    def _proposed(
        self, query_emb: torch.Tensor, texts: Sequence[str], k: int, exclude: Sequence[np.ndarray] | None, entities: bool
    ) -> Iterator[tuple[Proposals, np.ndarray]]:
        """For each query what ``_one`` makes of both searches; ``entities``: whether the overlap counts."""
        ids, scores = np.empty((len(texts), 0), np.int64), np.empty((len(texts), 0), np.float32)
        if self.sparse is not None:
            ids, scores = self.sparse.search(texts, min(DEPTH if self.dense else max(k, DEPTH), len(self.index)), exclude)
        vectors = query_emb.detach().float().cpu()
        hits = self.index.search(vectors, min(max(k, DEPTH), len(self.index)), exclude)
        for i in range(len(texts)):
            valid = hits.valid[i]
            text = texts[i] if entities else None
            yield self._one(text, vectors[i].numpy(), hits.ids[i, valid], hits.scores[i, valid], ids[i], scores[i])

    def _one(
        self, text: str | None, query: np.ndarray, near: np.ndarray, products: np.ndarray, ids: np.ndarray, scores: np.ndarray
    ) -> tuple[Proposals, np.ndarray]:
        """All proposals for one query [d]: blocks ``near`` by inner product, and ``ids`` (-1: none) by BM25; flat, unordered. ``text`` is
        the query where entities count.

        With what is added: the scaled scores, dense and sparse, and the overlap, float64 [3, c].
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
        overlap = np.zeros(len(both)) if self.overlap is None or text is None else self.overlap(text, both)
        parts = np.stack([standardised(dense, products[:DEPTH]), standardised(sparse, scores[:DEPTH]), overlap])
        total = self._total(parts, self.weights) if self.dense or self.weights.entities else sparse
        return Proposals(both, dense, sparse, total, ranks[0], ranks[1], overlap.astype(np.float32)), parts

    def _total(self, parts: np.ndarray, weights: Weights) -> np.ndarray:
        """The sum that blocks are ordered by, float32 [c], of parts [3, c]; of sparse search alone its own score and the overlap."""
        scores = parts[0] + weights.sparse * parts[1] if self.dense else parts[1]
        return (scores + weights.entities * parts[2]).astype(np.float32)
