"""A refresh that embeds a share of the corpus: which blocks come first, and the mixed generation that it makes of the one before it.

The trainer decides (:class:`Renewal`), because what training queries retrieve is its state: a resumed run decides the same. Who builds
gets the base and the ids of the blocks with the parameters, and takes all other rows from the base (:class:`Mixed`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from realm.index.manifest import MIXED, Portion, SnapshotFacts
from realm.index.snapshot import Snapshot
from realm.refresh import embedding
from realm.refresh.embedding import Parts
from realm.refresh.parameters import Partial

OLDEST, RETRIEVED = "oldest", "retrieved"
RESERVED = 0.5
"""Share of the budget that goes to the oldest rows whatever is retrieved, so that nothing stays old for ever. Chosen by recall of the true
top 8 at three budgets (benchmarks/results/2026-11-21-mixed-refresh-2-cores.md)."""


class Renewal:
    """Which blocks the next refresh of a run embeds.

    Args:
        share: of the rows, above 0; 1: every refresh embeds all, and nothing here counts.
        first: oldest (those embedded longest ago, round robin) or retrieved (those that training queries retrieved most since they were
            embedded; a reserved part of the budget, and ties, go to the oldest).

    Attributes:
        base: the generation that is searched, which the next one goes on from; None before the first.
    """

    def __init__(self, share: float = 1.0, first: str = OLDEST):
        self.share = share
        self.first = first
        self.base: Snapshot | None = None
        self._times: Counter[int] = Counter()

    @property
    def partial(self) -> bool:
        """Whether refreshes embed less than everything."""
        return self.share < 1

    def count(self, block_ids: np.ndarray) -> None:
        """Note blocks that training queries retrieved: int64, of any shape."""
        if self.partial and self.first == RETRIEVED:
            self._times.update(block_ids.ravel().tolist())

    def searched(self, snapshot: Snapshot) -> None:
        """The trainer goes over to a generation: what that embedded anew is counted from 0."""
        self.base = snapshot
        if snapshot.row_params is None:
            self._times.clear()
        else:
            for block_id in snapshot.block_ids[snapshot.row_params == snapshot.manifest.params_generation].tolist():
                self._times.pop(block_id, None)

    def request(self) -> Partial | None:
        """What the next refresh is to embed, and what it goes on from; None: everything."""
        if not self.partial or self.base is None:
            return None
        ids = self.base.block_ids
        chosen = first_rows(self.base.made_by, self._counts(ids), self.share, self.first)
        return Partial(self.base.manifest.generation, np.asarray(ids[chosen], np.int64))

    def state(self) -> dict[str, Any]:
        """JSON that a checkpoint carries."""
        ids = sorted(self._times)
        return {"block_ids": ids, "times": [self._times[block_id] for block_id in ids]} if ids else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self._times = Counter(dict(zip(state.get("block_ids", ()), state.get("times", ()), strict=True)))

    def _counts(self, block_ids: np.ndarray) -> np.ndarray:
        """How often each block was retrieved: int64 [n] for ids [n], ascending."""
        counts = np.zeros(len(block_ids), np.int64)
        known = np.array(sorted(self._times), np.int64)
        here = known[np.isin(known, block_ids)]
        counts[np.searchsorted(block_ids, here)] = [self._times[block_id] for block_id in here.tolist()]
        return counts


def first_rows(made_by: np.ndarray, times: np.ndarray, share: float, first: str) -> np.ndarray:
    """Rows to embed first: bool [n], of which ceil(share * n) are true.

    Args:
        made_by: int [n], the parameter generation of every row; the smaller, the older.
        times: int [n], how often each was retrieved since.
        share, first: as for :class:`Renewal`.
    """
    number = int(np.ceil(share * len(made_by)))
    oldest = np.argsort(made_by, kind="stable")
    chosen = np.zeros(len(made_by), np.bool_)
    chosen[oldest[: number if first == OLDEST else int(np.ceil(RESERVED * number))]] = True
    rest = np.lexsort((made_by, -times, chosen))  # those chosen already come last; ties by age, then by row
    chosen[rest[: number - int(chosen.sum())]] = True
    return chosen


class Mixed:
    """The rows of a generation that goes on from another.

    Args:
        base: where rows are taken from that are not embedded.
        block_ids: int64 [n], ascending: of the new generation.
        wanted: int64 [m], blocks to embed; blocks that the base does not hold are embedded, too.
        facts: of the new generation as if it were whole.

    Attributes:
        now: bool [n], rows to embed.
        row_params: int32 [n], the parameter generation of every row.
        facts: with its kind and what it is made of.
    """

    def __init__(self, base: Snapshot, block_ids: np.ndarray, wanted: np.ndarray, facts: SnapshotFacts):
        places = np.minimum(np.searchsorted(base.block_ids, block_ids), len(base.block_ids) - 1)
        known = np.asarray(base.block_ids)[places] == block_ids
        self.now = ~known | np.isin(block_ids, wanted)
        self.row_params = np.where(self.now, facts.params_generation, base.made_by[places]).astype(np.int32)
        steps = {portion.params_generation: portion.step for portion in base.manifest.portions} | {facts.params_generation: facts.step}
        made = zip(*(values.tolist() for values in np.unique(self.row_params, return_counts=True)), strict=True)
        self.facts = replace(facts, kind=MIXED, mixture=tuple(Portion(number, steps[number], rows) for number, rows in made))
        self._base = base
        self._places = places

    def parts(self, embedded: Parts) -> Parts:
        """What ``publish_snapshot`` takes. Memory: one part, and one part of embedded rows.

        Args:
            embedded: parts of the rows to embed alone. They are asked for from a whole part on, so that a build that is taken up has the
                batches, and the bits, of one that was never cut off.
        """

        def parts(start: int) -> Iterator[np.ndarray]:
            size = embedding.PART_ROWS
            done = int(self.now[:start].sum())
            take = _taker(embedded(done // size * size))
            take(done % size)
            for at in range(start, len(self.now), size):
                now, places = self.now[at : at + size], self._places[at : at + size]
                part = np.empty((len(now), self._base.manifest.dim), np.float32)
                part[~now] = self._base.rows(places[~now])
                if now.any():
                    part[now] = take(int(now.sum()))
                yield part

        return parts


def _taker(parts: Iterable[np.ndarray]) -> Callable[[int], np.ndarray]:
    """Takes the next so many rows [m,d] of parts."""
    waiting = iter(parts)
    left: list[np.ndarray] = []

    def take(count: int) -> np.ndarray:
        while sum(map(len, left)) < count:
            left.append(next(waiting))
        rows = np.concatenate(left) if left else np.zeros((0, 0), np.float32)
        left[:] = [rows[count:]] if len(rows) > count else []
        return rows[:count]

    return take
