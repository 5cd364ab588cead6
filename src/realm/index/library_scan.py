"""The scan where no native kernel is: matrix products of PyTorch, and group maxima instead of a top k of whole rows.

bfloat16 copies where the processor multiplies them fast, otherwise the float32 vectors themselves.
"""

from dataclasses import dataclass

import numpy as np
import torch

from realm.index.checks import checked_norms
from realm.index.listing import Excluded, Listed
from realm.index.native.kernel import GROUP
from realm.index.scan import INPUT_ROUNDING, NORM_FLOOR

BLOCK_ENTRIES = 1 << 18  # scores formed at a time: 1 MiB, which stays in the cache until the maxima are taken
PAIRS = 1 << 16  # groups looked at row by row at a time: 16 MiB of bounds
GATHER_ENTRIES = 1 << 23  # components gathered at a time for single rows: 32 MiB


@dataclass(frozen=True)
class PreparedQueries:
    """values: [b,d] in the scan's type. by_norm, by_residual: float32 [b], the factors of the groups' norms and residuals."""

    values: torch.Tensor
    by_norm: torch.Tensor
    by_residual: torch.Tensor


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a matrix product of bfloat16 is faster than one of float32."""
    return device.type == "cuda" or (torch.cpu._is_avx512_bf16_supported() if device.type == "cpu" else False)


class LibraryScan:
    """Scan by PyTorch, on the device of the vectors.

    Args:
        vectors: float32 [n,d]; used as they are in float32, copied to bfloat16.
        bias: float32 [n], finite, added to the scores; None: zero.

    Raises:
        SnapshotError: a component that is not finite.
    """

    def __init__(self, vectors: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype):
        self.name = f"torch {str(dtype).removeprefix('torch.')}"
        self._vectors = vectors
        self._bias = bias
        self._offset = self._bias  # added to scores, -inf for hidden rows; None: nothing to add
        self._norm = _group_max(checked_norms(vectors)) * (1 + 1e-6) + NORM_FLOOR
        self._slack = torch.zeros_like(self._norm) if bias is None else _group_max(bias.abs().to(self._norm)) * 2.0**-20
        self._values = vectors if dtype == torch.float32 else vectors.to(dtype)
        # Rounding to bfloat16 loses 2^-9 of a component at most, less than 2^-40 where the component is tiny.
        self._residual = (self._norm * 2.0**-8 if dtype == torch.bfloat16 else torch.zeros_like(self._norm)) + NORM_FLOOR

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + (0 if self._offset is None else self._offset.nbytes) + 3 * self._norm.nbytes

    @property
    def largest_norm(self) -> float:
        return float(self._norm.max()) * 1.01 if len(self._norm) else 0.0

    def hidden(self, removed: torch.Tensor | None) -> "LibraryScan":
        other = LibraryScan.__new__(LibraryScan)
        other.__dict__.update(self.__dict__)
        if removed is None:
            other._offset = self._bias
        else:
            shown = torch.zeros(len(self._vectors), device=self._vectors.device) if self._bias is None else self._bias
            other._offset = shown.masked_fill(removed, -torch.inf)
        return other

    def prepare(self, queries: torch.Tensor) -> PreparedQueries:
        norms = torch.linalg.vector_norm(queries.double(), dim=1).float() * (1 + 1e-6) + NORM_FLOOR
        values = queries.to(self._values.dtype)
        d = queries.shape[1]
        # The product's own rounding, as in realm.index.scan; bfloat16 rounds the queries and the results, too.
        relative = 2 * (d + 8) * 2.0**-24 + 4 * INPUT_ROUNDING[torch.get_float32_matmul_precision()]
        if values.dtype == torch.bfloat16:
            relative += 2.0**-8 + 2.0**-7
        return PreparedQueries(values, norms * relative, norms)

    def stride(self) -> int:
        return 1

    def sample(self, prepared: PreparedQueries) -> torch.Tensor:
        """Of all groups: a second pass over some of them would cost more than their bounds."""
        b, n = len(prepared.values), len(self._vectors)
        best = torch.empty(len(self._norm), b, device=self._vectors.device)
        step = max(1, BLOCK_ENTRIES // (b * GROUP)) * GROUP
        for start in range(0, n, step):
            stop = min(start + step, n)
            scores = self._values[start:stop] @ prepared.values.T  # this way around, product and maxima take two thirds of the time
            if self._offset is not None:
                scores = scores.float().add_(self._offset[start:stop, None])
            whole = (stop - start) // GROUP * GROUP
            first = start // GROUP
            if whole:
                best[first : first + whole // GROUP] = scores[:whole].unflatten(0, (-1, GROUP)).amax(1)
            if whole < stop - start:
                best[first + whole // GROUP] = scores[whole:].amax(0)
        return self._raise(best.T.contiguous(), prepared)

    def _raise(self, scores: torch.Tensor, prepared: PreparedQueries) -> torch.Tensor:
        """Best scores of all groups [b,g] made upper bounds, in place."""
        scores.addr_(prepared.by_norm, self._norm.float())
        scores.addr_(prepared.by_residual, self._residual.float())
        return scores.add_(self._slack.float())

    def pairs(self, prepared: PreparedQueries, query: np.ndarray, group: np.ndarray) -> np.ndarray:
        upper = np.empty((len(query), GROUP), np.float32)
        device = self._vectors.device
        step = max(1, GATHER_ENTRIES // (GROUP * self._vectors.shape[1]))
        for start in range(0, len(query), step):
            at = torch.from_numpy(query[start : start + step]).to(device)
            groups = torch.from_numpy(group[start : start + step]).to(device)
            rows = groups[:, None] * GROUP + torch.arange(GROUP, device=device)
            beyond = rows >= len(self._vectors)
            rows = rows.clamp_max(len(self._vectors) - 1)
            scores = torch.bmm(self._gathered(groups), prepared.values[at][:, :, None])[:, :, 0].float()
            if self._offset is not None:
                scores += self._offset[rows]
            scores += self._error(prepared, at, groups)[:, None]
            upper[start : start + step] = scores.masked_fill_(beyond, -torch.inf).cpu().numpy()
        return upper

    def _gathered(self, groups: torch.Tensor) -> torch.Tensor:
        """The rows of groups int64 [c] in the scan's type, [c,64,d]; those beyond the last row are of no use."""
        whole = len(self._values) // GROUP
        if whole == len(self._norm):
            return self._values.unflatten(0, (whole, GROUP))[groups]
        first = self._values[: whole * GROUP].view(whole, GROUP, self._values.shape[1])
        rows = torch.zeros(len(groups), GROUP, self._values.shape[1], dtype=self._values.dtype, device=self._values.device)
        full, last = groups < whole, self._values[whole * GROUP :]
        rows[full] = first[groups[full]]
        rows[~full, : len(last)] = last
        return rows

    def thresholds(self, prepared: PreparedQueries, bounds: torch.Tensor, stride: int, rank: int, sure: bool) -> np.ndarray:
        share = 4.0 if sure else 2.01
        error = torch.outer(prepared.by_norm, self._norm[::stride].float()).addr_(prepared.by_residual, self._residual[::stride].float())
        typical = (bounds - share * error.add_(self._slack[::stride].float())).nan_to_num_(-torch.inf, torch.inf, -torch.inf)
        reach: np.ndarray = typical.topk(rank, dim=1, sorted=False).values.amin(1).cpu().numpy()
        return reach

    def sweep(self, prepared: PreparedQueries, sample: torch.Tensor, reach: np.ndarray, excluded: Excluded, limit: int) -> Listed:
        return self.rows_above(prepared, sample, reach, excluded, limit)

    def groups(self, prepared: PreparedQueries, sample: torch.Tensor) -> torch.Tensor:
        return sample

    def rows_above(self, prepared: PreparedQueries, upper: torch.Tensor, reach: np.ndarray, excluded: Excluded, limit: int) -> Listed:
        """See GroupScan.rows_above. A query is overfull, too, when so many groups reach it that the scan has saved nothing."""
        b, n, device = len(reach), len(self._vectors), self._vectors.device
        found = (upper >= torch.from_numpy(reach).to(upper.device)[:, None]).nonzero(as_tuple=True)
        query, group = (part.cpu().numpy() for part in found)
        overfull = np.bincount(query, minlength=b) > limit + upper.shape[1] // 8
        query, group = query[~overfull[query]], group[~overfull[query]]
        pairs, bounds = [np.zeros(0, np.int64)], [np.zeros((0, 2), np.float32)]
        for start in range(0, len(query), PAIRS):
            some, groups = query[start : start + PAIRS], group[start : start + PAIRS]
            above = self.pairs(prepared, some, groups)
            at, place = (above >= reach[some][:, None]).nonzero()
            pairs.append(some[at] * n + groups[at] * GROUP + place)
            with np.errstate(over="ignore", invalid="ignore"):  # queries that could overflow are scanned exactly
                error = self._error(prepared, torch.from_numpy(some).to(device), torch.from_numpy(groups).to(device)).cpu().numpy()
                lower = above[at, place] - error[at] * 2.00001
            bounds.append(np.stack([above[at, place], lower], axis=1))
        numbers, both = np.concatenate(pairs), np.concatenate(bounds)
        kept = ~np.isin(numbers, excluded.query() * n + excluded.row)
        query, row = np.divmod(numbers[kept], max(1, n))
        overfull |= np.bincount(query, minlength=b) > limit
        return Listed(query, row, both[kept, 0], both[kept, 1], overfull).only(~overfull[query])

    def _error(self, prepared: PreparedQueries, query: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
        """How far bounds of pairs of query and group may lie above scores: float32 [c]."""
        return (
            prepared.by_norm[query] * self._norm[group] + prepared.by_residual[query] * self._residual[group] + self._slack[group]
        ).float()


def _group_max(values: torch.Tensor) -> torch.Tensor:
    """The largest of each group of non-negative values [n]: [ceil(n / 64)]."""
    return torch.nn.functional.pad(values, (0, -len(values) % GROUP)).view(-1, GROUP).amax(1)
