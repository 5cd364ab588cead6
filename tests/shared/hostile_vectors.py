"""Vectors that tests of several kinds of index share."""

import numpy as np


def hostile(name, n, d, rng):
    gaussian = rng.standard_normal((n, d)).astype(np.float32)
    if name == "sorted":
        return gaussian[np.argsort(gaussian[:, 0])]
    if name == "clusters":
        return gaussian[rng.integers(0, 9, n)] + gaussian * np.float32(0.05)
    if name == "all equal":
        return np.repeat(gaussian[:1], n, 0)
    if name == "near ties":
        return np.float32(1) + gaussian * np.float32(2e-7)
    if name == "duplicates":
        return gaussian[rng.integers(0, 7, n)]
    if name == "one huge row":
        gaussian[n // 2] *= 1e30
    if name == "norms of all sizes":
        return gaussian * (10 ** rng.uniform(-25, 15, (n, 1))).astype(np.float32)
    if name == "overflow":
        return (gaussian * np.float32(5e37)).clip(-3e38, 3e38)
    if name == "denormals":
        return gaussian * np.float32(1e-41)
    if name == "few denormals":
        return np.where(rng.random((n, d)) < 0.5, gaussian, np.float32(1e-44))
    if name == "zeros":
        return np.zeros((n, d), np.float32)
    if name == "huge component":
        gaussian[:, d // 2] *= 1e4
    return gaussian
