"""The order of the data: a pure function of (seed, step), so that resume is exact and independent of the number of ranks."""

import hashlib

import numpy as np


def generator(*key: int | str) -> np.random.Generator:
    """A random generator that depends on ``key`` alone, never on what was drawn before."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest[:16], dtype=np.uint64)))


class EpochOrder:
    """Visits ``n`` items in a fresh permutation each epoch; position p of the endless sequence is the same whoever asks.

    Args:
        n: number of items, at least 1.
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

    def batch(self, step: int, size: int) -> list[tuple[int, int]]:
        """(position, item) of the examples of one step, over all ranks."""
        return [(p, self.item(p)) for p in range(step * size, (step + 1) * size)]
