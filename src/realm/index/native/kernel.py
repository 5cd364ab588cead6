"""The native kernel as Python calls it. Arrays are checked by the callers (``realm.index.quantised``); here they only change hands."""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from realm.index.native.build import library_path

LEVELS = ("scalar", "avx2", "avx512-vnni")
GROUP = 64  # rows of a group
BUNDLE = 16  # rows of a bundle
PANEL = 4  # coded queries that one pass over a group serves
ABI = 2
LISTED = np.dtype([("row", np.int64), ("upper", np.float32), ("lower", np.float32)])  # realm_listed of kernel.h
SCORED = np.dtype([("score", np.float64), ("row", np.int64)])  # realm_scored of kernel.h

_POINTER, _I32, _I64, _F32 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_float


class Codes(ctypes.Structure):
    """realm_codes of kernel.h."""

    _fields_ = (
        *((name, _POINTER) for name in ("codes", "scale", "offset", "residual", "norm", "slack")),
        *((name, _I64) for name in ("rows", "dim", "groups", "quads")),
    )


class Queries(ctypes.Structure):
    """realm_queries of kernel.h."""

    _fields_ = (
        *((name, _POINTER) for name in ("panels", "shift", "step", "by_residual", "by_norm")),
        *((name, _I64) for name in ("count", "planes")),
    )


def struct_of(kind: type[Any], *fields: np.ndarray | int) -> Any:
    """A structure of pointers to C-contiguous arrays and numbers; the caller keeps the arrays alive."""
    return kind(*(field.ctypes.data if isinstance(field, np.ndarray) else field for field in fields))


