"""From the bounds of a scan to the rows that must be scored exactly, for up to some dozens of queries at once."""

from collections.abc import Iterator
from itertools import pairwise

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
        self._listed = np.zeros(len(queries), np.int64)  # rows returned so far, of each query

    def promising_rows(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Probably good rows of each query, none of them hidden: pairs int64 [c], int64 [c].

        Those whose bound reaches that of the best k + 1 groups: more than k, for one group may hold a row of which its bounds know little.
        Groups with excluded rows are passed over: their bounds may come from those.
        """
        query, group, floor = self._promising_groups(k + 1)
        found = [np.zeros(0, np.int64)]
        for start in range(0, len(query), PAIRS):
            part = query[start : start + PAIRS], group[start : start + PAIRS]
            bounds = self._scan.pairs(self._prepared, *part)
            self._seen.append((*part, bounds))
            at = _reaching(bounds, floor[part[0]])
            at = at[_best_of_each(part[0][at // GROUP], bounds.reshape(-1)[at], 2 * (k + GROUP))]
            bounds.reshape(-1)[at] = -np.inf  # rows are listed once
            found.append(self._numbers(part, at))
        pairs = np.concatenate(found)
        self._listed += np.bincount(pairs // self._n, minlength=len(self._listed))
        return pairs // self._n, pairs % self._n

    def _promising_groups(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs of the best groups, not to be looked at again; and what rows must reach: float32 [b], finite, so that hidden rows do not.

        That is the least bound of the groups. A query with fewer than ``count`` groups takes any row.
        """
        flat = self._upper.view(-1)
        passed_over = flat[self._touched]
        flat[self._touched] = -torch.inf
        best = self._upper.topk(min(count, self._upper.shape[1]), dim=1, sorted=False)
        least = torch.finfo(torch.float32).min
        enough = best.values.shape[1] == count
        floor = best.values.amin(1).clamp_min(least) if enough else torch.full_like(best.values[:, 0], least)
        query, place = (best.values > -torch.inf).nonzero(as_tuple=True)
        group = best.indices[query, place]
        flat[query * self._upper.shape[1] + group] = -torch.inf
        flat[self._touched] = passed_over
        return *_by_group(query.cpu().numpy(), group.cpu().numpy(), len(floor)), floor.cpu().numpy()

    def rows_above(self, floor: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The other rows, hidden ones aside, whose bound reaches the floor, float32 [b].

        Returns:
            The pairs int64 [c], int64 [c], and whether a query was given up: bool [b]. Pairs of such a query are of no use.
        """
        b, groups = self._upper.shape
        at_least = torch.from_numpy(floor).to(self._upper.device)[:, None]
        query, group = (found.cpu().numpy() for found in (self._upper >= at_least).nonzero(as_tuple=True))
        given_up = np.isneginf(floor) | (np.bincount(query, minlength=b) > LISTED + 4 * k + groups // 8)
        kept = ~given_up[query]
        found = [np.zeros(0, np.int64)]
        for part_query, part_group, bounds in self._bounds_of(*_by_group(query[kept], group[kept], b)):
            at = _reaching(bounds, floor[part_query])
            queries = part_query[at // GROUP]
            self._listed += np.bincount(queries, minlength=b)
            given_up |= self._listed > LISTED + 4 * k + self._n // 64
            found.append(self._numbers((part_query, part_group), at[~given_up[queries]]))
        pairs = np.concatenate(found)
        if len(self._hidden):
            pairs = np.sort(pairs)  # looking them up in order is several times as fast
            pairs = pairs[~_among(pairs, self._hidden)]
        return pairs // self._n, pairs % self._n, given_up

    def _bounds_of(self, query: np.ndarray, group: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Pairs seen before and these, some at a time, with the bounds of their rows."""
        yield from self._seen
        for start in range(0, len(query), PAIRS):
            part = slice(start, start + PAIRS)
            yield query[part], group[part], self._scan.pairs(self._prepared, query[part], group[part])

    def _numbers(self, pairs: tuple[np.ndarray, np.ndarray], at: np.ndarray) -> np.ndarray:
        """Rows ``at`` [c,64] flat, of c pairs of query and group, as one number for query and row each."""
        query, group = (values[at // GROUP] for values in pairs)
        return query * self._n + group * GROUP + at % GROUP


def _reaching(bounds: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Where bounds [c,64] reach their floor [c]: flat int64."""
    return np.flatnonzero(bounds >= floor[:, None])


def _by_group(query: np.ndarray, group: np.ndarray, b: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs ordered by group: queries that look at the same one find it in the cache, and the memory is gone through in one direction."""
    pairs = np.sort(group * b + query)
    return pairs % b, pairs // b


def _best_of_each(query: np.ndarray, bounds: np.ndarray, limit: int) -> np.ndarray | slice:
    """Places [<=c] of at most ``limit`` entries of each query, those of the largest bounds; query and bounds are [c]."""
    ends = np.bincount(query).cumsum()
    if not len(query) or np.diff(ends, prepend=0).max() <= limit:
        return slice(None)
    order = np.argsort(query, kind="stable")
    chosen = []
    for start, stop in pairwise([0, *ends]):
        part = order[start:stop]
        best = np.argpartition(bounds[part], len(part) - limit)[len(part) - limit :] if len(part) > limit else slice(None)
        chosen.append(part[best])
    return np.concatenate(chosen)


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which of ``values`` are in ``ordered``, which is not empty: bool like values."""
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
