"""Held-out sentences and the order of the others: a pure function of (seed, step), so resume is exact on any number of ranks.

A tenth of a corpus is held out by the place of a sentence alone: no stage trains on another's evaluation, and documents that are added
later move no sentence from one side to the other."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np

from realm.errors import ConfigError
from realm.recipe.seeds import GOLDEN, generator, mixed

SHARE = 10
"""One sentence in so many is set aside."""


def hold_out(keys: np.ndarray, held: int, *, least: int = 0) -> tuple[list[int], list[int]]:
    """Held-out and trained-on numbers of n sentences, by keys int64 [n, 2]: block id and number in its block.

    At most ``held`` are evaluated (0: all are trained on); at least ``least`` are set aside, the next in the order of hashes. Those beyond
    ``held`` are in neither list. Where all are set aside, all are trained on too."""
    if not held:
        return [], list(range(len(keys)))
    blocks, sentences = keys.astype(np.uint64).T
    hashes = _mix(_mix(blocks) + sentences)
    aside = hashes < np.uint64(2**64 // SHARE)
    if aside.sum() < least:
        aside[np.argsort(hashes, kind="stable")[:least]] = True
    chosen, training = np.flatnonzero(aside), np.flatnonzero(~aside)
    chosen = chosen[np.argsort(hashes[chosen], kind="stable")][:held]
    return chosen.tolist(), training.tolist() or list(range(len(keys)))


def _mix(values: np.ndarray) -> np.ndarray:
    return mixed(values + np.uint64(GOLDEN))


@dataclass(frozen=True)
class Share:
    """Part ``index`` of ``count`` equal parts of a step's batch, ranks times parts a rank: what one rank computes at a time."""

    index: int = 0
    count: int = 1

    def places(self, size: int) -> range:
        """Places of the part in a batch of ``size`` examples. Raises ConfigError: the batch cannot be divided so."""
        if size % self.count:
            cure = f"Take a batch that is a multiple of {self.count}, or other values of accumulate and --nproc-per-node."
            raise ConfigError(f"a batch of {size} cannot be divided into {self.count} parts (ranks x accumulate)", cure=cure)
        each = size // self.count
        return range(self.index * each, (self.index + 1) * each)


WHOLE = Share()


SORTED_BATCHES = 64
"""Batches whose items are sorted by length together: enough that those of a batch are of one length, few enough to stay random."""


class LengthOrder:
    """Batches of items of similar length, all items once an epoch, in an order that depends on ``key`` alone.

    A permutation is cut into runs of ``SORTED_BATCHES``, each sorted by length, its batches shuffled; an epoch's last batch is filled
    from its beginning."""

    def __init__(self, lengths: SequenceOf[int], size: int, *key: int | str):
        if not len(lengths):
            raise ValueError("nothing to visit")
        self._lengths = np.asarray(lengths)
        self._size = size
        self._key = key
        self._epoch = -1
        self._batches = np.empty((0, size), np.int64)

    def batch(self, step: int, size: int, share: Share = WHOLE) -> list[tuple[int, int]]:
        """(position, item) of the examples of one step, ``size`` over all ranks, or of one share of them."""
        assert size == self._size, (size, self._size)
        epoch, at = divmod(step, -(-len(self._lengths) // size))
        if epoch != self._epoch:
            self._batches, self._epoch = self._drawn(epoch), epoch
        return [(step * size + place, int(self._batches[at, place])) for place in share.places(size)]

    def _drawn(self, epoch: int) -> np.ndarray:
        rng = generator(*self._key, "lengths", epoch)
        order = rng.permutation(len(self._lengths))
        order = np.resize(order, -(-len(order) // self._size) * self._size)
        runs = []
        for begin in range(0, len(order), SORTED_BATCHES * self._size):
            run = order[begin : begin + SORTED_BATCHES * self._size]
            by_length = run[np.argsort(self._lengths[run], kind="stable")].reshape(-1, self._size)
            runs.append(by_length[rng.permutation(len(by_length))])
        return np.concatenate(runs)


class EpochOrder:
    """``n`` items in a fresh permutation each epoch, by ``key``; position p of the endless sequence is the same for every caller."""

    def __init__(self, n: int, *key: int | str):
        if n < 1:
            raise ValueError("nothing to visit")
        self.n = n
        self.key = key
        self._epoch = -1
        self._order = np.empty(0, np.int64)

    def item(self, position: int) -> int:
        epoch, offset = divmod(position, self.n)
        if epoch != self._epoch:
            self._order = generator(*self.key, "epoch", epoch).permutation(self.n)
            self._epoch = epoch
        return int(self._order[offset])

    def batch(self, step: int, size: int, share: Share = WHOLE) -> list[tuple[int, int]]:
        """(position, item) of the examples of one step, ``size`` over all ranks, or of one share of them."""
        return [(p, self.item(p)) for p in (step * size + place for place in share.places(size))]
