"""What ``bench_mips.py`` says of our compressed index alone: depth, exclusions, opening, memory, length of the lists."""

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
        figures[f"mean list length, {name}"] = index.statistics.mean_list
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
        publish_snapshot(published, vectors, np.arange(len(vectors)), facts)
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
