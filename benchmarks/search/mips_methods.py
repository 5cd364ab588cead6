"""The ways to search that ``bench_mips.py`` compares: every builder takes float32 vectors [n,d] and gives searches by name.

Lists with small codes are faiss's 8-bit scalar codes and RaBitQ's over the same lists: what the codes propose is scored again by the full
vectors. Lists are learnt once, 4 sqrt(n) of them to the next power of two; each number of probed lists is a search of its own.
Peers whose index takes minutes to build (``KEPT``) take a path that only they use and stay there with what building took: a quiet machine
need only time them. Graphs are HNSW with 32 links up to two million rows and 16 over 8-bit codes beyond.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from realm.search.index.mips import MipsIndex

Search = Callable[[np.ndarray, int], np.ndarray]  # queries float32 [b,d], k -> rows int64 [b,k]
CHUNK = 1 << 20  # rows given to a peer at a time: its copy is the only whole one in memory
TRAINING_ROWS = 1 << 17
ROWS_PER_LIST = 39  # faiss's own advice for k-means
CODED_PROBES = (32, 64, 96, 128, 192, 256)
RABITQ_BITS = 4
SPARE, MORE = 2, 4  # times k rows are scored again, of 8-bit codes and of RaBitQ's
ADDED = 1 << 17  # rows given to a graph at a time
FEW = 2_000_000
EXPANSIONS = (64, 256)  # candidates that a search of a graph keeps
SCANN_LEAVES_SEARCHED, SCANN_SCORED_AGAIN = (20, 5), 200  # one leaf in so many
RABITQLIB_BITS, RABITQLIB_PROBES = 7, (32, 128)
OURS = "realm"
IVF_PROBES = (32, 128)


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
    return {f"{name}-{probes}": _search(index, ranking, vectors, probes, width) for probes in CODED_PROBES}


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


def kept(path: Path, build: Callable[[], Any], write: Callable[[Any, Path], Any], read: Callable[[Path], Any]) -> tuple[Any, float]:
    """The index at ``path``, built and written there unless it is, and the seconds that building took then."""
    facts = path.with_name(f"{path.name}.json")
    if facts.is_file():
        return read(path), float(json.loads(facts.read_text("utf-8"))["build_s"])
    started = time.perf_counter()
    index = build()
    taken = time.perf_counter() - started
    write(index, path)
    facts.write_text(json.dumps({"build_s": taken, "threads": torch.get_num_threads()}), "utf-8")
    return index, taken


def faiss_graph(vectors: np.ndarray, path: Path) -> tuple[dict[str, Search], float]:
    import faiss

    def build() -> Any:
        factory = "HNSW32,Flat" if len(vectors) <= FEW else "HNSW16,SQ8"
        index = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.train(np.ascontiguousarray(vectors[:: max(1, len(vectors) // TRAINING_ROWS)]))
        for start in range(0, len(vectors), ADDED):
            index.add(np.ascontiguousarray(vectors[start : start + ADDED]))
        return index

    index, seconds = kept(path, build, lambda made, at: faiss.write_index(made, str(at)), lambda at: faiss.read_index(str(at)))

    def expanding(expansion: int) -> Search:
        def search(queries: np.ndarray, k: int) -> np.ndarray:
            found: np.ndarray = index.search(queries, k, params=faiss.SearchParametersHNSW(efSearch=max(expansion, k)))[1]
            return found

        return search

    return {f"faiss-hnsw-{expansion}": expanding(expansion) for expansion in EXPANSIONS}, seconds


def usearch_graph(vectors: np.ndarray, path: Path) -> tuple[dict[str, Search], float]:
    from usearch.index import Index

    threads = torch.get_num_threads()

    def empty() -> Any:
        return Index(ndim=vectors.shape[1], metric="ip", dtype="bf16", connectivity=16, expansion_add=100)

    def build() -> Any:
        index = empty()
        for start in range(0, len(vectors), ADDED):
            part = np.ascontiguousarray(vectors[start : start + ADDED])
            index.add(np.arange(start, start + len(part)), part, threads=threads)
        return index

    def read(at: Path) -> Any:
        index = empty()
        index.load(str(at))
        return index

    index, seconds = kept(path, build, lambda made, at: made.save(str(at)), read)

    def expanding(expansion: int) -> Search:
        def search(queries: np.ndarray, k: int) -> np.ndarray:
            index.expansion_search = max(expansion, k)
            keys = index.search(queries, k, threads=threads).keys
            return np.asarray(keys).astype(np.int64).reshape(len(queries), -1)

        return search

    return {f"usearch-{expansion}": expanding(expansion) for expansion in EXPANSIONS}, seconds


def scann_tree(vectors: np.ndarray, path: Path) -> tuple[dict[str, Search], float]:
    """ScaNN as its manual advises: a tree, asymmetric hashing, some rows scored again."""
    import scann

    leaves = int(np.sqrt(len(vectors)))

    def build() -> Any:
        builder = scann.scann_ops_pybind.builder(np.asarray(vectors), 8, "dot_product")
        builder.set_n_training_threads(torch.get_num_threads())
        tree = builder.tree(leaves, leaves // SCANN_LEAVES_SEARCHED[0], training_sample_size=TRAINING_ROWS)
        return tree.score_ah(2, 0.2).reorder(SCANN_SCORED_AGAIN).build()

    def write(index: Any, at: Path) -> None:
        at.mkdir()
        index.serialize(str(at))

    index, seconds = kept(path, build, write, lambda at: scann.scann_ops_pybind.load_searcher(str(at)))

    def searching(share: int) -> Search:
        def search(queries: np.ndarray, k: int) -> np.ndarray:
            options = {"final_num_neighbors": k, "leaves_to_search": leaves // share}
            if len(queries) == 1:
                found = index.search(queries[0], **options)[0]
                return np.pad(found, (0, k - len(found)), constant_values=-1)[None].astype(np.int64)
            rows: np.ndarray = index.search_batched(queries, **options)[0].astype(np.int64)
            return rows

        return search

    return {f"scann-1/{share}": searching(share) for share in SCANN_LEAVES_SEARCHED}, seconds


def rabitqlib_lists(vectors: np.ndarray, path: Path) -> tuple[dict[str, Search], float]:
    """rabitqlib's own lists of codes that answer by themselves, by its own k-means; sqrt(n) lists: four times as many take an hour."""
    from rabitqlib import FinalAssignmentMode, IvfIndex, RaBitQKMeans

    threads, dim = torch.get_num_threads(), vectors.shape[1]

    def build() -> Any:
        lists = int(len(vectors) ** 0.5)
        clustering = RaBitQKMeans(dim, lists, num_threads=threads, final_assignment=FinalAssignmentMode.Exact)
        clustering.train(np.asarray(vectors))
        index = IvfIndex(dim=dim, max_elements=len(vectors), num_clusters=lists, nbits=RABITQLIB_BITS, metric="ip")
        index.build(np.asarray(vectors), clustering.centroids, clustering.assignments, num_threads=threads)
        return index

    index, seconds = kept(path, build, lambda made, at: made.save(str(at)), lambda at: IvfIndex.load(str(at)))

    def probing(probes: int) -> Search:
        return lambda queries, k: np.asarray(index.search(queries, k, probes, num_threads=threads)[0]).astype(np.int64)

    return {f"rabitqlib-{probes}": probing(probes) for probes in RABITQLIB_PROBES}, seconds


KEPT: dict[str, Callable[[np.ndarray, Path], tuple[dict[str, Search], float]]] = {
    "faiss-hnsw": faiss_graph,
    "usearch": usearch_graph,
    "scann": scann_tree,
    "rabitqlib": rabitqlib_lists,
}


def searches(index: MipsIndex) -> Search:
    """One of our indexes, whose block ids are row numbers."""
    return lambda queries, k: index.search(torch.from_numpy(queries), k).ids


def ours(vectors: np.ndarray) -> dict[str, Search]:
    """The compressed index; it needs the native kernel."""
    from realm.search.index.exact import CompressedIndex

    return {OURS: searches(CompressedIndex(vectors, np.arange(len(vectors))))}


def serving(vectors: np.ndarray) -> dict[str, Search]:
    """The approximate index for serving."""
    from realm.search.index.clustered import ClusteredIndex

    index = ClusteredIndex(vectors, np.arange(len(vectors)))
    print(f"realm-serving: {index.info()}", flush=True)
    return {"realm-serving": searches(index)}


def exact(vectors: np.ndarray) -> dict[str, Search]:
    from realm.search.index.exact import ExactIndex

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
