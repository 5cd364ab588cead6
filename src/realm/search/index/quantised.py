"""Rows as 8-bit codes in groups of 64 with bounds on their errors, and queries as 8-bit codes, for the native kernel.

A row x is coded as scale * c, scale its largest component / 127, and every group knows the largest |x - scale * c| of its rows. Queries
are coded in one or two planes (coarse and fine). With both errors known, the scan of the codes bounds every true score from above:
|q.x - scan| <= |q| |x - decoded x| + |q - decoded q| |decoded x| + rounding."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from realm.search.index.mips import refuse_row
from realm.search.index.native.kernel import BUNDLE, GROUP, PANEL, Codes, Kernel, Queries, struct_of

BOUND_FLOOR = 2.0**-50  # added to every bound: pays for what underflows or is flushed to zero
MIN_COMPONENT = 1e-30  # queries with no component above it get the code of zero
MAX_LANE_SUM = 128  # of one-signed codes in the eight components that the AVX2 kernel adds up: 255 times it fits into 16 bits
ARRAYS = ("codes", "scale", "offset", "residual", "norm", "slack")


@dataclass(frozen=True)
class QuantisedRows:
    """Codes of n rows in g groups; the last group is filled up with hidden rows."""

    rows: int
    dim: int
    codes: np.ndarray  # uint8 [g,4,quads,16,4]: bundles of 16 rows, quads of four components, 128 for zero
    scale: np.ndarray  # float32 [g*64]
    offset: np.ndarray  # float32 [g*64], added to a row's score; -inf hides the row
    residual: np.ndarray  # float32 [g], bound on |x - decoded x|
    norm: np.ndarray  # float32 [g], bound on |decoded x|
    slack: np.ndarray  # float32 [g], bound on the rounding of offsets

    @property
    def groups(self) -> int:
        return len(self.residual)

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in ARRAYS)

    @cached_property
    def largest_norm(self) -> float:
        """Upper bound of the rows' Euclidean norms, asked for by every search."""
        return float((self.norm.astype(np.float64) + self.residual).max()) if self.groups else 0.0

    def struct(self) -> Codes:
        """The kernel's structure; valid as long as this object is."""
        codes: Codes = struct_of(Codes, *(getattr(self, name) for name in ARRAYS), self.rows, self.dim, self.groups, self.codes.shape[2])
        return codes

    def hidden(self, removed: np.ndarray) -> "QuantisedRows":
        """The same rows (shared), those of ``removed`` bool [n] hidden."""
        offset = self.offset.copy()
        offset[: self.rows][removed] = -np.inf
        return replace(self, offset=offset)


def quantise(kernel: Kernel, vectors: np.ndarray, bias: np.ndarray | None = None) -> QuantisedRows:
    """Code float32 vectors [n,d], C-contiguous, with a finite ``bias`` float32 [n]. Raises SnapshotError: a row that is not finite."""
    n, dim = vectors.shape
    groups = -(-n // GROUP)
    codes = np.empty((groups, GROUP // BUNDLE, -(-dim // 4), BUNDLE, 4), np.uint8)
    scale, offset = (np.empty(groups * GROUP, np.float32) for _ in range(2))
    residual, norm, slack = (np.empty(groups, np.float32) for _ in range(3))
    coded = QuantisedRows(n, dim, codes, scale, offset, residual, norm, slack)
    refused = kernel.quantise(coded.struct(), vectors, bias)
    if refused >= 0:
        refuse_row(refused)
    return coded


@dataclass(frozen=True)
class CodedQueries:
    """Codes of b queries in p panels of four planes (see kernel.h)."""

    panels: np.ndarray  # int8 [p,quads,4,4]
    shift: np.ndarray  # int32 [p*4]
    step: np.ndarray  # float32 [p*4]
    by_residual: np.ndarray  # float32 [b], factors of the rows' errors in the bound
    by_norm: np.ndarray  # float32 [b], factors of the rows' norms
    planes: int  # 1 or 2, of each query

    def __len__(self) -> int:
        return len(self.by_residual)

    def struct(self) -> Queries:
        """The kernel's structure; valid as long as this object is."""
        arrays = (self.panels, self.shift, self.step, self.by_residual, self.by_norm)
        queries: Queries = struct_of(Queries, *arrays, len(self), self.planes)
        return queries


def code_queries(queries: np.ndarray, planes: int, short_sums: bool) -> CodedQueries:
    """Codes of float32 queries [b,d], b >= 1; ``short_sums`` (``Kernel.short_sums``) leaves them some two bits less."""
    b, dim = queries.shape
    quads = -(-dim // 4)
    left = np.zeros((b, quads * 4))
    left[:, :dim] = queries
    norms = np.linalg.norm(left, axis=1)
    panels = -(-b * planes // PANEL)
    codes, step = np.zeros((panels * PANEL, quads * 4), np.int8), np.ones(panels * PANEL, np.float32)
    for number in range(planes):
        code, unit = plane(left, short_sums)
        codes[number : b * planes : planes], step[number : b * planes : planes] = code, unit
        left -= code * unit[:, None].astype(np.float64)
    return CodedQueries(
        panels=np.ascontiguousarray(codes.reshape(panels, PANEL, quads, 4).transpose(0, 2, 1, 3)),
        shift=codes.sum(axis=1, dtype=np.int32) * np.int32(128),
        step=step,
        by_residual=(norms * (1 + 1e-6) + BOUND_FLOOR).astype(np.float32),
        by_norm=((np.linalg.norm(left, axis=1) + norms * 2.0**-20) * (1 + 1e-6) + BOUND_FLOOR).astype(np.float32),
        planes=planes,
    )


def plane(values: np.ndarray, short_sums: bool) -> tuple[np.ndarray, np.ndarray]:
    """Codes int8 of float64 values [b,d], and the unit of each row, float32 [b]: as fine as the kernel's sums allow."""
    largest = np.abs(values).max(axis=1)
    unit = largest / 126.999  # rounded to float32 it may be a little less than it should
    if short_sums:  # rounding adds at most a half to each of the eight codes of a sum
        unit = np.maximum(unit, _largest_sums(values) / (MAX_LANE_SUM - 4.001))
    unit = unit.astype(np.float32)
    unit[largest < MIN_COMPONENT] = 1
    return np.rint(values / unit[:, None]).astype(np.int8), unit


def _largest_sums(values: np.ndarray) -> np.ndarray:
    """The largest one-signed sum of values [b,quads*4] that the AVX2 kernel forms in 16 bits: [b]."""
    b, padded = values.shape
    blocks = -(-padded // 16)
    lanes = np.zeros((b, blocks * 16))
    lanes[:, :padded] = values
    lanes = lanes.reshape(b, blocks, 4, 2, 2)  # blocks of four quads, of which the halves are added up
    sums: np.ndarray = np.stack([np.maximum(lanes, 0).sum(axis=(2, 4)), np.maximum(-lanes, 0).sum(axis=(2, 4))]).max(axis=(0, 2, 3))
    return sums
