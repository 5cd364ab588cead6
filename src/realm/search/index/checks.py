"""What every index refuses, in the same words: vectors, ids, tombstones, values and queries that do not fit."""

import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch

from realm.errors import SnapshotError

CHECK_ENTRIES = 1 << 21  # components looked at together: 16 MiB in float64
MAX_DIM = 2048


def as_matrix(vectors: np.ndarray | torch.Tensor) -> torch.Tensor:
    """The vectors as a float32 matrix [n,d], without a copy where possible.

    Raises:
        SnapshotError: not [n,d] with d of 1 to MAX_DIM, or not floating point.
    """
    if vectors.ndim != 2 or not 1 <= vectors.shape[1] <= MAX_DIM:
        raise SnapshotError(f"vectors must be [n,d] with d of 1 to {MAX_DIM}, not {list(vectors.shape)}")
    floating = vectors.dtype.kind == "f" if isinstance(vectors, np.ndarray) else vectors.is_floating_point()
    if not floating:
        raise SnapshotError(f"vectors must be floating point, not {vectors.dtype}")
    if isinstance(vectors, np.ndarray):
        with warnings.catch_warnings():
            # A read-only memory map is welcome: nothing here writes to the vectors.
            warnings.filterwarnings("ignore", message=".*not writable.*", category=UserWarning)
            vectors = torch.from_numpy(vectors)
    return vectors.detach().to(torch.float32)


def checked_norms(vectors: torch.Tensor) -> torch.Tensor:
    """Euclidean norms of float32 vectors [n,d] to float64 precision: float64 [n]. Raises SnapshotError: a component is not finite."""
    norms = torch.empty(len(vectors), dtype=torch.float64, device=vectors.device)
    step = max(1, CHECK_ENTRIES // vectors.shape[1])
    for start in range(0, len(vectors), step):
        part = torch.linalg.vector_norm(vectors[start : start + step].double(), dim=1)
        # Squares of float32 numbers cannot overflow in float64, so a norm is finite exactly if its row is.
        if not math.isfinite(float(part.sum())):
            refuse_row(start + int((~torch.isfinite(part)).nonzero()[0]))
        norms[start : start + step] = part
    return norms


def refuse_row(row: int) -> None:
    """Say that a vector is not finite. Raises SnapshotError: always."""
    raise SnapshotError(f"vector {row} has a component that is not finite", cure="Go back to an earlier checkpoint")


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


def check_live(live: np.ndarray | None, n: int) -> np.ndarray | None:
    """Which rows are removed, bool [n], or None when none is; from ``live``, bool [n] or None. Raises SnapshotError: not bool [n]."""
    if live is None:
        return None
    if live.shape != (n,) or live.dtype != np.bool_:
        raise SnapshotError(f"live must be bool [{n}], not {live.dtype} {list(live.shape)}")
    return None if live.all() else ~live


def check_values(values: np.ndarray | None, n: int) -> np.ndarray | None:
    """The value column, if it has an entry for each of n rows: [n,...].

    Raises:
        SnapshotError: another number of entries, or Python objects.
    """
    if values is not None and (values.ndim == 0 or len(values) != n or values.dtype.hasobject):
        raise SnapshotError(f"values must be [{n},...] of a plain type, not {values.dtype} {list(values.shape)}")
    return values


def checked_queries(queries: torch.Tensor, dim: int, device: torch.device) -> torch.Tensor:
    """The queries as float32 [b,d] on ``device``. Raises ValueError: wrong shape or type, or a component that is not finite."""
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise ValueError(f"queries must be [b,{dim}], not {list(queries.shape)}")
    if not queries.is_floating_point():
        raise ValueError(f"queries must be floating point, not {queries.dtype}")
    queries = queries.detach().to(device, torch.float32)
    finite = torch.isfinite(queries).all(1)
    if not bool(finite.all()):
        raise ValueError(f"query {int((~finite).nonzero()[0])} has a component that is not finite")
    return queries


def check_request(b: int, k: int, exclude: Sequence[np.ndarray] | None) -> None:
    """Refuse a number of results or exclusion lists that cannot be meant.

    Raises:
        ValueError: k < 0, not one exclusion list for each of the b queries, or one that does not hold ids.
    """
    if k < 0:
        raise ValueError(f"k must be at least 0, not {k}")
    if exclude is not None and len(exclude) != b:
        raise ValueError(f"{len(exclude)} exclusion lists for {b} queries")
    for number, ids in enumerate(exclude or ()):
        if len(ids) and np.asarray(ids).dtype.kind not in "iu":  # an empty list has no type worth a word
            raise ValueError(f"exclusion list {number} must be int64 block ids, not {np.asarray(ids).dtype}")
