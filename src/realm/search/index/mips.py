"""Nearest-row search: the protocol of every index, its result, the definition of a score, and the checks of its arguments.

The score of a query q and a row x is their inner product (metric "ip") or minus their squared distance ("l2"): products or squared
differences of the float32 components in float64, summed in float64 row by row, whatever the index, batch size, thread count or device.
Equal scores go by the lower block id. Approximate indexes may miss rows, but score and order alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from realm.errors import SnapshotError

Metric = Literal["ip", "l2"]


@dataclass(frozen=True)
class Hits:
    """The best rows of each query, best first.

    >>> from realm.search.index.choice import make_index
    >>> hits = make_index(np.eye(2, dtype=np.float32), ids=np.array([10, 11])).search(np.array([[1.0, 2.0]]), k=3)
    >>> hits.ids, hits.valid
    (array([[11, 10, -1]]), array([[ True,  True, False]]))
    """

    ids: np.ndarray  # int64 [b,k], block ids, -1 if invalid
    scores: np.ndarray  # float32 [b,k], -inf if invalid
    valid: np.ndarray  # bool [b,k]; valid entries come first
    values: np.ndarray | None = None  # [b,k,...], entries of the value column, zeros if invalid; None without such a column


class MipsIndex(Protocol):
    """An index as the retriever needs it."""

    @property
    def dim(self) -> int:
        """d, the dimension of vectors and queries."""

    @property
    def metric(self) -> Metric:
        """Kind of score: "ip" or "l2"."""

    def __len__(self) -> int:
        """n, all rows, removed ones included."""

    def info(self) -> dict[str, Any]:
        """{"kind", "why", "rows", "removed", "dim", "metric", "bytes"} and more of some kinds; ``bytes`` that every search reads."""

    def search(self, queries: np.ndarray, k: int, exclude: Sequence[np.ndarray] | None = None) -> Hits:
        """The min(k, live rows that are not excluded) rows of the largest score, for each query [b,d], floating point, finite.

        ``exclude``: forbidden block ids (int64, unknown ones ignored) of each query. Raises ValueError: arguments that do not fit."""


def recall_against(
    exact: MipsIndex, index: MipsIndex, queries: np.ndarray, depths: Sequence[int], exclude: Sequence[np.ndarray] | None = None
) -> dict[int, float]:
    """Mean share of the k exactly best rows among the k of ``index``, for each depth k; 1.0 if there is nothing to find."""
    wanted = exact.search(queries, max(depths), exclude)
    return {k: share_found(wanted, index.search(queries, k, exclude), k) for k in depths}


def share_found(wanted: Hits, found: Hits, k: int) -> float:
    """Mean share of the first k of ``wanted`` that are in ``found``, over the queries that want any; 1.0 if none does."""
    shares = [
        np.isin(best[:k][valid[:k]], ids).mean()
        for best, valid, ids in zip(wanted.ids, wanted.valid, found.ids, strict=True)
        if valid[:k].any()
    ]
    return float(np.mean(shares)) if shares else 1.0


CHECK_ENTRIES = 1 << 21  # components looked at together: 16 MiB in float64
MAX_DIM = 2048


def as_matrix(vectors: np.ndarray) -> np.ndarray:
    """The vectors as a float32 matrix [n,d], not copied if possible. Raises SnapshotError: another shape, d above MAX_DIM, or integers."""
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or not 1 <= vectors.shape[1] <= MAX_DIM:
        raise SnapshotError(f"vectors must be [n,d] with d of 1 to {MAX_DIM}, not {list(vectors.shape)}")
    if vectors.dtype.kind != "f":
        raise SnapshotError(f"vectors must be floating point, not {vectors.dtype}")
    return vectors.astype(np.float32, copy=False)


def checked_norms(vectors: np.ndarray) -> np.ndarray:
    """Euclidean norms of float32 vectors [n,d] to float64 precision: float64 [n]. Raises SnapshotError: a component is not finite."""
    norms = np.empty(len(vectors))
    step = max(1, CHECK_ENTRIES // vectors.shape[1])
    for start in range(0, len(vectors), step):
        # Squares of float32 numbers cannot overflow in float64, so a norm is finite exactly if its row is.
        norms[start : start + step] = np.linalg.norm(vectors[start : start + step].astype(np.float64), axis=1)
    if not np.isfinite(norms).all():
        refuse_row(int(np.flatnonzero(~np.isfinite(norms))[0]))
    return norms


def refuse_row(row: int) -> None:
    """Refuse a vector that is not finite. Raises SnapshotError: always."""
    raise SnapshotError(f"vector {row} has a component that is not finite", cure="Go back to an earlier checkpoint")


def check_block_ids(ids: np.ndarray, n: int) -> np.ndarray:
    """Check that ids are int64 [n], non-negative and strictly ascending. Raises SnapshotError: they are not."""
    if ids.shape != (n,) or ids.dtype != np.int64:
        raise SnapshotError(f"block ids must be int64 [{n}], not {ids.dtype} {list(ids.shape)}")
    if n and (ids[0] < 0 or bool((ids[1:] <= ids[:-1]).any())):
        raise SnapshotError("block ids must be non-negative and strictly ascending")
    return ids


def check_live(live: np.ndarray | None, n: int) -> np.ndarray | None:
    """Removed rows, bool [n], from ``live``, bool [n] or None; None when none is removed. Raises SnapshotError: not bool [n]."""
    if live is None:
        return None
    if live.shape != (n,) or live.dtype != np.bool_:
        raise SnapshotError(f"live must be bool [{n}], not {live.dtype} {list(live.shape)}")
    return None if live.all() else ~live


def check_values(values: np.ndarray | None, n: int) -> np.ndarray | None:
    """The value column [n,...]. Raises SnapshotError: another number of entries, or Python objects."""
    if values is not None and (values.ndim == 0 or len(values) != n or values.dtype.hasobject):
        raise SnapshotError(f"values must be [{n},...] of a plain type, not {values.dtype} {list(values.shape)}")
    return values


def checked_queries(queries: np.ndarray, dim: int) -> np.ndarray:
    """The queries as float32 [b,d]. Raises ValueError: wrong shape or type, or a component that is not finite."""
    queries = np.asarray(queries)
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise ValueError(f"queries must be [b,{dim}], not {list(queries.shape)}")
    if queries.dtype.kind != "f":
        raise ValueError(f"queries must be floating point, not {queries.dtype}")
    with np.errstate(over="ignore"):
        queries = np.ascontiguousarray(queries, np.float32)
    finite = np.isfinite(queries).all(1)
    if not finite.all():
        raise ValueError(f"query {int(np.flatnonzero(~finite)[0])} has a component that is not finite")
    return queries


def check_request(b: int, k: int, exclude: Sequence[np.ndarray] | None) -> None:
    """Refuse invalid k or exclusion lists. Raises ValueError: k < 0, not one list for each of b queries, or one without ids."""
    if k < 0:
        raise ValueError(f"k must be at least 0, not {k}")
    if exclude is not None and len(exclude) != b:
        raise ValueError(f"{len(exclude)} exclusion lists for {b} queries")
    for number, ids in enumerate(exclude or ()):
        if len(ids) and np.asarray(ids).dtype.kind not in "iu":  # an empty list has no type worth a word
            raise ValueError(f"exclusion list {number} must be int64 block ids, not {np.asarray(ids).dtype}")
