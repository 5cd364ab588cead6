"""From the bounds of a scan to the rows that must be scored exactly, for up to some dozens of queries at once."""

from collections.abc import Iterator

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
        self._touched = torch.from_numpy(hidden.query * groups + hidden.row // GROUP).to(self._upper.device)
        self._seen: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # queries, groups and bounds of pairs looked at already

    def promising_rows(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """For each query at most k + 64 rows that are not hidden, probably good ones: pairs int64 [c], int64 [c], ordered by query.

        More than k, for one group may hold a row of which its bounds know little. Groups with excluded rows are passed over: their bounds
        may come from those.
        """
        best = self._promising_groups(min(k + 1, self._upper.shape[1]))
        b, count = best.indices.shape
        query, group = np.repeat(np.arange(b), count), best.indices.cpu().numpy().reshape(-1)
        bounds = self._scan.pairs(self._prepared, query, group)
        passed_over = np.isneginf(best.values.cpu().numpy().reshape(-1))
        bounds[passed_over] = -np.inf
        self._mark_seen(query[~passed_over], group[~passed_over], bounds[~passed_over])
        rows = torch.from_numpy(bounds).view(b, -1).topk(min(k + GROUP, count * GROUP), dim=1, sorted=False)
        at, place = (found.numpy() for found in (rows.values > -torch.inf).nonzero(as_tuple=True))
        inside = rows.indices.numpy()[at, place]
        return at, group[at * count + inside // GROUP] * GROUP + inside % GROUP

    def _promising_groups(self, count: int) -> torch.return_types.topk:
        flat = self._upper.view(-1)
        passed_over = flat[self._touched]
        flat[self._touched] = -torch.inf
        best = self._upper.topk(count, dim=1, sorted=False)
        flat[self._touched] = passed_over
        return best

    def _mark_seen(self, query: np.ndarray, group: np.ndarray, bounds: np.ndarray) -> None:
        self._seen.append((query, group, bounds))
        at = torch.from_numpy(query * self._upper.shape[1] + group)
        self._upper.view(-1)[at.to(self._upper.device)] = -torch.inf

    def rows_above(self, floor: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All rows, hidden ones aside, whose bound reaches the floor, float32 [b].

        Returns:
            The pairs int64 [c], int64 [c], and whether a query was given up: bool [b]. Pairs of such a query are of no use.
        """
        b, groups = self._upper.shape
        query, group = (found.cpu().numpy() for found in self._reaching(floor))
        given_up = np.isneginf(floor) | (np.bincount(query, minlength=b) > LISTED + 4 * k + groups // 8)
        kept = ~given_up[query]
        found, lengths = [], np.zeros(b, np.int64)
        for part_query, part_group, bounds in self._bounds_of(query[kept], group[kept]):
            pair, place = np.nonzero(bounds >= floor[part_query, None])
            rows_of = part_query[pair]
            lengths += np.bincount(rows_of, minlength=b)
            given_up |= lengths > LISTED + 4 * k + self._n // 64
            pair, place, rows_of = (values[~given_up[rows_of]] for values in (pair, place, rows_of))
            found.append(rows_of * self._n + part_group[pair] * GROUP + place)
        pairs = np.concatenate(found)
        pairs = pairs[~_among(pairs, self._hidden)]
        return pairs // self._n, pairs % self._n, given_up

    def _bounds_of(self, query: np.ndarray, group: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Pairs seen before and these, some at a time, with the bounds of their rows."""
        yield from self._seen
        for start in range(0, len(query), PAIRS):
            part = slice(start, start + PAIRS)
            yield query[part], group[part], self._scan.pairs(self._prepared, query[part], group[part])

    def _reaching(self, floor: np.ndarray) -> tuple[torch.Tensor, ...]:
        """The (query, group) pairs whose bound reaches the floor."""
        at_least = torch.from_numpy(floor).to(self._upper.device)[:, None]
        return (self._upper >= at_least).nonzero(as_tuple=True)


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which of ``values`` are in ``ordered``: bool like values."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
