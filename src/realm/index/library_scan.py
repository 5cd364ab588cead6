"""The scan where no native kernel is: matrix products of PyTorch, and group maxima instead of a top k of whole rows."""

import numpy as np
import torch

from realm.index import group_scan
from realm.index.library_rows import PreparedQueries, group_max, in_floats, in_groups, prepared, products, room_for, stored
from realm.index.listing import Excluded, Listed
from realm.index.native.kernel import GROUP

BLOCK_ENTRIES = 1 << 20  # scores formed at a time: 4 MiB, which stays in the cache until the maxima are taken
MORE = 4  # times as many rows as the finer bounds of the kernel let through may be listed
CUDA_ENTRIES = 1 << 25  # on a GPU, where looking at a block is a wait


def fastest_type(device: torch.device) -> torch.dtype:
    """What rows are best stored as there: the type of the fastest matrix product."""
    if device.type == "cpu":  # without VNNI, sums of 8-bit products saturate
        return torch.int8 if torch.cpu._is_vnni_supported() and torch.backends.mkldnn.is_available() else torch.float32
    return torch.bfloat16 if device.type == "cuda" else torch.float32


class LibraryScan:
    """Scan by PyTorch, on the device of the vectors.

    Args:
        vectors: float32 [n,d]; used as they are in float32, copied to bfloat16 or, on a CPU, to 8-bit codes.
        bias: float32 [n], finite, added to the scores; None: zero.

    Raises:
        SnapshotError: a component that is not finite.
    """

    def __init__(self, vectors: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype):
        self.name = f"torch {str(dtype).removeprefix('torch.')}"
        self._rows = stored(vectors, dtype)
        self._bias = bias
        self._offset = bias  # added to scores, -inf for hidden rows; None: nothing to add
        norm = self._rows.norm
        self._slack = torch.zeros_like(norm) if bias is None else group_max(bias.abs()) * 2.0**-20

    @property
    def nbytes(self) -> int:
        return self._rows.values.nbytes + (0 if self._offset is None else self._offset.nbytes) + 4 * self._slack.nbytes

    @property
    def largest_norm(self) -> float:
        return float(self._rows.norm.max()) * 1.01 if len(self._slack) else 0.0

    def hidden(self, removed: torch.Tensor | None) -> "LibraryScan":
        other = LibraryScan.__new__(LibraryScan)
        other.__dict__.update(self.__dict__)
        if removed is None:
            other._offset = self._bias
        else:
            shown = torch.zeros(len(removed), device=self._slack.device) if self._bias is None else self._bias
            other._offset = shown.masked_fill(removed, -torch.inf)
        return other

    def prepare(self, queries: torch.Tensor) -> PreparedQueries:
        return prepared(queries, self._rows.values.dtype)

    def stride(self) -> int:
        return max(1, min(group_scan.STRIDE, len(self._slack) // group_scan.LEAST_SAMPLE))

    def sample(self, prepared: PreparedQueries) -> torch.Tensor:
        return self._bounds(prepared, self.stride())

    def groups(self, prepared: PreparedQueries, sample: torch.Tensor) -> torch.Tensor:
        return sample if self.stride() == 1 else self._bounds(prepared, 1)

    def thresholds(self, prepared: PreparedQueries, bounds: torch.Tensor, stride: int, rank: int, sure: bool) -> np.ndarray:
        share = 4.0 if sure else 2.01
        typical = bounds - share * self._errors(prepared, slice(None, None, stride)).T
        typical.nan_to_num_(-torch.inf, torch.inf, -torch.inf)
        reach: np.ndarray = typical.topk(rank, dim=1, sorted=False).values.amin(1).cpu().numpy()
        return reach

    def rows_above(self, prepared: PreparedQueries, upper: torch.Tensor, reach: np.ndarray, excluded: Excluded, limit: int) -> Listed:
        """See GroupScan.rows_above: by another scan, since scores are not kept."""
        return self._listed(prepared, reach, excluded, limit)

    def sweep(self, prepared: PreparedQueries, sample: torch.Tensor, reach: np.ndarray, excluded: Excluded, limit: int) -> Listed:
        return self._listed(prepared, reach, excluded, MORE * limit)

    def _listed(self, prepared: PreparedQueries, reach: np.ndarray, excluded: Excluded, limit: int) -> Listed:
        """The rows that reach. A query is overfull, too, when so many groups reach it that the scan has saved nothing."""
        b, n, device = len(reach), len(self._rows.values), self._slack.device
        asked, overfull = torch.from_numpy(reach).to(device), np.zeros(b, np.bool_)
        rows, groups = np.zeros(b, np.int64), np.zeros(b, np.int64)
        most_rows, most_groups = limit + np.diff(excluded.start), limit + len(self._slack) // 8
        pairs, bounds = [np.zeros(0, np.int64)], [np.zeros((0, 2), np.float32)]
        parts, room = self._parts(len(self._slack), prepared)
        for part in parts:
            reached, pair, both = self._reaching(prepared, part, asked, room)
            groups += np.bincount(reached, minlength=b)
            rows += np.bincount(pair // n, minlength=b)
            pairs.append(pair)
            bounds.append(both)
            full = (rows > most_rows) | (groups > most_groups)
            if (full > overfull).any():
                overfull = full
                asked = torch.from_numpy(np.where(overfull, np.float32(np.nan), reach)).to(device)  # which nothing reaches
        numbers, both = np.concatenate(pairs), np.concatenate(bounds)
        kept = np.flatnonzero(~np.isin(numbers, excluded.query() * n + excluded.row))
        kept = kept[np.argsort(numbers[kept])]
        query, row = np.divmod(numbers[kept], max(1, n))
        overfull = overfull | (np.bincount(query, minlength=b) > limit)
        return Listed(query, row, both[kept, 0], both[kept, 1], overfull).only(~overfull[query])

    def _parts(self, groups: int, prepared: PreparedQueries) -> tuple[list[slice], torch.Tensor]:
        """Of so many groups, those whose scores are formed together, and room for the scores of the longest part."""
        step = max(1, (CUDA_ENTRIES if self._slack.is_cuda else BLOCK_ENTRIES) // (len(prepared.unit) * GROUP))
        parts = [slice(first, min(first + step, groups)) for first in range(0, groups, step)]
        return parts, room_for(prepared, min(step, groups) * GROUP)

    def _reaching(
        self, prepared: PreparedQueries, part: slice, asked: torch.Tensor, room: torch.Tensor
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What of a part's groups reaches ``asked``, float32 [b].

        Returns:
            The query of every group that does, int64 [p]; rows that do, as query * n + row, int64 [c], with their upper and lower bounds,
            float32 [c,2].
        """
        n = len(self._rows.values)
        rows = slice(part.start * GROUP, min(part.stop * GROUP, n))
        scores = in_groups(self._scores(prepared, rows, self._rows.unit[part], room))
        error, unit = self._errors(prepared, part), self._rows.unit[part, None]
        group, query = (in_floats(scores.amax(1), prepared.unit, unit).add_(error) >= asked).nonzero(as_tuple=True)
        error = error[group, query][:, None]
        upper = in_floats(scores[group, :, query], prepared.unit[query][:, None], unit[group]).add_(error)
        at, place = (upper >= asked[query][:, None]).nonzero(as_tuple=True)
        row = group[at].add_(part.start).mul_(GROUP).add_(place)
        above = upper[at, place]
        both, pair = torch.stack([above, above - error[at, 0] * 2.00001], 1), query[at] * n + row
        if rows.stop < part.stop * GROUP:  # places of the last group that no row has
            there = row < n
            both, pair = both[there], pair[there]
        return query.cpu().numpy(), pair.cpu().numpy(), both.cpu().numpy()

    def _bounds(self, prepared: PreparedQueries, stride: int) -> torch.Tensor:
        """Bounds of every stride-th group: float32 [b,s]."""
        groups = torch.arange(0, len(self._slack), stride, device=self._slack.device)
        best = torch.empty(len(groups), len(prepared.unit), device=self._slack.device)
        inside = torch.arange(GROUP, device=self._slack.device)
        parts, room = self._parts(len(groups), prepared)
        for part in parts:
            some = groups[part]
            rows: slice | torch.Tensor = slice(part.start * GROUP, part.stop * GROUP)
            if stride > 1:
                rows = (some[:, None] * GROUP + inside).flatten().clamp_max_(len(self._rows.values) - 1)  # the last one again if none is
            found = group_max(self._scores(prepared, rows, self._rows.unit[some], room))
            best[part] = in_floats(found, prepared.unit, self._rows.unit[some, None])
        return best.add_(self._errors(prepared, slice(None, None, stride))).T.contiguous()

    def _scores(self, prepared: PreparedQueries, rows: slice | torch.Tensor, unit: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
        """Of rows of whole groups with these units, but for the end: [r,b], int32 where they are counts of steps; in ``room``, or new."""
        found = products(self._rows.values[rows], prepared, room)
        if self._offset is None:
            return found
        each = unit.repeat_interleave(GROUP)[: len(found), None]
        return in_floats(found, prepared.unit, each).add_(self._offset[rows, None])

    def _errors(self, prepared: PreparedQueries, groups: slice) -> torch.Tensor:
        """How far bounds may lie above scores: float32 [g,b]."""
        norms = torch.outer(self._rows.norm[groups], prepared.by_norm)
        return norms.addr_(self._rows.residual[groups], prepared.by_residual).add_(self._slack[groups, None])
