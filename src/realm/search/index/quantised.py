"""Rows as 8-bit codes in groups of 64 with bounds on what the codes lose, and queries as 8-bit codes: what the native kernel scans.

A row x is coded as scale * c, scale its largest component / 127, and every group knows the largest |x - scale * c| of its rows. Queries are
coded too, in one or two planes (coarse and fine). With both errors known, the scan of the codes bounds every true score from above:
|q.x - scan| <= |q| |x - decoded x| + |q - decoded q| |decoded x| + rounding.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from realm.search.index.checks import refuse_row
from realm.search.index.native.kernel import BUNDLE, GROUP, PANEL, Codes, Kernel, Queries, struct_of

FLOOR = 2.0**-50  # added to every bound: pays for what underflows or is flushed to zero
SMALLEST = 1e-30  # queries with no component above it get the code of zero
# 255 * LANE_SUM fits into 16 bits: the largest sum of codes of one sign in the eight components that the AVX2 kernel adds up in 16 bits.
LANE_SUM = 128
ARRAYS = ("codes", "scale", "offset", "residual", "norm", "slack")


@dataclass(frozen=True)
class QuantisedRows:
    """Codes of n rows in g groups; the last group is filled up with hidden rows.

    codes: uint8 [g,4,quads,16,4], bundles of 16 rows, a quad being four consecutive components, 128 standing for zero.
    scale, offset: float32 [g*64]; the offset is added to a row's score, -inf hides the row.
    residual, norm, slack: float32 [g], bounds on |x - decoded x|, |decoded x| and the rounding of offsets.
    """

    rows: int
    dim: int
    codes: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    residual: np.ndarray
    norm: np.ndarray
    slack: np.ndarray

    @property
    def groups(self) -> int:
        return len(self.residual)

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in ARRAYS)

    @cached_property
    def largest_norm(self) -> float:
        """At least the Euclidean norm of every row; every search asks."""
        return float((self.norm.astype(np.float64) + self.residual).max()) if self.groups else 0.0

    def struct(self) -> Codes:
        """For the kernel; valid as long as this object is."""
        codes: Codes = struct_of(Codes, *(getattr(self, name) for name in ARRAYS), self.rows, self.dim, self.groups, self.codes.shape[2])
        return codes

    def hidden(self, removed: np.ndarray) -> "QuantisedRows":
        """The same rows (shared), those of ``removed`` bool [n] hidden."""
        offset = self.offset.copy()
        offset[: self.rows][removed] = -np.inf
        return replace(self, offset=offset)


def quantise(kernel: Kernel, vectors: np.ndarray, bias: np.ndarray | None = None) -> QuantisedRows:
    """Code all rows, in one pass over the vectors.

    Args:
        vectors: float32 [n,d], d up to 2,048, C-contiguous; memory-mapped or not.
        bias: float32 [n], finite, added to the scores; None: zero.

    Raises:
        SnapshotError: a component that is not finite.
    """
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
    """Codes of b queries in p panels of four planes (see kernel.h).

    panels: int8 [p,quads,4,4]. shift: int32 [p*4]. step: float32 [p*4]. by_residual, by_norm: float32 [b], the factors of the rows' errors
    and norms in the bound. planes: 1 or 2, of each query.
    """

    panels: np.ndarray
    shift: np.ndarray
    step: np.ndarray
    by_residual: np.ndarray
    by_norm: np.ndarray
    planes: int

    def __len__(self) -> int:
        return len(self.by_residual)

    def struct(self) -> Queries:
        """For the kernel; valid as long as this object is."""
        arrays = (self.panels, self.shift, self.step, self.by_residual, self.by_norm)
        queries: Queries = struct_of(Queries, *arrays, len(self), self.planes)
        return queries


def code_queries(queries: torch.Tensor, planes: int, short_sums: bool) -> CodedQueries:
    """Codes of float32 queries [b,d] on the CPU, b >= 1.

    Args:
        short_sums: for a kernel that adds up in 16 bits (``Kernel.short_sums``), which leaves its codes some two bits less.
    """
    b, dim = queries.shape
    quads = -(-dim // 4)
    left = np.zeros((b, quads * 4))
    left[:, :dim] = queries.numpy()
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
        by_residual=(norms * (1 + 1e-6) + FLOOR).astype(np.float32),
        by_norm=((np.linalg.norm(left, axis=1) + norms * 2.0**-20) * (1 + 1e-6) + FLOOR).astype(np.float32),
        planes=planes,
    )


def plane(values: np.ndarray, short_sums: bool) -> tuple[np.ndarray, np.ndarray]:
    """float64 values [b,d] as codes int8 and the unit of each row, float32 [b]: as fine as the sums that the kernel forms allow."""
    largest = np.abs(values).max(axis=1)
    unit = largest / 126.999  # rounded to float32 it may be a little less than it should
    if short_sums:  # rounding adds at most a half to each of the eight codes of a sum
        unit = np.maximum(unit, _largest_sums(values) / (LANE_SUM - 4.001))
    unit = unit.astype(np.float32)
    unit[largest < SMALLEST] = 1
    return np.rint(values / unit[:, None]).astype(np.int8), unit


def _largest_sums(values: np.ndarray) -> np.ndarray:
    """The largest sum of values [b,quads*4] of one sign that the AVX2 kernel adds up in 16 bits: [b]."""
    b, padded = values.shape
    blocks = -(-padded // 16)
    lanes = np.zeros((b, blocks * 16))
    lanes[:, :padded] = values
    lanes = lanes.reshape(b, blocks, 4, 2, 2)  # blocks of four quads, of which the halves are added up
    sums: np.ndarray = np.stack([np.maximum(lanes, 0).sum(axis=(2, 4)), np.maximum(-lanes, 0).sum(axis=(2, 4))]).max(axis=(0, 2, 3))
    return sums
