"""Random numbers that depend on a key alone: the same on every machine, whatever was drawn before."""

import hashlib

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: what splitmix64 counts by. Odd, so that no factor of a hash is lost modulo 2^64."""


def mixed(values: np.ndarray) -> np.ndarray:
    """uint64, spread over all bits, the same on every machine: the last steps of splitmix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def generator(*key: int | str) -> np.random.Generator:
    """A random generator that depends on ``key`` alone, never on what was drawn before."""
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest[:16], dtype=np.uint64)))
