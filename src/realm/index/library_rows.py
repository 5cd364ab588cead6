"""Rows and queries as the matrix products of PyTorch take them: 8-bit codes, bfloat16, or the float32 rows themselves.

A group of 64 rows shares the step of its codes, so that the largest of their products is found among whole numbers.
"""

from dataclasses import dataclass

import numpy as np
import torch

from realm.index.checks import CHECK_ENTRIES, checked_norms
from realm.index.native.kernel import GROUP
from realm.index.quantised import FLOOR, SMALLEST, plane
from realm.index.scan import INPUT_ROUNDING


@dataclass(frozen=True)
class StoredRows:
    """n rows in ceil(n / 64) groups.

    values: [n,d], int8, bfloat16 or float32. unit: float32 [g], the step of a group's codes; 1 where values are no codes. norm, residual:
    float32 [g], at least the length of every stored row, and the distance of every row from the stored one.
    """

    values: torch.Tensor
    unit: torch.Tensor
    norm: torch.Tensor
    residual: torch.Tensor


@dataclass(frozen=True)
class PreparedQueries:
    """values: [b,d] in the type of the rows. unit: float32 [b], the step of each query's codes, or 1.

    by_norm, by_residual: float32 [b], the factors of the groups' norms and residuals in the bound.
    """

    values: torch.Tensor
    unit: torch.Tensor
    by_norm: torch.Tensor
    by_residual: torch.Tensor


def stored(vectors: torch.Tensor, dtype: torch.dtype) -> StoredRows:
    """float32 vectors [n,d] as a type. Raises SnapshotError: a component is not finite."""
    norm = group_max(checked_norms(vectors)) * (1 + 1e-6) + FLOOR
    if dtype == torch.int8:
        return _coded(vectors, norm)
    # Rounding to bfloat16 loses 2^-9 of a component at most, less than 2^-40 where the component is tiny.
    residual = norm * (2.0**-8 if dtype == torch.bfloat16 else 0.0) + FLOOR
    return StoredRows(vectors.to(dtype), torch.ones_like(norm).float(), norm.float(), residual.float())


def _coded(vectors: torch.Tensor, norm: torch.Tensor) -> StoredRows:
    """As 8-bit codes."""
    codes, unit, residual = torch.empty(vectors.shape, dtype=torch.int8), torch.ones(len(norm)), torch.zeros_like(norm)
    step = max(1, CHECK_ENTRIES // (vectors.shape[1] * GROUP))
    for first in range(0, len(norm), step):
        part = slice(first, first + step)
        rows = vectors[first * GROUP : (first + step) * GROUP]
        largest = group_max(rows.abs().amax(1))
        unit[part] = torch.where(largest > SMALLEST, largest / 127, 1.0)
        each = unit[part].repeat_interleave(GROUP)[: len(rows), None]
        rounded = (rows / each).round_()
        codes[first * GROUP : (first + step) * GROUP] = rounded
        residual[part] = group_max(torch.linalg.vector_norm(rows - rounded.mul_(each), dim=1, dtype=torch.float64))
    residual = residual * (1 + 1e-6) + norm * 2.0**-22 + FLOOR  # differences in float32 are off by less than 2^-22 of a component
    return StoredRows(codes, unit, (norm + residual).float(), residual.float())


def prepared(queries: torch.Tensor, dtype: torch.dtype) -> PreparedQueries:
    """float32 queries [b,d] as the type of the rows."""
    norms = torch.linalg.vector_norm(queries.double(), dim=1) * (1 + 1e-6) + FLOOR
    if dtype == torch.int8:
        exact = queries.double().numpy()
        codes, unit = plane(exact, short_sums=False)
        lost = torch.from_numpy(np.linalg.norm(exact - codes * unit[:, None].astype(np.float64), axis=1))
        by_norm = (lost + norms * 2.0**-20) * (1 + 1e-6) + FLOOR
        return PreparedQueries(torch.from_numpy(codes), torch.from_numpy(unit), by_norm.float(), norms.float())
    # The product's own rounding, as in realm.index.scan; bfloat16 rounds the queries and the results, too.
    relative = 2 * (queries.shape[1] + 8) * 2.0**-24 + 4 * INPUT_ROUNDING[torch.get_float32_matmul_precision()]
    if dtype == torch.bfloat16:
        relative += 2.0**-8 + 2.0**-7
    return PreparedQueries(queries.to(dtype), torch.ones_like(norms).float(), norms.float() * relative, norms.float())


def room_for(queries: PreparedQueries, rows: int) -> torch.Tensor:
    """Where products with up to so many rows are put, again and again: new memory for each block costs as much as the product."""
    dtype = torch.int32 if queries.values.dtype == torch.int8 else queries.values.dtype
    return torch.empty(rows, len(queries.values), dtype=dtype, device=queries.values.device)


def products(rows: torch.Tensor, queries: PreparedQueries, room: torch.Tensor) -> torch.Tensor:
    """[r,b] of stored rows [r,d], in ``room``; of codes int32, and exact."""
    wanted = queries.values.T  # rows x queries: product and maxima take two thirds of the time of queries x rows
    found = room[: len(rows)]
    return torch._int_mm(rows, wanted, out=found) if rows.dtype == torch.int8 else torch.mm(rows, wanted, out=found)


def in_floats(found: torch.Tensor, query_unit: torch.Tensor, row_unit: torch.Tensor) -> torch.Tensor:
    """Products as float32; int32 ones are counts of steps of these sizes, which broadcast to them."""
    return found.float() if found.is_floating_point() else found.float().mul_(query_unit).mul_(row_unit)


def group_max(values: torch.Tensor) -> torch.Tensor:
    """The largest of each group of rows [n,...], -inf or the least whole number where none is: [ceil(n / 64),...]."""
    return in_groups(values).amax(1)


def in_groups(values: torch.Tensor) -> torch.Tensor:
    """Rows [n,...] as groups [ceil(n / 64),64,...], the last filled up with the least number."""
    missing = -len(values) % GROUP
    if missing:
        least = -torch.inf if values.is_floating_point() else torch.iinfo(values.dtype).min
        values = torch.cat([values, values.new_full((missing, *values.shape[1:]), least)])
    return values.unflatten(0, (-1, GROUP))
