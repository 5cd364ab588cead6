"""Dense and sparse search together: each proposes its best; scores are standardised over the best of the query, and added."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
