"""Peers whose index takes minutes to build, for ``bench_mips.py``: kept in its directory, so that a quiet machine need only time them.

Each takes float32 vectors [n,d] and a path that only it uses. What building took is kept beside it. Graphs are HNSW with 32 links up to
two million rows and 16 over 8-bit codes beyond; every setting of the search is a search of its own.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

Search = Callable[[np.ndarray, int], np.ndarray]  # queries float32 [b,d], k -> rows int64 [b,k]
CHUNK = 1 << 17
FEW = 2_000_000
EXPANSIONS = (64, 256)  # candidates that a search of a graph keeps
SCANN_LEAVES_SEARCHED, SCANN_SCORED_AGAIN = (20, 5), 200  # one leaf in so many
TRAINING_ROWS = 1 << 17
RABITQLIB_BITS, RABITQLIB_PROBES = 7, (32, 128)


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
        for start in range(0, len(vectors), CHUNK):
            index.add(np.ascontiguousarray(vectors[start : start + CHUNK]))
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
        for start in range(0, len(vectors), CHUNK):
            part = np.ascontiguousarray(vectors[start : start + CHUNK])
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
