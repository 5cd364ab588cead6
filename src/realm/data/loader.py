"""The order of the data: a pure function of (seed, step), so that resume is exact and independent of the number of ranks."""

import hashlib
from dataclasses import dataclass

import numpy as np

from realm.errors import ConfigError


def generator(*key: int | str) -> np.random.Generator:
    """A random generator that depends on ``key`` alone, never on what was drawn before."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest[:16], dtype=np.uint64)))


@dataclass(frozen=True)
class Share:
    """One of ``count`` equal parts of a step's batch: what one rank computes at a time.

    Attributes:
        index: which, from 0.
        count: ranks times parts a rank.
    """

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


class EpochOrder:
    """Visits ``n`` items in a fresh permutation each epoch; position p of the endless sequence is the same for every caller.

    Args:
        key: what the order depends on (stage name, seed).
    """

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
