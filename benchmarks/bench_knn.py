"""What kNN costs: keys a second of a build, tokens a second with and without mixing, and the search beside faiss IndexFlatL2.

The model is a GPT-2 of four layers, 128 wide, with random weights. Its keys on random text, drawn again with noise, fill datastores of a
million and more keys; queries are its states on other text. With --datastore keys and model are those of a real datastore, its first
--sizes keys, and queries are keys between them. Both searches of a turn answer the same batch, turns alternate, and the run checks that
they find the same neighbours.

    python benchmarks/bench_knn.py --sizes 1000000 10000000 --dir DIRECTORY
    python benchmarks/bench_knn.py --sizes 1000000 --datastore DATASTORE
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from common import result
from realm.index.choice import make_index
from realm.knn.building import build_datastore
from realm.knn.datastore import WINDOWS, Neighbours, find_neighbours
from realm.knn.network import HubNetwork
from realm.knn.scoring import KnnLogitsProcessor
from realm.knn.session import Session
from realm.knn.settings import Mixing, mixed_log_probs, token_probs
from realm.knn.windows import Window, WindowSet, write_windows

DIM, VOCABULARY, CONTEXT = 128, 8000, 128
NOISE = 0.3  # of the spread of a component, between a drawn key and the state it is drawn from
CHUNK = 1 << 17


class Vocabulary:
    """A tokenizer that nothing is asked of but its identity."""

    def get_vocab(self) -> dict[str, int]:
        return {}


def make_network() -> HubNetwork:
    torch.manual_seed(0)
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = GPT2Config(n_embd=DIM, n_layer=4, n_head=4, n_positions=256, vocab_size=VOCABULARY, initializer_range=0.1, **ends)
    return HubNetwork(GPT2LMHeadModel(config), Vocabulary())


def random_windows(path: Path, count: int, seed: int) -> WindowSet:
    rng = np.random.default_rng(seed)
    ids = rng.zipf(1.2, (count, CONTEXT + 1)).clip(max=VOCABULARY - 4).astype(np.int32) + 3
    return write_windows(path, [Window(row[:-1], np.arange(CONTEXT, dtype=np.int32), row[1:]) for row in ids], dict)


@dataclass(frozen=True)
class Source:
    """A model, states of it that are queries [b,d], the keys of its datastore; keys(n) gives n of them, float32 [n,d]."""

    network: HubNetwork
    queries: torch.Tensor
    keys: Callable[[int], np.ndarray]


def real_source(path: Path, batch: int, most: int) -> Source:
    session = Session.open(path)
    vectors = session.datastore.snapshot.vectors
    chosen = np.linspace(0, min(most, len(vectors)) - 1, batch).astype(np.int64)
    queries = torch.from_numpy(np.asarray(vectors[chosen], np.float32))
    return Source(session.network, queries, lambda n: np.ascontiguousarray(vectors[:n], np.float32))


def drawn_source(scratch: Path, states: np.ndarray, batch: int) -> Source:
    network, held_out = make_network(), random_windows(scratch / "queries", 4, 2)
    queries = network.read([held_out.window(number) for number in range(4)], log_probs=False).keys[:: 512 // batch][:batch]
    return Source(network, queries.contiguous(), lambda n: draw_keys(scratch / "keys.npy", states, n))


def draw_keys(path: Path, states: np.ndarray, n: int) -> np.ndarray:
    """float32 [n,d] on disk, memory-mapped: states with noise."""
    path.unlink(missing_ok=True)
    keys = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, DIM))
    for number, start in enumerate(range(0, n, CHUNK)):
        rng, rows = np.random.default_rng((7, number)), min(CHUNK, n - start)
        noise = rng.standard_normal((rows, DIM), dtype=np.float32) * np.float32(NOISE * states.std())
        keys[start : start + rows] = states[rng.integers(0, len(states), rows)] + noise
    keys.flush()
    return np.load(path, mmap_mode="c")


def median_seconds(ways: dict[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Median seconds of each way; the ways take turns."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - started)
    return {name: float(np.median(values)) for name, values in taken.items()}


def measure_size(source: Source, n: int, given: argparse.Namespace) -> list[dict]:
    """Mixing one batch with n keys by ours and by faiss, and generation with ours."""
    network, queries, keys = source.network, source.queries, source.keys(n)
    vocabulary = network.vocab_size
    tokens = np.random.default_rng(3).integers(3, vocabulary, n).astype(np.int32)
    started = time.perf_counter()
    index = make_index(keys, np.arange(n), metric="l2", values=tokens)
    made = time.perf_counter() - started
    mixing = Mixing(k=given.k, a=0.3, temperature=float(queries.var() * queries.shape[1]))
    log_probs = torch.log_softmax(torch.randn(len(queries), vocabulary, generator=torch.Generator().manual_seed(1)), -1)

    def mixed(found: Neighbours) -> torch.Tensor:
        weights, a = mixing.weigh(found, log_probs.amax(-1))
        return mixed_log_probs(log_probs, token_probs(weights, torch.from_numpy(found.tokens), vocabulary), a)

    ways: dict[str, Callable[[], Any]] = {"realm": lambda: mixed(find_neighbours(index, queries, given.k))}
    if n <= given.most_faiss:
        ways["faiss IndexFlatL2"] = _with_faiss(np.asarray(keys), tokens, queries, given.k, mixed, index)
    seconds = median_seconds(ways, given.turns)
    facts = {"keys": n, "batch": len(queries), "k": given.k}
    rows = [{"method": f"search and mix: {name}", **facts, "ms_per_token": 1e3 * taken / len(queries)} for name, taken in seconds.items()]
    prompt = torch.randint(3, vocabulary, (len(queries), 8), generator=torch.Generator().manual_seed(2))

    def generate(processors: list[Any]) -> None:
        network.model.generate(
            prompt, max_new_tokens=given.tokens, min_new_tokens=given.tokens, do_sample=False, logits_processor=processors
        )

    with KnnLogitsProcessor(network, index, mixing) as knn:
        seconds = median_seconds({"without mixing": lambda: generate([]), "with mixing": lambda: generate([knn])}, max(3, given.turns // 3))
    produced = given.tokens * len(queries)
    rows += [{"method": f"generation {name}", **facts, "tokens_per_second": produced / taken} for name, taken in seconds.items()]
    rows[0] |= {"index": index.info()["kind"], "index_seconds": made, "index_mb": index.info()["bytes"] / 2**20}
    return rows


def _with_faiss(keys: np.ndarray, tokens: np.ndarray, queries: torch.Tensor, k: int, mixed: Callable, index: Any) -> Callable[[], Any]:
    """The same by faiss; refuses to go on if the neighbours differ by more than rounding."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    flat = faiss.IndexFlatL2(keys.shape[1])
    flat.add(keys)

    def search() -> Neighbours:
        distances, rows = flat.search(queries.numpy(), k)
        return Neighbours(-distances, tokens[rows], rows >= 0, None)

    theirs, ours = flat.search(queries.numpy(), k)[1], index.search(queries, k).ids
    exact = np.square(keys[theirs].astype(np.float64) - queries.numpy()[:, None]).sum(2)
    own = np.square(keys[ours].astype(np.float64) - queries.numpy()[:, None]).sum(2)
    different = sum(len(set(a) ^ set(b)) for a, b in zip(theirs.tolist(), ours.tolist(), strict=True))
    if not np.allclose(np.sort(exact, 1), own, rtol=1e-4):
        raise SystemExit("the two searches disagree")
    print(f"neighbours: {different} of {2 * ours.size} differ, all by rounding", file=sys.stderr)
    return lambda: mixed(search())


