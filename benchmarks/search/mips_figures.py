"""What ``bench_mips.py`` searches, and what it says of our compressed index alone: depth, exclusions, opening, memory, length of the lists.

Vectors and queries are generated in chunks from a seed and written once: they may be more than fits the memory.
``clus`` looks like the output of a trained embedder: 200,000 clusters of Zipf sizes lie in 2,000 topics, every level spreads along the same
decaying spectrum, and vectors end in a layer normalisation. A query is such a vector plus noise of 0.7 of its spread, normalised again.
``gauss`` is independent normal noise, vectors and queries alike: nothing to compress and no clusters, the hard case.
"""

import ctypes
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from realm.search.index.exact import CompressedIndex
from realm.search.publishing.snapshot import Snapshot, SnapshotFacts
from realm.search.publishing.writing import publish_snapshot

NAMES = {"corpus_id": "benchmark", "tokenizer_sha256": "0" * 64, "document_embedder_sha256": "0" * 64}
EXCLUDED = 1000
DEEP = 5000


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


def own_memory() -> int:
    """Bytes of this process that are its own and no page of a file; freed memory is given back first."""
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def figures_of_ours(vectors: np.ndarray, queries: np.ndarray, rounds: int, directory: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Figures with their units in their names, and the ratios that have a bound."""
    before, started = own_memory(), time.perf_counter()
    index = CompressedIndex(vectors, np.arange(len(vectors)))
    figures = {"build from memory, s": time.perf_counter() - started}
    own, size = own_memory() - before, int(index.info()["bytes"])
    figures |= {"own memory, MB": own / 1e6, "compressed vectors, MB": size / 1e6}
    ratios = {"own memory / int8 components (<= 1.3)": own / vectors.size}
    ratios |= compare_requests(index, torch.from_numpy(queries), rounds)
    for name, batch in (("1 query", queries[:1]), (f"{len(queries)} queries", queries)):
        index.search(torch.from_numpy(batch), 8)
        figures[f"mean list length, {name}"] = float(index.listed[index.listed >= 0].mean())
    del index
    return figures | opening(vectors, directory), ratios


def compare_requests(index: CompressedIndex, queries: torch.Tensor, rounds: int) -> dict[str, float]:
    """k=5,000 and exclusion lists against a plain search of k=8, taking turns; of one query and of all."""
    rng = np.random.default_rng(1)
    # Half of what is excluded are the best rows: lists that hide nothing would cost nothing.
    best = index.search(queries, EXCLUDED // 2).ids
    lists = [np.concatenate([row, rng.integers(0, len(index), EXCLUDED - len(row))]) for row in best]
    k = min(DEEP, len(index))
    ratios = {}
    for count in (1, len(queries)):
        some, hidden = queries[:count], lists[:count]
        requests: dict[str, Callable[[], object]] = {
            "plain": lambda some=some: index.search(some, 8),
            "deep": lambda some=some: index.search(some, k),
            "excluding": lambda some=some, hidden=hidden: index.search(some, 8, hidden),
        }
        times = {name: [] for name in requests}
        for turn in range(-1, rounds):
            for name, request in requests.items():
                started = time.perf_counter()
                request()
                if turn >= 0:
                    times[name].append(time.perf_counter() - started)
        plain, deep, excluding = (float(np.median(times[name])) for name in requests)
        ratios[f"q{count}: k={k:,} / k=8 (<= 1.2)"] = deep / plain
        ratios[f"q{count}: {EXCLUDED:,} ids excluded / none (<= 1.05)"] = excluding / plain
    return ratios


def opening(vectors: np.ndarray, directory: Path) -> dict[str, float]:
    """Seconds from published shards to the first result, files verified and rows coded.

    Pages are dropped first, as far as the system follows the advice.
    """
    published = directory / "published"
    if shutil.disk_usage(directory).free < 1.5 * vectors.nbytes:
        print("opening: left out, the disk has no room for a published copy", flush=True)
        return {}
    try:
        facts = SnapshotFacts(params_generation=0, step=0, corpus_version=0, **NAMES)
        publish_snapshot(published, lambda done: [vectors[done:]], np.arange(len(vectors)), facts)
        figures = {}
        for name in ("first", "again"):
            if name == "first":
                drop_pages(published)
            started = time.perf_counter()
            snapshot = Snapshot.open(published, **NAMES)
            index = CompressedIndex(snapshot.vectors, snapshot.block_ids)
            index.search(torch.from_numpy(vectors[:1].copy()), 8)
            figures[f"open from published shards, {name}, s"] = time.perf_counter() - started
            del index, snapshot
        return figures
    finally:
        shutil.rmtree(published, ignore_errors=True)


def drop_pages(directory: Path) -> None:
    os.sync()
    for path in directory.rglob("*.npy"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
