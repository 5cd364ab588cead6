"""Sets of 16-byte keys that take little more than the keys themselves."""

import hashlib
from typing import Protocol, TypeVar

import numpy as np

Key = TypeVar("Key", bytes, str, contravariant=True)

KEY_BYTES = 16
_KEY = np.dtype(f"S{KEY_BYTES}")
# Keys that wait in an ordinary set, which takes about 100 bytes for each.
RECENT = 262_144


class Keys(Protocol[Key]):
    """What is there already, keys or ids: a set, one of those below, or a look-up in the corpus."""

    def __contains__(self, key: Key, /) -> bool: ...

    def add(self, key: Key, /) -> None: ...


class KeyRuns:
    """A growing set of 16-byte keys: 16 bytes a key in sorted runs, up to 32 while runs are merged, besides ``RECENT`` newest ones.

    A python set of bytes takes about 100 bytes a key.
    """

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._runs: list[np.ndarray] = []  # each at least twice as long as the next one

    def __contains__(self, key: bytes) -> bool:
        return key in self._recent or any(_holds(run, key) for run in self._runs)

    def __len__(self) -> int:
        return len(self._recent) + sum(map(len, self._runs))

    def add(self, key: bytes) -> None:
        """Take in a key that is not in the set yet."""
        self._recent.add(key)
        if len(self._recent) >= RECENT:
            self._settle()

    def _settle(self) -> None:
        run = np.sort(np.array(list(self._recent), _KEY))
        self._recent = set()
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)


def _holds(run: np.ndarray, key: bytes) -> bool:
    wanted = np.array(key, _KEY)
    position = int(np.searchsorted(run, wanted))
    return position < len(run) and run[position] == wanted


class TextKeys:
    """A set of strings that keeps a key of each: ``KeyRuns`` of their hashes. Two strings share one with a chance of 2^-128 a pair."""

    def __init__(self) -> None:
        self._keys = KeyRuns()

    def __contains__(self, text: str) -> bool:
        return _text_key(text) in self._keys

    def add(self, text: str) -> None:
        """Take in a string that is not in the set yet."""
        self._keys.add(_text_key(text))


def _text_key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
