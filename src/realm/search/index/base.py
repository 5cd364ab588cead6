"""Base of all kinds of index: rows with ids, tombstones, exclusion lists, the score, the best rows, results."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from realm.search.index.mips import Hits, Metric, as_matrix, check_block_ids, check_live, check_request, check_values, checked_queries

QUERY_CHUNK = 256  # queries scored together; a larger batch is split, so that a block keeps enough rows for a good matrix product
RESCORE_ENTRIES = 1 << 16  # components gathered at a time for the float64 scores: 512 KiB, which stay in the cache
_EMPTY = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Hidden:
    """Rows that one search must not return."""

    query: np.ndarray  # int64 [e], excluded pairs with ``row``, ordered by query, then row; a pair may occur twice
    row: np.ndarray
    removed: np.ndarray | None  # bool [n]; None: no row is removed

    def by_row(self) -> "Hidden":
        """The same, the pairs ordered by row."""
        order = np.argsort(self.row, kind="stable")
        return Hidden(self.query[order], self.row[order], self.removed)

    def mask(self, scores: Any, start: int, stop: int) -> None:
        """Set hidden entries of scores [b,stop-start] of the rows ``start`` to ``stop`` to -inf; the pairs are ordered ``by_row``."""
        if self.removed is not None:
            scores[:, np.flatnonzero(self.removed[start:stop])] = -np.inf
        first, last = np.searchsorted(self.row, [start, stop])
        scores[self.query[first:last], self.row[first:last] - start] = -np.inf

    def only(self, queries: np.ndarray) -> "Hidden":
        """The same for a subset of the queries, renumbered from 0: int64 [m], ascending."""
        if not len(self.query):
            return self
        place = np.minimum(np.searchsorted(queries, self.query), len(queries) - 1)
        kept = queries[place] == self.query if len(queries) else np.zeros(len(self.query), np.bool_)
        return Hidden(place[kept], self.row[kept], self.removed)

    def most_excluded(self) -> int:
        """An upper bound on the excluded rows of a query."""
        return int(np.bincount(self.query).max()) if len(self.query) else 0

    def available(self, b: int, n: int) -> np.ndarray:
        """Rows of n that each of b queries may get, int64 [b]."""
        live = n if self.removed is None else n - int(self.removed.sum())
        pairs = np.unique(self.query * n + self.row)
        query, row = np.divmod(pairs, n)
        if self.removed is not None:
            query = query[~self.removed[row]]
        return live - np.bincount(query, minlength=b)

    def allows(self, query: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Mask of allowed pairs (query, row), int64 [c] each: bool [c]."""
        n = 1 + max(int(row.max(initial=0)), int(self.row.max(initial=0)))
        allowed = ~np.isin(query * n + row, self.query * n + self.row)
        return allowed if self.removed is None else allowed & ~self.removed[row]


class Best:
    """The k best rows of each of b queries so far: parallel arrays query, row, score, rank, ordered by query and rank."""

    def __init__(self, b: int, k: int):
        self.k = k
        self.query = np.zeros(0, np.int64)
        self.row = np.zeros(0, np.int64)
        self.score = np.zeros(0, np.float64)
        self.rank = np.zeros(0, np.int64)
        self.threshold = np.full(b, -np.inf)  # float64 [b], the k-th best score

    @classmethod
    def ordered(cls, b: int, k: int, query: np.ndarray, row: np.ndarray, score: np.ndarray) -> "Best":
        """From rows int64 [c] ordered by query, then best first, ties by row."""
        best = cls(b, k)
        starts = np.searchsorted(query, np.arange(b + 1))
        counts = np.minimum(np.diff(starts), k)
        best.query, best.rank = (
            np.repeat(np.arange(b), counts),
            np.concatenate([_EMPTY, *(np.arange(count) for count in counts.tolist())]),
        )
        kept = best.rank + starts[best.query]
        best.row, best.score = row[kept], score[kept]
        full = counts == k
        best.threshold[full] = score[starts[:-1][full] + k - 1]
        return best

    @classmethod
    def of_matrices(cls, row: np.ndarray, score: np.ndarray, counts: np.ndarray) -> "Best":
        """From ordered rows int64 [b,k] with their scores, counts int64 [b] of each query."""
        b, k = row.shape
        best = cls(b, k)
        best.query, best.rank = np.repeat(np.arange(b), counts), np.tile(np.arange(k), b)
        full = counts == k
        if full.all():
            best.row, best.score = row.ravel(), score.ravel()
        else:
            there = np.arange(k) < counts[:, None]
            best.row, best.score, best.rank = row[there], score[there], best.rank[there.ravel()]
        best.threshold[full] = score[full, -1]
        return best

    def add(self, query: np.ndarray, row: np.ndarray, score: np.ndarray) -> None:
        """Merge new scored rows: int64 [c], int64 [c], float64 [c]."""
        query, row, score = (np.concatenate(pair) for pair in ((self.query, query), (self.row, row), (self.score, score)))
        order = np.lexsort((row, -score, query))
        self.__dict__.update(Best.ordered(len(self.threshold), self.k, query[order], row[order], score[order]).__dict__)


def joined(parts: Sequence[Best]) -> Best:
    """Best rows of all queries from parts with consecutive queries."""
    best = Best(0, parts[0].k)
    for name in ("query", "row", "score", "rank", "threshold"):
        setattr(best, name, np.concatenate([getattr(part, name) for part in parts]))
    return best


