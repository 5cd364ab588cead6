"""Search of 13,353,718 vectors of dimension 128: ours beside torch, faiss, ScaNN, usearch and rabitqlib, in one run.

Vectors are generated once (``mips_figures.py``), written to a scratch directory and memory-mapped. Ours stays open for the whole run; the
others are built, measured and dropped one after another, because no machine this is meant for holds them all. Each is measured in rounds in
which it and ours take turns, so that both meet the same noise, and every ratio is one of medians within those rounds. Recall is against
float64 scores; ours must return exactly those rows, but for ties, or the run fails.

    python -m benchmarks.search.bench_mips --quick                         a million vectors, four methods, under a minute
    python -m benchmarks.search.bench_mips --n 1000000                     the fast methods
    python -m benchmarks.search.bench_mips --dir /somewhere/with/14/GB     the full size; needs about 16 GB of memory
    python -m benchmarks.search.bench_mips --n 1000000 --methods all       graphs, ScaNN and usearch's scan too, which take minutes
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import result
from benchmarks.search.mips_figures import KINDS, figures_of_ours, make_queries, own_memory, write_vectors
from benchmarks.search.mips_methods import BUILDERS, KEPT, OURS, SLOW, Search, set_threads

FULL = 13_353_718
BATCH = 64
DEPTHS = (5, 8, 10, 20, 100)
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "processor": time.process_time}
QUICK = "realm-exact,torch-exact,faiss-flat"
ALL = (*BUILDERS, *KEPT)
SINGLES = 3  # single queries timed in a round


@dataclass(frozen=True)
class Task:
    """What every method gets: float32 vectors [n,d], which lie in the file ``data``, queries [b,d], and the answer: rows int64 [b,100],
    scores float64 [b,100].
    """

    data: Path
    vectors: np.ndarray
    queries: np.ndarray
    rows: np.ndarray
    scores: np.ndarray


def exact_answer(vectors: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best rows of each query and their scores: fp32 products of blocks choose some more, float64 decides."""
    wanted, best, rows = torch.from_numpy(queries), torch.zeros(len(queries), 0), torch.zeros(len(queries), 0, dtype=torch.int64)
    for start in range(0, len(vectors), 1 << 16):
        scores = wanted @ torch.from_numpy(vectors[start : start + (1 << 16)]).T
        found = scores.topk(min(k + 20, scores.shape[1]))
        best, rows = torch.cat([best, found.values], 1), torch.cat([rows, found.indices + start], 1)
        kept = best.topk(min(k + 20, best.shape[1]))
        best, rows = kept.values, rows.gather(1, kept.indices)
    exact = true_scores(vectors, queries, rows.numpy())
    order = np.lexsort((rows.numpy(), -exact))[:, :k]
    return np.take_along_axis(rows.numpy(), order, 1), np.take_along_axis(exact, order, 1)


