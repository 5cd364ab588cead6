"""Inverted lists with small codes, for ``bench_mips.py``: faiss's 8-bit scalar codes and RaBitQ fast-scan codes over the same lists.

What the codes propose is scored again by the full vectors, as an index of ours does with faiss's proposals: 2 k + 16 rows of 8-bit codes,
more of RaBitQ's. Lists are learnt once, 4 sqrt(n) of them to the next power of two, by faiss's k-means in two levels; rows find theirs by a
graph of the centroids, queries rank all of them. Each number of probed lists is a search of its own: the comparison is with the first whose
recall suffices.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

Search = Callable[[np.ndarray, int], np.ndarray]  # queries float32 [b,d], k -> rows int64 [b,k]
ROWS_PER_LIST = 39  # faiss's own advice for k-means
CHUNK = 1 << 20
PROBES = (32, 64, 96, 128, 192, 256)
RABITQ_BITS = 4
SPARE, MORE = 2, 4  # times k rows are scored again, of 8-bit codes and of RaBitQ's


def ivf_scalar(vectors: np.ndarray) -> dict[str, Search]:
    """8-bit codes."""
    import faiss

    def make(quantizer: Any, lists: int) -> Any:
        return faiss.IndexIVFScalarQuantizer(
            quantizer, vectors.shape[1], lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT, False
        )

    return _searches("faiss-ivf-sq8", make, vectors, lambda k: SPARE * k + 16)


def ivf_rabitq(vectors: np.ndarray) -> dict[str, Search]:
    """RaBitQ codes of RABITQ_BITS a component, scanned by SIMD table look-ups."""
    import faiss

    def make(quantizer: Any, lists: int) -> Any:
        return faiss.IndexIVFRaBitQFastScan(quantizer, vectors.shape[1], lists, faiss.METRIC_INNER_PRODUCT, 32, True, RABITQ_BITS)

    return _searches("faiss-ivf-rabitq", make, vectors, lambda k: MORE * k + 32)


def _searches(name: str, make: Callable[[Any, int], Any], vectors: np.ndarray, width: Callable[[int], int]) -> dict[str, Search]:
    import faiss

    started = time.perf_counter()
    lists = 1 << int(np.ceil(np.log2(4 * len(vectors) ** 0.5)))
    centroids = _centroids(vectors, lists)
    graph, ranking = faiss.IndexHNSWFlat(vectors.shape[1], 32), faiss.IndexFlatIP(vectors.shape[1])
    graph.hnsw.efSearch = 24
    for quantizer in (graph, ranking):
        quantizer.add(centroids)
    index = make(graph, lists)
    index.by_residual = name.endswith("rabitq")  # 8-bit codes of the rows themselves: nothing is added to a score for its list
    index.train(_sample(vectors, lists))
    for start in range(0, len(vectors), CHUNK):
        index.add(np.ascontiguousarray(vectors[start : start + CHUNK]))
    print(f"{name}: {lists} lists made and filled in {time.perf_counter() - started:.0f} s", flush=True)
    return {f"{name}-{probes}": _search(index, ranking, vectors, probes, width) for probes in PROBES}


def _search(index: Any, ranking: Any, vectors: np.ndarray, probes: int, width: Callable[[int], int]) -> Search:
    import faiss

    kind = faiss.IVFRaBitQSearchParameters if isinstance(index, faiss.IndexIVFRaBitQFastScan) else faiss.SearchParametersIVF

    def search(queries: np.ndarray, k: int) -> np.ndarray:
        index.quantizer = ranking  # the index only points to it
        index.parallel_mode = 1 if len(queries) == 1 else 0  # one query: its lists are shared out among the threads
        found = index.search(queries, width(k), params=kind(nprobe=probes))[1]
        scores = np.einsum("bd,bwd->bw", queries, vectors[np.maximum(found, 0)])
        scores[found < 0] = -np.inf
        return np.take_along_axis(found, np.argsort(-scores, axis=1)[:, :k], axis=1)

    return search


_LEARNT: dict[tuple[int, int], np.ndarray] = {}


def _centroids(vectors: np.ndarray, lists: int) -> np.ndarray:
    """The lists' centroids, of length one as faiss takes them for inner products, learnt once for both kinds of codes."""
    import faiss
    from faiss.contrib.clustering import two_level_clustering

    key = len(vectors), lists
    if key not in _LEARNT:
        started, coarse = time.perf_counter(), round(lists**0.5)
        _LEARNT[key] = two_level_clustering(_sample(vectors, lists), coarse, lists, clustering_niter=10)[0]
        faiss.normalize_L2(_LEARNT[key])
        print(f"{len(_LEARNT[key])} lists learnt in {time.perf_counter() - started:.0f} s", flush=True)
    return _LEARNT[key]


def _sample(vectors: np.ndarray, lists: int) -> np.ndarray:
    return np.ascontiguousarray(vectors[:: max(1, len(vectors) // (lists * ROWS_PER_LIST))])