class Kernel:
    """A loaded kernel at one level, with a number of threads.

    Args:
        level: of ``LEVELS``; None: the best that this processor runs.
        threads: of every call; None: as many as processors this process may use.

    Raises:
        OSError: the file cannot be loaded, or is of another ABI.
        ValueError: an unknown level, or one that this processor does not run; fewer than one thread.
    """

    def __init__(self, library: Path, level: str | None = None, threads: int | None = None):
        self._library = ctypes.CDLL(str(library))
        if self._library.realm_abi() != ABI:
            raise OSError(f"{library} has ABI {self._library.realm_abi()}, not {ABI}")
        best = self._library.realm_level()
        self._level = best if level is None else LEVELS.index(level)
        if self._level > best:
            raise ValueError(f"this processor does not run the level {level}, only {', '.join(LEVELS[: best + 1])}")
        self.threads = len(os.sched_getaffinity(0)) if threads is None else threads
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        tail = (_I32, _I32)
        self._library.realm_scan.argtypes = (_POINTER, _POINTER, _POINTER, *tail)
        self._library.realm_rows.argtypes = (_POINTER, _POINTER, _POINTER, _POINTER, _I64, _POINTER, *tail)
        self._library.realm_quantise.argtypes = (_POINTER, _POINTER, _POINTER, *tail)
        self._library.realm_score.argtypes = (_POINTER, _I64, _POINTER, _POINTER, _POINTER, _I64, _I32, _POINTER, *tail)
        self._library.realm_thresholds.argtypes = (*[_POINTER] * 4, _F32, _POINTER, *[_I64] * 3, _POINTER, _I32)
        self._library.realm_list.argtypes = (*[_POINTER] * 8, _I64, *tail)
        self._library.realm_order.argtypes = (_POINTER, _I64, _POINTER, _POINTER, _I32)
        for name in ("score", "thresholds", "list", "order", "scan", "rows"):
            getattr(self._library, f"realm_{name}").restype = None
        self._library.realm_quantise.restype = _I64

    @property
    def level(self) -> str:
        return LEVELS[self._level]

    @property
    def short_sums(self) -> bool:
        """Whether products are added up in 16 bits before they are in 32, so that codes of queries must be small (see kernel.h)."""
        return self.level == "avx2"

    def scan(self, codes: Codes, queries: Queries, upper: np.ndarray) -> None:
        """Fill upper float32 [b,groups]: bounds of the groups' best scores."""
        self._library.realm_scan(ctypes.byref(codes), ctypes.byref(queries), upper.ctypes.data, self.threads, self._level)

    def rows(self, codes: Codes, queries: Queries, query: np.ndarray, group: np.ndarray, upper: np.ndarray) -> None:
        """Fill upper float32 [c,GROUP]: bounds of the scores of all rows of c pairs of query and group, int64 [c] each."""
        pairs = (query.ctypes.data, group.ctypes.data, len(query), upper.ctypes.data)
        self._library.realm_rows(ctypes.byref(codes), ctypes.byref(queries), *pairs, self.threads, self._level)

    def thresholds(
        self, codes: Codes, upper: np.ndarray, by_residual: np.ndarray, by_norm: np.ndarray, by_slack: float, folds: int, rank: int
    ) -> np.ndarray:
        """Of each query the ``rank``-th largest of upper - (by_residual * residual + by_norm * norm + by_slack * slack): float32 [b].

        Args:
            upper: float32 [b,groups], of ``scan``.
            by_residual, by_norm: float32 [b].
            folds: groups i, i + folds, i + 2 folds... count as one, with their largest; at most all groups, at least ``rank``.
        """
        b = len(upper)
        folded, threshold = np.empty((b, folds), np.float32), np.empty(b, np.float32)
        arrays = (upper.ctypes.data, by_residual.ctypes.data, by_norm.ctypes.data, by_slack, folded.ctypes.data)
        self._library.realm_thresholds(ctypes.byref(codes), *arrays, b, folds, rank, threshold.ctypes.data, self.threads)
        return threshold

    def list(
        self, codes: Codes, queries: Queries, upper: np.ndarray, floor: np.ndarray, hidden: tuple[np.ndarray, np.ndarray], limit: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rows whose bounds reach their query's floor, of groups whose bounds do.

        Args:
            upper: float32 [b,groups], of ``scan``, perhaps by coarser codes of the same queries.
            floor: float32 [b].
            hidden: rows that a query must not get, int64 [e], ascending for each query, and where those of each query begin, int64 [b+1].

        Returns:
            LISTED [b,limit], in no order, and how many there are, int64 [b]: beyond the limit, what is listed is of no use.
        """
        listed, found = np.empty((len(floor), limit), LISTED), np.zeros(len(floor), np.int64)
        arrays = (upper, floor, *hidden, listed, found)
        where = (ctypes.byref(codes), ctypes.byref(queries), *(array.ctypes.data for array in arrays))
        self._library.realm_list(*where, limit, self.threads, self._level)
        return listed, found

    def score(self, vectors: np.ndarray, queries: np.ndarray, query: np.ndarray, row: np.ndarray, distance: bool) -> np.ndarray:
        """The scores of c pairs of query and row, int64 [c] each, as ``realm.index.mips`` defines them: float64 [c].

        Args:
            vectors, queries: float32 [n,d] and float64 [b,d], C-contiguous.
            distance: metric l2.
        """
        score = np.empty(len(query))
        arrays = (queries.ctypes.data, query.ctypes.data, row.ctypes.data, len(query), distance, score.ctypes.data)
        self._library.realm_score(vectors.ctypes.data, vectors.shape[1], *arrays, self.threads, self._level)
        return score

    def order(self, start: np.ndarray, scored: np.ndarray) -> None:
        """Put SCORED [c] in order, the best of a query first, equal scores by row.

        Those of query i are start[i] to start[i+1]: int64 [b+1].
        """
        scratch = np.empty_like(scored)
        self._library.realm_order(start.ctypes.data, len(start) - 1, scored.ctypes.data, scratch.ctypes.data, self.threads)

    def quantise(self, codes: Codes, vectors: np.ndarray, bias: np.ndarray | None) -> int:
        """Fill ``codes`` from float32 [n,d] and [n]. Returns a row that is not finite, or -1."""
        bias_at = None if bias is None else bias.ctypes.data
        return int(self._library.realm_quantise(ctypes.byref(codes), vectors.ctypes.data, bias_at, self.threads, self._level))


@cache
def installed_kernel() -> Kernel | None:
    """The kernel built with the package, at the best level of this processor.

    None where it was not built, cannot be loaded, or would not run faster than PyTorch (a processor without AVX2).
    """
    path = library_path()
    if not path.exists():
        return None
    try:
        kernel = Kernel(path)
    except OSError:
        return None
    return None if kernel.level == "scalar" else kernel
