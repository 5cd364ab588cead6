"""Vectors and queries for ``bench_mips.py``: generated in chunks from a seed and written once: they may be more than fits the memory.

``clus`` looks like the output of a trained embedder: 200,000 clusters of Zipf sizes lie in 2,000 topics, every level spreads along the same
decaying spectrum, and vectors end in a layer normalisation. A query is such a vector plus noise of 0.7 of its spread, normalised again.
``gauss`` is independent normal noise, vectors and queries alike: nothing to compress and no clusters, the hard case.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

KINDS = ("clus", "gauss")
CHUNK = 1 << 17  # rows generated at a time: the data depend on (kind, dim, seed) and on this, not on how many rows are asked for
TOPICS, CLUSTERS = 2_000, 200_000
TOPIC, CLUSTER, OWN = 0.9, 0.65, 0.43  # spread of topics, of clusters in a topic, of vectors in a cluster
DECAY = 0.5  # standard deviation along the j-th direction: j ** -DECAY
ZIPF = 0.8  # the r-th largest cluster is drawn with weight r ** -ZIPF
NOISE = 0.7
QUERY_STREAM = 1 << 40  # queries come from a stream of their own

Draw = Callable[[np.random.Generator, int], np.ndarray]


def write_vectors(path: Path, kind: str, n: int, dim: int, seed: int) -> None:
    """Write float32 [n,dim] to a ``.npy`` file, which appears when it is whole."""
    draw = drawing(kind, dim, seed)
    staging = path.with_suffix(".part.npy")
    vectors = np.lib.format.open_memmap(staging, mode="w+", dtype=np.float32, shape=(n, dim))
    for number, start in enumerate(range(0, n, CHUNK)):
        rows = min(CHUNK, n - start)
        vectors[start : start + rows] = draw(np.random.default_rng((seed, number)), rows)
    vectors.flush()
    os.replace(staging, path)


def make_queries(vectors: np.ndarray, kind: str, count: int, seed: int) -> np.ndarray:
    """float32 [count,dim] queries of ``vectors`` [n,dim]."""
    rng = np.random.default_rng((seed, QUERY_STREAM))
    noise = rng.standard_normal((count, vectors.shape[1]), dtype=np.float32)
    if kind == "gauss":
        return noise
    chosen = vectors[np.sort(rng.integers(0, len(vectors), count))]
    return layer_norm(torch.from_numpy(chosen + np.float32(NOISE) * noise)).numpy()


def drawing(kind: str, dim: int, seed: int) -> Draw:
    """The function that draws rows of this kind."""
    if kind == "gauss":
        return lambda rng, rows: rng.standard_normal((rows, dim), dtype=np.float32)
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]  # no direction of the spectrum falls on an axis
    spectrum = np.arange(1, dim + 1) ** -DECAY
    basis = torch.from_numpy((rotation * (spectrum / np.sqrt(np.mean(spectrum**2)))[:, None]).astype(np.float32))
    topics = np.float32(TOPIC) * rng.standard_normal((TOPICS, dim), dtype=np.float32)
    spread = np.float32(CLUSTER) * rng.standard_normal((CLUSTERS, dim), dtype=np.float32)
    centres = torch.from_numpy(topics[rng.integers(0, TOPICS, CLUSTERS)] + spread) @ basis
    share = np.cumsum(np.arange(1, CLUSTERS + 1) ** -ZIPF)
    share /= share[-1]

    def draw(rng: np.random.Generator, rows: int) -> np.ndarray:
        chosen = centres[torch.from_numpy(np.searchsorted(share, rng.random(rows)))]
        own = torch.from_numpy(rng.standard_normal((rows, dim), dtype=np.float32))
        return layer_norm(torch.addmm(chosen, own, basis, alpha=OWN)).numpy()

    return draw


def layer_norm(vectors: torch.Tensor) -> torch.Tensor:
    """Each row less its mean, divided by its standard deviation."""
    return torch.nn.functional.layer_norm(vectors, vectors.shape[1:], eps=1e-12)
