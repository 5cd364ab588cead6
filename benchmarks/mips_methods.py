"""The ways to search that ``bench_mips.py`` compares: every builder takes float32 vectors [n,d] and gives searches by name.

Those of ``mips_kept`` take a path beside them.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mips_coded import ivf_rabitq, ivf_scalar
from mips_kept import KEPT
from realm.index.mips import MipsIndex

Search = Callable[[np.ndarray, int], np.ndarray]  # queries float32 [b,d], k -> rows int64 [b,k]
OURS = "realm"
CHUNK = 1 << 20  # rows given to a peer at a time: its copy is the only whole one in memory
TRAINING_ROWS = 1 << 17
IVF_PROBES = (32, 128)


def searches(index: MipsIndex) -> Search:
    """One of our indexes, whose block ids are row numbers."""
    return lambda queries, k: index.search(torch.from_numpy(queries), k).ids


def ours(vectors: np.ndarray) -> dict[str, Search]:
    """The compressed index, with the native kernel where one was built."""
    from realm.index.compressed import CompressedIndex

    return {OURS: searches(CompressedIndex(vectors, np.arange(len(vectors))))}


def ours_without_kernel(vectors: np.ndarray) -> dict[str, Search]:
    from realm.index.compressed import CompressedIndex

    return {"realm-library": searches(CompressedIndex(vectors, np.arange(len(vectors)), library=True))}


def serving(vectors: np.ndarray) -> dict[str, Search]:
    """The approximate index for serving."""
    from realm.index.clustered import ClusteredIndex

    index = ClusteredIndex(vectors, np.arange(len(vectors)))
    print(f"realm-serving: {index.info()}", flush=True)
    return {"realm-serving": searches(index)}


def exact(vectors: np.ndarray) -> dict[str, Search]:
    from realm.index.base import ExactIndex

    return {"realm-exact": searches(ExactIndex(vectors, np.arange(len(vectors))))}


def torch_exact(vectors: np.ndarray) -> dict[str, Search]:
    """What a few lines of torch do: matrix products of blocks, top k of each block, top k of those."""
    matrix = torch.from_numpy(vectors)

    def search(queries: np.ndarray, k: int) -> np.ndarray:
        wanted, scores, rows = torch.from_numpy(queries), [], []
        for start in range(0, len(matrix), CHUNK):
            best = (wanted @ matrix[start : start + CHUNK].T).topk(min(k, len(matrix) - start))
            scores.append(best.values)
            rows.append(best.indices + start)
        order = torch.cat(scores, 1).topk(k).indices
        return torch.cat(rows, 1).gather(1, order).numpy()

    return {"torch-exact": search}


def training_rows(vectors: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(vectors[:: max(1, len(vectors) // TRAINING_ROWS)])


def filled(index: Any, vectors: np.ndarray) -> Any:
    """A faiss index, trained and filled."""
    if not index.is_trained:
        index.train(training_rows(vectors))
    for start in range(0, len(vectors), CHUNK):
        index.add(np.ascontiguousarray(vectors[start : start + CHUNK]))
    return index


def faiss_index(name: str, factory: str) -> Callable[[np.ndarray], dict[str, Search]]:
    """A faiss index by its factory string."""

    def build(vectors: np.ndarray) -> dict[str, Search]:
        import faiss

        index = filled(faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT), vectors)
        return {name: lambda queries, k: index.search(queries, k)[1]}

    return build


def faiss_ivf(vectors: np.ndarray) -> dict[str, Search]:
    """Inverted lists: 1,024 of them per million rows, up to 4,096; two probe settings of one index."""
    import faiss

    lists = 1024 if len(vectors) <= 2_000_000 else 4096
    index = filled(faiss.index_factory(vectors.shape[1], f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT), vectors)

    def probing(probes: int) -> Search:
        return lambda queries, k: index.search(queries, k, params=faiss.SearchParametersIVF(nprobe=probes))[1]

    return {f"faiss-ivf-{probes}": probing(probes) for probes in IVF_PROBES}


def usearch_exact(vectors: np.ndarray) -> dict[str, Search]:
    """usearch's own scan of all rows, in bfloat16."""
    from usearch.index import MetricKind, search

    halves = torch.empty(vectors.shape, dtype=torch.bfloat16)
    for start in range(0, len(vectors), CHUNK):
        halves[start : start + CHUNK] = torch.from_numpy(vectors[start : start + CHUNK])
    stored = halves.view(torch.uint16).numpy()

    def scan(queries: np.ndarray, k: int) -> np.ndarray:
        wanted = torch.from_numpy(queries).to(torch.bfloat16).view(torch.uint16).numpy()
        keys = search(stored, wanted, k, MetricKind.IP, exact=True, threads=torch.get_num_threads(), dtype="bf16").keys
        return np.asarray(keys).astype(np.int64).reshape(len(queries), -1)

    return {"usearch-exact": scan}


BUILDERS: dict[str, Callable[[np.ndarray], dict[str, Search]]] = {
    OURS: ours,
    "realm-library": ours_without_kernel,
    "realm-serving": serving,
    "realm-exact": exact,
    "torch-exact": torch_exact,
    "faiss-flat": faiss_index("faiss-flat", "Flat"),
    "faiss-sq8": faiss_index("faiss-sq8", "SQ8"),
    "faiss-ivf": faiss_ivf,
    "faiss-ivf-sq8": ivf_scalar,
    "faiss-ivf-rabitq": ivf_rabitq,
    "usearch-exact": usearch_exact,
}
SLOW = ("faiss-ivf-sq8", "faiss-ivf-rabitq", "usearch-exact", *KEPT)  # a minute and more at a million rows: only when named


def set_threads(threads: int) -> None:
    """Every library on this many threads."""
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        import faiss
    except ImportError:
        return
    faiss.omp_set_num_threads(threads)
