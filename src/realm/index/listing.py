"""From the bounds of a scan to the rows that must be scored exactly, for up to some dozens of queries at once."""

import numpy as np
import torch

from realm.index.base import Hidden
from realm.index.group_scan import GroupScan
from realm.index.native.kernel import GROUP

# A query is given up when more groups than LISTED + 4 k + one in 8 of all, or more rows than LISTED + 4 k + one in 64 of all, reach the
# floor: a scan of everything costs less by then.
LISTED = 4096
PAIRS = 1 << 16  # groups looked at row by row at a time: 16 MiB of bounds


class Listing:
    """One scan for queries float32 [b,d] over n rows, and what may be read off it."""

    def __init__(self, scan: GroupScan, queries: torch.Tensor, hidden: Hidden, n: int):
        self._scan = scan
        self._n = n
        self._prepared = scan.prepare(queries)
        self._upper = scan.groups(self._prepared)  # [b,g]
        self._hidden = np.sort(hidden.query * n + hidden.row)  # excluded pairs as one number each
        groups = self._upper.shape[1]
        self._touched = torch.from_numpy(np.unique(hidden.query * groups + hidden.row // GROUP)).to(self._upper.device)

    def promising_rows(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """For each query at most k rows that are not hidden, probably good ones: pairs int64 [c], int64 [c], ordered by query.

        Groups with excluded rows are passed over: their bounds may come from those.
        """
        best = self._promising_groups(min(k, self._upper.shape[1]))
        b, count = best.indices.shape
        query = np.repeat(np.arange(b), count)
        group = best.indices.cpu().numpy().reshape(-1)
        bounds = self._scan.pairs(self._prepared, query, group)
        bounds[np.isneginf(best.values.cpu().numpy().reshape(-1))] = -np.inf
        rows = torch.from_numpy(bounds).view(b, -1).topk(min(k, count * GROUP), dim=1)
        at, place = torch.isfinite(rows.values).nonzero(as_tuple=True)
        inside = rows.indices[at, place].numpy()
        return at.numpy(), group[at.numpy() * count + inside // GROUP] * GROUP + inside % GROUP

    def _promising_groups(self, count: int) -> torch.return_types.topk:
        flat = self._upper.view(-1)
        passed_over = flat[self._touched]
        flat[self._touched] = -torch.inf
        best = self._upper.topk(count, dim=1, sorted=False)
        flat[self._touched] = passed_over
        return best

    def rows_above(self, floor: np.ndarray, k: int, known: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All rows, hidden ones aside, whose bound reaches the floor.

        Args:
            floor: float32 [b].
            known: pairs that are not wanted again, each as query * n + row.

        Returns:
            The pairs int64 [c], int64 [c], by query, and whether a query was given up: bool [b]. Its list is of no use.
        """
        b, groups = self._upper.shape
        query, group = (found.cpu().numpy() for found in self._reaching(floor))
        given_up = np.bincount(query, minlength=b) > LISTED + 4 * k + groups // 8
        given_up |= np.isneginf(floor)
        kept = ~given_up[query]
        query, group = query[kept], group[kept]
        found, lengths = [np.zeros(0, np.int64)], np.zeros(b, np.int64)
        for start in range(0, len(query), PAIRS):
            part = slice(start, start + PAIRS)
            bounds = self._scan.pairs(self._prepared, query[part], group[part])
            pair, place = np.nonzero(bounds >= floor[query[part], None])
            lengths += np.bincount(query[part][pair], minlength=b)
            given_up |= lengths > LISTED + 4 * k + self._n // 64
            pair, place = pair[~given_up[query[part][pair]]], place[~given_up[query[part][pair]]]
            found.append(query[part][pair] * self._n + group[part][pair] * GROUP + place)
        pairs = np.concatenate(found)
        pairs = pairs[~_among(pairs, self._hidden) & ~_among(pairs, np.sort(known))]
        return pairs // self._n, pairs % self._n, given_up

    def _reaching(self, floor: np.ndarray) -> tuple[torch.Tensor, ...]:
        """The (query, group) pairs whose bound reaches the floor."""
        at_least = torch.from_numpy(floor).to(self._upper.device)[:, None]
        return (self._upper >= at_least).nonzero(as_tuple=True)


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which of ``values`` are in ``ordered``: bool like values."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
