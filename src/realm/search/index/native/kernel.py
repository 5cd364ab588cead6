"""The native kernel as Python calls it; arrays are checked by the callers (``search.index.quantised``)."""

import ctypes
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from realm.search.index.native.build import library_path

LEVELS = ("scalar", "avx2", "avx512-vnni")
GROUP = 64  # rows of a group
BUNDLE = 16  # rows of a bundle
PANEL = 4  # coded queries that one pass over a group serves
ABI = 3
LISTED = np.dtype([("row", np.int64), ("upper", np.float32), ("lower", np.float32)])  # realm_listed of kernel.h
SCORED = np.dtype([("score", np.float64), ("row", np.int64)])  # realm_scored of kernel.h
PAIR = np.dtype([("row", np.int64), ("query", np.int32), ("place", np.int32)])  # realm_pair of kernel.h

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


class Scratch(threading.local):
    """Memory reused by the searches of one thread: the system clears new pages, which takes long."""

    most = 1 << 26  # bytes; what is larger is not kept

    def __init__(self) -> None:
        self._kept: dict[str, np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised array, valid until this thread asks for this name again."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if name not in self._kept or self._kept[name].nbytes < size:
            memory = np.empty(size, np.uint8)
            if size > self.most:
                return memory.view(dtype).reshape(shape)
            self._kept[name] = memory
        return self._kept[name][:size].view(dtype).reshape(shape)


def struct_of(kind: type[Any], *fields: np.ndarray | int) -> Any:
    """Build a structure of pointers to C-contiguous arrays and numbers; the caller keeps the arrays alive."""
    return kind(*(field.ctypes.data if isinstance(field, np.ndarray) else field for field in fields))


class Kernel:
    """A loaded kernel at one level of ``LEVELS`` (None: the best of this processor) and a number of threads (None: one per processor).

    Raises OSError: the file cannot be loaded, or is of another ABI. Raises ValueError: an unknown or unsupported level; fewer than one
    thread."""

    def __init__(self, library: Path, level: str | None = None, threads: int | None = None):
        self._library = ctypes.CDLL(str(library))
        if self._library.realm_abi() != ABI:
            raise OSError(f"{library} has ABI {self._library.realm_abi()}, not {ABI}")
        best = self._library.realm_level()
        self._level = best if level is None else LEVELS.index(level)
        if self._level > best:
            raise ValueError(f"this processor does not run the level {level}, only {', '.join(LEVELS[: best + 1])}")
        self._scratch = Scratch()
        self.threads = len(os.sched_getaffinity(0)) if threads is None else threads
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        loaded, tail = self._library, (_I32, _I32)
        loaded.realm_scan.argtypes = (_POINTER, _POINTER, _I64, _POINTER, *tail)
        loaded.realm_refine.argtypes = (_POINTER, _POINTER, _I64, _POINTER, _POINTER, *tail)
        loaded.realm_sweep_and_list.argtypes = (*[_POINTER] * 4, _I64, *[_POINTER] * 5, _I64, *tail)
        loaded.realm_rows.argtypes = (_POINTER, _POINTER, _POINTER, _POINTER, _I64, _POINTER, *tail)
        loaded.realm_quantise.argtypes = (_POINTER, _POINTER, _POINTER, *tail)
        loaded.realm_thresholds.argtypes = (*[_POINTER] * 4, _F32, _POINTER, *[_I64] * 3, _POINTER, _I32)
        loaded.realm_list.argtypes = (*[_POINTER] * 8, _I64, *tail)
        loaded.realm_kth_lower.argtypes = (_POINTER, _POINTER, _I64, _I64, _POINTER, _POINTER, _I32)
        loaded.realm_best.argtypes = (_POINTER, _I64, _I64, _POINTER, _I64, _POINTER, _POINTER, _I64, *[_POINTER] * 10, *tail)
        for name in ("scan", "refine", "sweep_and_list", "rows", "thresholds", "list", "kth_lower", "best"):
            getattr(loaded, f"realm_{name}").restype = None
        self._library.realm_quantise.restype = _I64

    @property
    def level(self) -> str:
        return LEVELS[self._level]

    @property
    def short_sums(self) -> bool:
        """True if products are summed in 16 bits before 32, so that codes of queries must be small (see kernel.h)."""
        return self.level == "avx2"

    def scan(self, codes: Codes, queries: Queries, upper: np.ndarray, stride: int = 1) -> None:
        """Fill upper float32 [b,ceil(groups/stride)]: bounds of the best scores of every stride-th group."""
        self._library.realm_scan(ctypes.byref(codes), ctypes.byref(queries), stride, upper.ctypes.data, self.threads, self._level)

    def refine(self, codes: Codes, queries: Queries, upper: np.ndarray, stride: int, floor: np.ndarray) -> None:
        """Tighten bounds of ``scan`` by coarser codes to those of ``queries`` where they reach the floor, float32 [b]; -inf elsewhere."""
        where = (ctypes.byref(codes), ctypes.byref(queries), stride, floor.ctypes.data, upper.ctypes.data)
        self._library.realm_refine(*where, self.threads, self._level)

    def rows(self, codes: Codes, queries: Queries, query: np.ndarray, group: np.ndarray, upper: np.ndarray) -> None:
        """Fill upper float32 [c,GROUP]: bounds of the scores of all rows of c pairs of query and group, int64 [c] each."""
        pairs = (query.ctypes.data, group.ctypes.data, len(query), upper.ctypes.data)
        self._library.realm_rows(ctypes.byref(codes), ctypes.byref(queries), *pairs, self.threads, self._level)

    def thresholds(
        self, codes: Codes, upper: np.ndarray, by_residual: np.ndarray, by_norm: np.ndarray, by_slack: float, stride: int, rank: int
    ) -> np.ndarray:
        """The ``rank``-th largest of upper - (by_residual * residual + by_norm * norm + by_slack * slack) per query: float32 [b].

        ``upper`` float32 [b,ceil(groups/stride)] is from ``scan``; by_residual and by_norm are float32 [b]; rank is 1 to as many as there
        are."""
        less, threshold = np.empty_like(upper), np.empty(len(upper), np.float32)
        arrays = (upper.ctypes.data, by_residual.ctypes.data, by_norm.ctypes.data, by_slack, less.ctypes.data)
        self._library.realm_thresholds(ctypes.byref(codes), *arrays, len(upper), stride, rank, threshold.ctypes.data, self.threads)
        return threshold

    def list(
        self, codes: Codes, queries: Queries, upper: np.ndarray, floor: np.ndarray, hidden: tuple[np.ndarray, np.ndarray], limit: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """List the rows whose bounds reach their query's floor [b], of groups whose bounds do: ``upper`` float32 [b,groups], of ``scan``,
        perhaps by coarser codes. ``hidden``: forbidden rows, int64 [e], ascending for each query, and the starts of each, int64 [b+1].

        Returns LISTED [b,limit], unordered, until this thread lists again, and their numbers, int64 [b]: above the limit, the list is of no
        use."""
        listed, found = self._scratch.array("listed", (len(floor), limit), LISTED), np.zeros(len(floor), np.int64)
        arrays = (upper, floor, *hidden, listed, found)
        where = (ctypes.byref(codes), ctypes.byref(queries), *(array.ctypes.data for array in arrays))
        self._library.realm_list(*where, limit, self.threads, self._level)
        return listed, found

    def sweep(
        self,
        codes: Codes,
        queries: Queries,
        scanned: Queries,
        sample: np.ndarray,
        stride: int,
        floor: np.ndarray,
        hidden: tuple[np.ndarray, np.ndarray],
        limit: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scan all groups by ``scanned``, the queries or coarser codes of them, after its ``sample``; otherwise as ``list``."""
        listed, found = self._scratch.array("swept", (len(floor), limit), LISTED), np.zeros(len(floor), np.int64)
        what = (ctypes.byref(codes), ctypes.byref(queries), ctypes.byref(scanned), sample.ctypes.data, stride)
        arrays = (array.ctypes.data for array in (floor, *hidden, listed, found))
        self._library.realm_sweep_and_list(*what, *arrays, limit, self.threads, self._level)
        return listed, found

    def kth_lower(self, listed: np.ndarray, start: np.ndarray, k: int) -> np.ndarray:
        """The k-th largest lower bound float32 [b] of rows at addresses uint64 [b], start[i+1] - start[i] for query i; or -inf."""
        scratch, lower = self._scratch.array("scratch", (int(start[-1]),), np.float32), np.empty(len(listed), np.float32)
        where = (listed.ctypes.data, start.ctypes.data, len(listed), k, scratch.ctypes.data, lower.ctypes.data)
        self._library.realm_kth_lower(*where, self.threads)
        return lower

    def best(
        self,
        vectors: np.ndarray,
        queries: np.ndarray,
        listed: np.ndarray,
        start: np.ndarray,
        k: int,
        floor: np.ndarray,
        margin: np.ndarray,
        distance: bool,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The best of the listed rows that reach the floor, by scores as defined in ``realm.search.index.mips``.

        Args:
            vectors, queries: float32 [n,d] and float64 [b,d], C-contiguous.
            listed, start: see ``kth_lower``; the order of the rows changes.
            floor: float32 [b], a bound that k rows of the query reach, or that all do.
            margin: float64 [b], error of scores beyond the bounds' own room.
            distance: metric l2.

        Returns rows int64 [b,k] and scores float64 [b,k], the best first, ties by row; and the number of rows scored for each query, int64
        [b]: below k, the rest is of no use."""
        b, total = len(listed), int(start[-1])
        squares = np.square(queries).sum(axis=1) if distance else None
        pairs = self._scratch.array("pairs", (total,), PAIR)
        scored, scratch = (self._scratch.array(name, (total,), SCORED) for name in ("scored", "scratch"))
        first, kept, row, score = np.empty(b, np.int64), np.empty(b, np.int64), np.empty((b, k), np.int64), np.empty((b, k))
        what = (vectors.ctypes.data, *vectors.shape, queries.ctypes.data, b, listed.ctypes.data, start.ctypes.data, k)
        floors = (floor.ctypes.data, margin.ctypes.data, None if squares is None else squares.ctypes.data)
        arrays = (array.ctypes.data for array in (pairs, scored, scratch, first, kept, row, score))
        self._library.realm_best(*what, *floors, *arrays, self.threads, self._level)
        return row, score, kept

    def quantise(self, codes: Codes, vectors: np.ndarray, bias: np.ndarray | None) -> int:
        """Fill ``codes`` from float32 [n,d] and [n]. Returns a row that is not finite, or -1."""
        bias_at = None if bias is None else bias.ctypes.data
        return int(self._library.realm_quantise(ctypes.byref(codes), vectors.ctypes.data, bias_at, self.threads, self._level))


@cache
def installed_kernel() -> Kernel | None:
    """The kernel built with the package, at the best level of this processor.

    None if it was not built, cannot be loaded, or would be no faster than a matrix product (a processor without AVX2)."""
    path = library_path()
    if not path.exists():
        return None
    try:
        kernel = Kernel(path)
    except OSError:
        return None
    return None if kernel.level == "scalar" else kernel