def measure_build(scratch: Path, network: HubNetwork, windows: int) -> tuple[list[dict], np.ndarray]:
    """Keys a second of a build, and the keys."""
    made = random_windows(scratch / "built" / WINDOWS, windows, 1)
    started = time.perf_counter()
    store = build_datastore(scratch / "built", network, lambda: made)
    seconds = time.perf_counter() - started
    row = {"method": "build, float16", "keys": len(store), "keys_per_second": len(store) / seconds}
    return [row], np.array(store.snapshot.vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000])
    parser.add_argument("--datastore", type=Path, default=None, help="measure its keys instead of drawn ones")
    parser.add_argument("--dir", type=Path, default=None, help="where the keys are written for a while; default: the temporary directory")
    parser.add_argument("--windows", type=int, default=200, help="of 128 tokens, in the build")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--k", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32, help="generated for each row of the batch")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument(
        "--most-faiss", type=int, default=2_000_000, help="largest datastore that faiss is given: it keeps a copy in memory"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        if given.datastore is None:
            rows, states = measure_build(Path(name), make_network(), given.windows)
            source = drawn_source(Path(name), states, given.batch)
        else:
            rows, source = [], real_source(given.datastore, given.batch, max(given.sizes))
        for n in given.sizes:
            rows += measure_size(source, n, given)
    for row in rows:
        print("  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{value}" for key, value in row.items()))
    cost = {(row["method"], row["keys"]): row.get("ms_per_token") for row in rows}
    ratios = {}
    for n in given.sizes:
        faiss, ours = cost.get(("search and mix: faiss IndexFlatL2", n)), cost[("search and mix: realm", n)]
        if faiss and ours:
            ratios[f"per token, {n} keys: faiss / realm"] = faiss / ours
    print(json.dumps(result("knn", torch.get_num_threads(), rows=rows, ratios=ratios, cores=os.cpu_count())))


if __name__ == "__main__":
    main()
