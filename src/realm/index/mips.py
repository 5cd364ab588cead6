"""Maximum inner-product search: the protocol every index follows, and the exact index.

The exact index returns the top k by one fixed definition of a score, whatever the batch size, block size, thread count or device: the
products of the float32 components, exact in float64, summed in float64 row by row. A fast matrix product only decides which rows deserve
that computation: its rounding error is bounded (d * unit roundoff * |q| * |x|), and every row that could still belong to the top k under
that bound is scored again.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from realm.errors import SnapshotError
from realm.index.scan import NORM_FLOOR, Best, Scan

SCORE_ENTRIES = 1 << 22  # entries of the largest score matrix (queries x rows): 16 MiB in float32, 32 MiB in float64
QUERY_CHUNK = 256  # queries scored together; a larger batch is split, so that a block keeps enough rows for a good matrix product
RESCORE_ENTRIES = 1 << 21  # components gathered at a time for the float64 scores: 16 MiB


@dataclass(frozen=True)
class Hits:
    """The best rows of each query, best first.

    ids: int64 [b,k], block ids, -1 where invalid. scores: float32 [b,k], -inf where invalid. valid: bool [b,k]; valid entries come first.
    """

    ids: np.ndarray
    scores: np.ndarray
    valid: np.ndarray


class MipsIndex(Protocol):
    """What the retriever needs of an index."""

    @property
    def dim(self) -> int:
        """d, the dimension of vectors and queries."""
        ...

    def __len__(self) -> int:
        """n, all rows, removed ones included."""
        ...

    def search(self, queries: torch.Tensor, k: int, exclude: Sequence[np.ndarray] | None = None) -> Hits:
        """The min(k, live rows that are not excluded) rows with the largest inner product, for each query.

        Args:
            queries: floating point [b,d], finite.
            k: number of columns of the result, >= 0; may exceed n.
            exclude: for each of the b queries the block ids (int64, any order, unknown ids ignored) it must not get.

        Raises:
            ValueError: wrong shape or type, a value that is not finite, k < 0, or one exclusion list too many or too few.
        """
        ...


class ExactIndex:
    """Exact inner-product search over n rows in memory (or memory-mapped), on the device of the vectors.

    Ties go to the lower block id, and the ids of a query do not depend on what else is in its batch. One search needs about four score
    matrices of at most SCORE_ENTRIES entries beside the vectors, and up to twenty where all rows tie. Searching is thread-safe.

    Args:
        vectors: [n,d], floating point; kept without a copy when float32.
        ids: int64 [n], block ids, strictly ascending, >= 0.
        live: bool [n], False for removed blocks; None: all live.

    Raises:
        SnapshotError: shapes or types that do not fit, ids out of order, or a component that is not finite.
    """

    def __init__(self, vectors: np.ndarray | torch.Tensor, ids: np.ndarray, live: np.ndarray | None = None):
        self._vectors = _as_matrix(vectors)
        self._norms = _checked_norms(self._vectors)
        self._largest_norm = float(self._norms.max()) if len(self._norms) else 0.0
        self._ids = check_block_ids(ids, len(self._vectors))
        self._removed: torch.Tensor | None = None
        self.set_live(live)

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def dim(self) -> int:
        return int(self._vectors.shape[1])

    def set_live(self, live: np.ndarray | None) -> None:
        """Replace the tombstones: bool [n], False for removed rows; None: all live. Later searches see it, running ones keep theirs.

        Raises:
            SnapshotError: not bool [n].
        """
        if live is None:
            self._removed = None
            return
        if live.shape != (len(self),) or live.dtype != np.bool_:
            raise SnapshotError(f"live must be bool [{len(self)}], not {live.dtype} {list(live.shape)}")
        self._removed = None if live.all() else torch.from_numpy(~live).to(self._vectors.device)

    @torch.no_grad()
    def search(self, queries: torch.Tensor, k: int, exclude: Sequence[np.ndarray] | None = None) -> Hits:
        """See MipsIndex.search."""
        queries = self._checked_queries(queries)
        b = len(queries)
        if k < 0:
            raise ValueError(f"k must be at least 0, not {k}")
        if exclude is not None and len(exclude) != b:
            raise ValueError(f"{len(exclude)} exclusion lists for {b} queries")
        hits = Hits(np.full((b, k), -1, np.int64), np.full((b, k), -np.inf, np.float32), np.zeros((b, k), np.bool_))
        # Mixed precision around the caller's step must not reach the scores: the error bound is that of float32.
        with torch.autocast(self._vectors.device.type, enabled=False):
            for start in range(0, b if min(k, len(self)) else 0, QUERY_CHUNK):
                part = slice(start, start + QUERY_CHUNK)
                best = self._best(queries[part], min(k, len(self)), None if exclude is None else exclude[part])
                self._fill(hits, start, best)
        return hits

    def _checked_queries(self, queries: torch.Tensor) -> torch.Tensor:
        """The queries as float32 [b,d] on the device of the vectors."""
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise ValueError(f"queries must be [b,{self.dim}], not {list(queries.shape)}")
        if not queries.is_floating_point():
            raise ValueError(f"queries must be floating point, not {queries.dtype}")
        queries = queries.detach().to(self._vectors.device, torch.float32)
        finite = torch.isfinite(queries).all(1)
        if not bool(finite.all()):
            raise ValueError(f"query {int((~finite).nonzero()[0])} has a component that is not finite")
        return queries

    def _best(self, queries: torch.Tensor, k: int, exclude: Sequence[np.ndarray] | None) -> Best:
        """Scan all rows in blocks, keep the k best of each query by float64 score."""
        best = Best(len(queries), k)
        scan = Scan(queries, self._largest_norm)
        exact_queries = queries.cpu().numpy().astype(np.float64)
        hidden_query, hidden_row = self._hidden(exclude)
        removed = self._removed
        step = max(1, SCORE_ENTRIES // len(queries))
        for start in range(0, len(self), step):
            stop = min(start + step, len(self))
            lower = scan.lower_bounds(self._vectors[start:stop], self._norms[start:stop])
            if removed is not None:
                lower.masked_fill_(removed[start:stop], -torch.inf)
            first, last = np.searchsorted(hidden_row, [start, stop])
            if last > first:
                at = torch.from_numpy(hidden_query[first:last]), torch.from_numpy(hidden_row[first:last] - start)
                lower[at[0].to(lower.device), at[1].to(lower.device)] = -torch.inf
            query, row = scan.candidates(lower, self._norms[start:stop], best.threshold, k)
            best.add(query, row + start, self._exact_scores(exact_queries, query, row + start))
        return best

    def _hidden(self, exclude: Sequence[np.ndarray] | None) -> tuple[np.ndarray, np.ndarray]:
        """The excluded (query, row) pairs, ordered by row: int64 [e], int64 [e]."""
        if not exclude or not any(len(ids) for ids in exclude):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        query = np.repeat(np.arange(len(exclude)), [len(ids) for ids in exclude])
        wanted = np.concatenate([np.asarray(ids, np.int64) for ids in exclude])
        row = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        known = self._ids[row] == wanted
        query, row = query[known], row[known]
        order = np.argsort(row, kind="stable")
        return query[order], row[order]

    def _exact_scores(self, queries: np.ndarray, query: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Float64 inner product of each (query, row) pair [c]; each is summed alone, so its bits depend on nothing else."""
        scores = np.empty(len(row), np.float64)
        step = max(1, RESCORE_ENTRIES // self.dim)
        for start in range(0, len(row), step):
            part = slice(start, start + step)
            vectors = self._vectors[torch.from_numpy(row[part]).to(self._vectors.device)].cpu().numpy()
            scores[part] = (vectors.astype(np.float64) * queries[query[part]]).sum(axis=1)
        return scores

    def _fill(self, hits: Hits, first_query: int, best: Best) -> None:
        query, column = best.query + first_query, best.rank
        largest = np.finfo(np.float32).max
        hits.ids[query, column] = self._ids[best.row]
        hits.scores[query, column] = np.clip(best.score, -largest, largest)  # a finite score stays finite
        hits.valid[query, column] = True


def _as_matrix(vectors: np.ndarray | torch.Tensor) -> torch.Tensor:
    """The vectors as a float32 matrix, without a copy where possible."""
    if vectors.ndim != 2 or vectors.shape[1] == 0:
        raise SnapshotError(f"vectors must be [n,d], not {list(vectors.shape)}")
    floating = vectors.dtype.kind == "f" if isinstance(vectors, np.ndarray) else vectors.is_floating_point()
    if not floating:
        raise SnapshotError(f"vectors must be floating point, not {vectors.dtype}")
    if isinstance(vectors, np.ndarray):
        with warnings.catch_warnings():
            # A read-only memory map is welcome: nothing here writes to the vectors.
            warnings.filterwarnings("ignore", message=".*not writable.*", category=UserWarning)
            vectors = torch.from_numpy(vectors)
    return vectors.detach().to(torch.float32)


def _checked_norms(vectors: torch.Tensor) -> torch.Tensor:
    """Euclidean norms, float64 [n], rounded up a little; refuses components that are not finite."""
    norms = torch.empty(len(vectors), dtype=torch.float64, device=vectors.device)
    step = max(1, RESCORE_ENTRIES // vectors.shape[1])
    for start in range(0, len(vectors), step):
        part = torch.linalg.vector_norm(vectors[start : start + step].double(), dim=1)
        # Squares of float32 numbers cannot overflow in float64, so a norm is finite exactly if its row is.
        if not math.isfinite(float(part.sum())):
            row = start + int((~torch.isfinite(part)).nonzero()[0])
            raise SnapshotError(f"vector {row} has a component that is not finite", cure="Go back to an earlier checkpoint")
        norms[start : start + step] = part * (1 + 1e-9) + NORM_FLOOR
    return norms


def check_block_ids(ids: np.ndarray, n: int) -> np.ndarray:
    """The ids, if they are int64 [n], non-negative and strictly ascending: the rule for every index and snapshot.

    Raises:
        SnapshotError: they are not.
    """
    if ids.shape != (n,) or ids.dtype != np.int64:
        raise SnapshotError(f"block ids must be int64 [{n}], not {ids.dtype} {list(ids.shape)}")
    if n and (ids[0] < 0 or bool((ids[1:] <= ids[:-1]).any())):
        raise SnapshotError("block ids must be non-negative and strictly ascending")
    return ids