class RowIndex(ABC):
    """An index of n rows; a kind implements the search (``_best``) and its memory (``_bytes``).

    Args:
        vectors: [n,d], floating point, d up to 2,048; kept without a copy when float32.
        ids: int64 [n], block ids, strictly ascending, >= 0.
        live: bool [n], False for removed blocks; None: all live.
        metric: "ip" or "l2" (see ``realm.search.index.mips``).
        values: [n,...], one entry per row for the hits (token ids in kNN-LM), of a plain type, memory-mapped or not; None: none.

    Raises SnapshotError: shapes or types that do not fit, ids out of order, or a component that is not finite. Raises ValueError: an
    unknown metric."""

    kind: ClassVar[str]
    why = "asked for"  # reason for this kind, for people

    def __init__(
        self,
        vectors: np.ndarray,
        ids: np.ndarray,
        live: np.ndarray | None = None,
        *,
        metric: Metric = "ip",
        values: np.ndarray | None = None,
    ):
        if metric not in ("ip", "l2"):
            raise ValueError(f"metric must be ip or l2, not {metric}")
        self._vectors = as_matrix(vectors)
        self._metric: Metric = metric
        self._ids = check_block_ids(ids, len(self._vectors))
        # As in a corpus from which nothing was ever removed: ids are found without a look-up.
        self._consecutive = len(self._ids) > 0 and int(self._ids[-1] - self._ids[0]) + 1 == len(self._ids)
        self._values = check_values(values, len(self._vectors))
        self._removed: np.ndarray | None = None
        self.set_live(live)
        self._prepare()

    def _prepare(self) -> None:  # noqa: B027
        """Prepare the rows before the first search."""

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def dim(self) -> int:
        return int(self._vectors.shape[1])

    @property
    def metric(self) -> Metric:
        return self._metric

    def set_live(self, live: np.ndarray | None) -> None:
        """Replace the tombstones, bool [n] (None: all live), for later searches. Raises SnapshotError: not bool [n]."""
        self._removed = check_live(live, len(self))

    def info(self) -> dict[str, Any]:
        removed = 0 if self._removed is None else int(self._removed.sum())
        facts = {"kind": self.kind, "why": self.why, "rows": len(self), "removed": removed, "dim": self.dim, "metric": self.metric}
        return {**facts, "bytes": self._bytes()}

    def search(self, queries: np.ndarray, k: int, exclude: Sequence[np.ndarray] | None = None) -> Hits:
        queries = checked_queries(queries, self.dim)
        b = len(queries)
        check_request(b, k, exclude)
        values = None if self._values is None else np.zeros((b, k, *self._values.shape[1:]), self._values.dtype)
        hits = Hits(np.full((b, k), -1, np.int64), np.full((b, k), -np.inf, np.float32), np.zeros((b, k), np.bool_), values)
        removed = self._removed
        for start in range(0, b if min(k, len(self)) else 0, QUERY_CHUNK):
            part = slice(start, start + QUERY_CHUNK)
            hidden = Hidden(*self._excluded(None if exclude is None else exclude[part]), removed)
            self._fill(hits, start, self._best(queries[part], min(k, len(self)), hidden))
        return hits

    @abstractmethod
    def _best(self, queries: np.ndarray, k: int, hidden: Hidden) -> Best:
        """The best k rows that are not hidden, of float32 queries [b,d]; 1 <= k <= n, 1 <= b."""

    @abstractmethod
    def _bytes(self) -> int:
        """Memory that searches go through."""

    def _excluded(self, exclude: Sequence[np.ndarray] | None) -> tuple[np.ndarray, np.ndarray]:
        """Excluded (query, row) pairs, ordered by query, then row: int64 [e], int64 [e]."""
        if not exclude or not any(len(ids) for ids in exclude):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        query = np.repeat(np.arange(len(exclude)), [len(ids) for ids in exclude])
        wanted = np.concatenate([np.sort(np.asarray(ids, np.int64)) for ids in exclude])
        if self._consecutive:
            known = (wanted >= self._ids[0]) & (wanted <= self._ids[-1])
            return query[known], wanted[known] - self._ids[0]
        row = np.minimum(np.searchsorted(self._ids, wanted), len(self) - 1)
        known = self._ids[row] == wanted
        return query[known], row[known]

    def _exact_scores(self, queries: np.ndarray, query: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Score of each (query, row) pair, float64 [c], of float64 queries [b,d]; each is summed alone, for reproducible bits."""
        scores = np.empty(len(row), np.float64)
        step = max(1, RESCORE_ENTRIES // self.dim)
        for start in range(0, len(row), step):
            part = slice(start, start + step)
            vectors = self._vectors[row[part]].astype(np.float64)
            if self._metric == "ip":
                scores[part] = (vectors * queries[query[part]]).sum(axis=1) + 0.0  # no negative zero
            else:
                scores[part] = 0.0 - np.square(vectors - queries[query[part]]).sum(axis=1)
        return scores

    def _fill(self, hits: Hits, first_query: int, best: Best) -> None:
        query, column = best.query + first_query, best.rank
        largest = np.finfo(np.float32).max
        ids = best.row + self._ids[0] if self._consecutive else self._ids[best.row]
        scores = np.clip(best.score, -largest, largest)  # a finite score stays finite
        b, k = len(best.threshold), hits.ids.shape[1]
        if len(ids) == b * k:  # each has all of its k rows: nothing is to be placed one by one
            part = slice(first_query, first_query + b)
            hits.ids[part], hits.scores[part], hits.valid[part] = ids.reshape(b, k), scores.reshape(b, k), True
        else:
            hits.ids[query, column], hits.scores[query, column], hits.valid[query, column] = ids, scores, True
        if hits.values is not None and self._values is not None:
            hits.values[query, column] = self._values[best.row]
