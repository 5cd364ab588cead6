"""The exact index: every row is looked at, and float64 scores decide.

A fast matrix product only says which rows deserve a float64 score: its rounding error is bounded (see ``realm.index.scan``), and every row
that could still belong to the top k under that bound is scored again.
"""

import numpy as np
import torch

from realm.index.base import Hidden, RowIndex
from realm.index.checks import checked_norms
from realm.index.scan import Best, Scan

SCORE_ENTRIES = 1 << 22  # entries of the largest score matrix (queries x rows): 16 MiB in float32, 32 MiB in float64


class ExactIndex(RowIndex):
    """Exact search over n rows in memory (or memory-mapped), on the device of the vectors.

    Ties go to the lower block id, and the ids of a query do not depend on what else is in its batch. One search needs about four score
    matrices of at most SCORE_ENTRIES entries beside the vectors, and up to twenty where all rows tie. Searching is thread-safe.

    Args: see RowIndex.
    """

    kind = "exact"

    def _prepare(self) -> None:
        self._norms = checked_norms(self._vectors)
        self.largest_norm = float(self._norms.max()) if len(self._norms) else 0.0

    def _bytes(self) -> int:
        return self._vectors.nbytes + self._norms.nbytes

    def _best(self, queries: torch.Tensor, k: int, hidden: Hidden) -> Best:
        """Scan all rows in blocks, keep the k best of each query by float64 score."""
        best = Best(len(queries), k)
        scan = Scan(queries, self.largest_norm, self._metric)
        exact_queries = queries.cpu().numpy().astype(np.float64)
        step = max(1, SCORE_ENTRIES // len(queries))
        for start in range(0, len(self), step):
            stop = min(start + step, len(self))
            lower = scan.lower_bounds(self._vectors[start:stop], self._norms[start:stop])
            hidden.mask(lower, start, stop)
            query, row = scan.candidates(lower, self._norms[start:stop], best.threshold, k)
            best.add(query, row + start, self._exact_scores(exact_queries, query, row + start))
        return best