def true_scores(vectors: np.ndarray, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """float64 [b,k] inner products of rows int64 [b,k]."""
    return np.stack([vectors[row].astype(np.float64) @ query.astype(np.float64) for row, query in zip(rows, queries, strict=True)])


def check_exact(task: Task, search: Search) -> None:
    """Refuse to go on unless these are the best rows, but for ties."""
    found = search(task.queries, max(DEPTHS))
    tie = 1e-9 * np.abs(task.scores).max()
    assert np.abs(true_scores(task.vectors, task.queries, found) - task.scores).max() <= tie, "ours is not exact"
    assert all(len(set(row)) == len(row) for row in found), "a row came twice"


def recalls(task: Task, search: Search) -> dict[str, float]:
    found = search(task.queries, max(DEPTHS))
    pairs = list(zip(found, task.rows, strict=True))
    return {f"recall@{k}": float(np.mean([len(set(a[:k]) & set(b[:k])) / k for a, b in pairs])) for k in DEPTHS}


def take_turns(methods: dict[str, Search], queries: np.ndarray, rounds: int, clock: Clock) -> dict[str, dict[str, float]]:
    """Median milliseconds of one query and of a batch, each method once in each round, after a first round that does not count."""
    q1: dict[str, list[float]] = {name: [] for name in methods}
    q64: dict[str, list[float]] = {name: [] for name in methods}
    for turn in range(-1, rounds):
        for name, search in methods.items():
            for number in range(SINGLES):
                single = timed(search, queries[[(turn * SINGLES + number) % len(queries)]], clock)
                if turn >= 0:
                    q1[name].append(single)
        for name, search in methods.items():
            batch = timed(search, queries[:BATCH], clock)
            if turn >= 0:
                q64[name].append(batch)
    return {name: {"q1_ms": float(np.median(q1[name])), "q64_ms": float(np.median(q64[name]))} for name in methods}


def timed(search: Search, queries: np.ndarray, clock: Clock) -> float:
    started = clock()
    search(queries, 8)
    return (clock() - started) * 1e3


def built(name: str, vectors: np.ndarray, data: Path) -> tuple[dict[str, Search], dict[str, float]]:
    """A method's searches of the vectors in the file ``data``, and what building it took; kept beside it where that is long."""
    before, started = own_memory(), time.perf_counter()
    if name in KEPT:
        made, seconds = KEPT[name](vectors, data.with_suffix(f".{name}"))
    else:
        made = BUILDERS[name](vectors)
        seconds = time.perf_counter() - started
    return made, {"build_s": seconds, "ram_bytes": own_memory() - before}


def compare(task: Task, names: list[str], rounds: int, base: str, clock: Clock) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """A row for each method, and the ratios: times of the others over those of ``base``, which is one of ours."""
    ours, cost = built(base, task.vectors, task.data)
    if base == OURS:
        check_exact(task, ours[base])
    rows: list[dict[str, Any]] = [{"method": base, **cost, **recalls(task, ours[base])}]
    ratios: dict[str, float] = {}
    own: list[dict[str, float]] = []
    for name in names:
        try:
            made, cost = built(name, task.vectors, task.data)
        except ImportError as error:
            print(f"{name}: left out, {error.name} is not installed (pip install -r benchmarks/requirements.txt)", flush=True)
            continue
        times = take_turns({**ours, **made}, task.queries, rounds, clock)
        own.append(times[base])
        for method, search in made.items():
            rows.append({"method": method, **cost, **times[method], **recalls(task, search)})
            for what in ("q1", "q64"):
                ratios[f"{what}: {method} / {base}"] = times[method][f"{what}_ms"] / times[base][f"{what}_ms"]
            show(rows[-1])
        print(f"    {base} in the same turns: q1 {own[-1]['q1_ms']:.2f} ms, q64 {own[-1]['q64_ms']:.1f} ms", flush=True)
        del made
    own = own or [take_turns(ours, task.queries, rounds, clock)[base]]
    rows[0] |= {what: float(np.median([times[what] for times in own])) for what in ("q1_ms", "q64_ms")}
    show(rows[0])
    return rows, ratios


def show(row: dict[str, Any]) -> None:
    costs = f"build {row['build_s']:7.2f} s  {row['ram_bytes'] / 1e6:7.0f} MB  q1 {row['q1_ms']:8.2f} ms  q64 {row['q64_ms']:9.1f} ms"
    print(f"{row['method']:16} {costs}  " + "  ".join(f"@{k} {row[f'recall@{k}']:.3f}" for k in DEPTHS), flush=True)


def prepared(directory: Path, arguments: argparse.Namespace) -> Task:
    """Generate the vectors unless they are there, and find the answer."""
    path = directory / f"{arguments.data}-{arguments.n}-{arguments.dim}-{arguments.seed}.npy"
    started = time.perf_counter()
    if not path.is_file():
        write_vectors(path, arguments.data, arguments.n, arguments.dim, arguments.seed)
    vectors = np.load(path, mmap_mode="c")
    queries = make_queries(vectors, arguments.data, arguments.queries, arguments.seed)
    generated = time.perf_counter()
    rows, scores = exact_answer(vectors, queries, max(DEPTHS))
    print(f"{path.name}: generated in {generated - started:.0f} s, answered in {time.perf_counter() - generated:.0f} s", flush=True)
    return Task(path, vectors, queries, rows, scores)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=FULL, help="vectors")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--data", choices=KINDS, default="clus")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--queries", type=int, default=128, help="of the recall; at least 64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--methods", default="fast", help=f"'fast', 'all' (adds {', '.join(SLOW)}), or names: {','.join(ALL)}")
    parser.add_argument("--quick", action="store_true", help=f"a million vectors, {QUICK}, three rounds, whatever else is asked")
    parser.add_argument("--base", choices=(OURS, "realm-serving"), default=OURS, help="which of ours takes turns with every other")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="processor: of all threads, for a shared machine")
    parser.add_argument("--dir", type=Path, default=None, help="keep the vectors here for the next run; default: a temporary directory")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.n, arguments.rounds, arguments.queries, arguments.methods = 1_000_000, 3, BATCH, QUICK
    return arguments


def chosen(methods: str, base: str) -> list[str]:
    if methods in ("fast", "all"):
        return [name for name in ALL if name != base and (methods == "all" or name not in SLOW)]
    unknown = set(methods.split(",")) - set(ALL)
    if unknown:
        raise SystemExit(f"unknown methods: {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    return [name for name in methods.split(",") if name != base]


def main() -> None:
    arguments = parse()
    names = chosen(arguments.methods, arguments.base)
    set_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.dir or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        task = prepared(directory, arguments)
        rows, ratios = compare(task, names, arguments.rounds, arguments.base, CLOCKS[arguments.clock])
        figures, more = {}, {}
        if arguments.base == OURS:
            figures, more = figures_of_ours(task.vectors, task.queries[:BATCH], arguments.rounds, directory)
    for name, value in (figures | ratios | more).items():
        print(f"{name:60} {value:.4g}")
    facts = {"data": arguments.data, "n": arguments.n, "dim": arguments.dim, "rounds": arguments.rounds, "figures": figures}
    print(json.dumps(result("mips", arguments.threads, rows=rows, ratios=ratios | more, **facts)))


if __name__ == "__main__":
    main()
