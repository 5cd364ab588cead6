"""What do more processes bring? Actors on Ray beside one process, an actor killed in the midst, two ranks of torchrun beside one.

    python -m benchmarks.training.bench_pool DATA/corpus/simplewiki_2021.jsonl.xz --blocks 20000 --rounds 2 --scratch DIR

Embedding: the released model over the first ``--blocks`` blocks, published each time as ``realm refresh`` does. All ways take turns; each
round has blocks of its own, as many as one thread embeds in ``--seconds``, in ``PARTS`` parts, so that two actors have equally many.
``start_s`` is what comes before: cluster, actors, network. One actor is killed over a part; vectors are compared with those of one thread,
ids with those of the corpus. Training: recipes/from-nothing.toml with few steps, in float32, so that losses can be compared; steps a second
are the loop's, by its log. The last line is one JSON object.
"""

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import torch

from benchmarks.common import REALM, result, take_documents
from realm.experiments.atlas import ASKED, write_atlas
from realm.progress import Progress
from realm.recipe import build_recipe
from realm.runs.run import run_recipe
from realm.search.publishing import embedding, parameters
from realm.search.publishing.embedding import EmbedOptions, PartsOf, embed_parts
from realm.search.publishing.refresher import build_generation
from realm.search.publishing.snapshot import shard_names
from realm.storage.generations import generation_path
from realm.storage.layout import RunPaths
from realm.storage.metrics import MetricsLog
from realm.training.context import open_context
from realm.training.pool import BuilderPool, connected, ray
from realm.training.starting import new_model

ONE, KILLED = "one process, 1 thread", "2 actors, one killed"
WAYS = {ONE: (0, 1), "one process, 2 threads": (0, 2), "1 actor": (1, 1), "2 actors": (2, 1), KILLED: (2, 1)}
"""Actors, and threads of each or of the process."""
TRAINED = {"1 rank, 1 thread": (1, 1), "1 rank, 2 threads": (1, 2), "2 ranks of 1 thread": (2, 1)}
PARTS, WARM = 4, 256
"""Parts of a measurement; blocks that are embedded before its clock starts."""
SETTINGS = """--set run.bf16=false --set run.checkpoint_every=0 --set warm.steps={steps} --set warm.least_steps={steps}
 --set ict.steps={steps} --set pretrain.steps={half} --set pretrain.held_out=0 --set pretrain.force=true
 --set pretrain.refresh=frozen --set eval.qa="""
RECIPE = Path(__file__).parents[2] / "recipes" / "from-nothing.toml"


@contextmanager
def embedders(actors: int, threads: int) -> Iterator[tuple[PartsOf, BuilderPool | None]]:
    """This process or a pool, in a cluster of its own that ends with it."""
    torch.set_num_threads(threads)
    if not actors:
        yield embed_parts, None
        return
    with connected(cpus=actors * threads), BuilderPool(actors) as pool:
        yield pool.parts, pool


class Embedding:
    """The corpus, the released model, and an index for each measurement."""

    def __init__(self, documents: Path, blocks: int, scratch: Path):
        take_documents(documents, scratch / "documents.jsonl", blocks, 160)
        corpus = {"sources": [str(scratch / "documents.jsonl")]}
        recipe, self.paths = build_recipe({"model": {"body": "realm-minilm-en"}, "corpus": corpus}), RunPaths(scratch / "run")
        run_recipe(recipe, self.paths.root, stages=("corpus",), progress=Progress(quiet=True))
        context = open_context(self.paths, recipe, lambda *_: None)
        self.inputs, self.bf16, self.model = context.inputs, recipe.run.bf16, new_model(context).eval().requires_grad_(False)
        self.blocks = np.arange(min(blocks, len(self.inputs.store)))

    def measure(self, way: str, rows: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
        """Embed rows and publish them as an index of their own; its vectors."""
        (actors, threads), network, paths = WAYS[way], self.model.documents, self.paths
        options, began = EmbedOptions(threads=threads, bf16=self.bf16), time.perf_counter()
        number, row = parameters.request_index(self.model, paths, 0), {"method": way}
        folder = parameters.parameters_path(paths, number)
        with embedders(actors, threads) as (parts_of, pool), parameters.publishing(paths.index):
            embedding.PART_ROWS = WARM // 4
            list(parts_of(network, folder, self.inputs, rows[:WARM], options, None)(0))
            embedding.PART_ROWS, pids, started = math.ceil(len(rows) / PARTS), self._pids(pool), time.perf_counter()

            def tell(done: int, total: int) -> None:
                if way == KILLED and done <= embedding.PART_ROWS:  # the first part has come: in half its time the next is under way
                    Timer((time.perf_counter() - started) / 2, os.kill, (pids[0], signal.SIGKILL)).start()

            facts = parameters.read_facts(folder)
            assert facts is not None
            build_generation(paths, self.inputs, number, network, facts, options, tell, parts_of, (rows, {}))
            seconds = time.perf_counter() - started
            row |= {"seconds": seconds, "blocks_per_second": len(rows) / seconds, "start_s": started - began}
            row |= {"actors_replaced": len(set(pids) - set(self._pids(pool)))} if way == KILLED else {}
        vectors, ids = (np.load(generation_path(paths.index, number) / name) for name in shard_names(0))
        return row | {"every_block_once": np.array_equal(ids, np.asarray(self.inputs.store.block_ids)[rows])}, vectors

    def _pids(self, pool: BuilderPool | None) -> list[int]:
        asked = [actor.ready.options(max_task_retries=-1).remote() for actor in pool._actors] if pool else []
        return [pid for _, pid in ray().get(asked)] if asked else []

    def round(self, rows: np.ndarray, ways: list[str]) -> list[dict[str, Any]]:
        """All ways over the same rows; the vectors of each compared with those of one thread."""
        found, vectors = [], {}
        for way in ways:
            row, vectors[way] = self.measure(way, rows)
            found.append(shown(row))
        for row in found:
            own, one = vectors[row["method"]], vectors[ONE]
            row |= {"same_bytes": np.array_equal(own, one), "largest_difference": float(np.abs(own - one).max())}
        parameters.prune_run(self.paths, frozenset())
        return found


class Training:
    """The recipe, its atlas and a corpus, which each training starts from."""

    def __init__(self, steps: int, scratch: Path):
        self.recipe, self.scratch = scratch / "recipes" / RECIPE.name, scratch
        self.first: dict[str, Any] = {}
        self.recipe.parent.mkdir()
        shutil.copy(RECIPE, self.recipe)
        write_atlas(scratch / "runs" / "atlas", ASKED)
        self.settings = SETTINGS.format(steps=steps, half=steps // 2).split()
        self._run(REALM, scratch / "base", "corpus", 2)

    def _run(self, launcher: tuple[str, ...], out: Path, stages: str, threads: int) -> None:
        command = [*launcher, "run", str(self.recipe), "--out", str(out), "--stages", stages, *self.settings]
        subprocess.run([*command, "--set", f"run.threads={threads}"], check=True, capture_output=True)

    def measure(self, way: str) -> dict[str, Any]:
        """Train once; of each stage its losses and its steps a second, those before its first row of the log left out if there are more."""
        (ranks, threads), out = TRAINED[way], self.scratch / "trained"
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m", "realm")
        shutil.copytree(self.scratch / "base", out)
        started = time.perf_counter()
        self._run(torchrun if ranks > 1 else REALM, out, "warm,ict,pretrain", threads)
        row: dict[str, Any] = {"method": way, "seconds": time.perf_counter() - started}
        for stage in ("warm", "ict", "pretrain"):
            log = [one for one in MetricsLog(out / "metrics.jsonl").rows() if one["stage"] == stage and "loss" in one]
            steps, seconds = log[-1]["step"] - log[0]["step"], log[-1]["time"] - log[0]["time"]
            row[f"{stage}, steps a second"] = 1 / log[0]["seconds_per_step"] if stage == "pretrain" else steps / seconds
            row[f"{stage}, losses"] = [one["loss"] for one in log]
        self.first = self.first or row
        for key in [key for key in row if key.endswith("losses")]:
            row[f"largest relative difference, {key}"] = max(abs(a / b - 1) for a, b in zip(row[key], self.first[key], strict=True))
        shutil.rmtree(out)
        return shown(row)


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """The row, written to standard error as soon as it is known."""
    print(row, file=sys.stderr, flush=True)
    return row


def medians(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each way, the medians of its times and rates, and the largest of its differences."""
    table: dict[str, dict[str, float]] = {}
    for way in dict.fromkeys(row["method"] for row in rows):
        found = [row for row in rows if row["method"] == way]
        for key in (key for key, value in found[0].items() if type(value) is float):
            best = max if key.startswith("largest") else statistics.median
            table.setdefault(way, {})[key] = best(row[key] for row in found)
    return table


def processor() -> str:
    """Name and number of the processor, and what it multiplies in fewer bits."""
    text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].replace("\t", "")
    lines = dict(line.split(":", 1) for line in text.splitlines())
    names = [name for name in lines["flags"].split() if name in ("avx2", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")]
    return f"{lines['model name'].strip()}, model {lines['model'].strip()}, {', '.join(names)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path, help="JSONL.xz of documents")
    parser.add_argument("--blocks", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=50.0, help="that one thread embeds for in a round, at most")
    parser.add_argument("--steps", type=int, default=40, help="of warm and ict, and half as many of pre-training")
    parser.add_argument("--scratch", type=Path, required=True)
    options = parser.parse_args()
    scratch = options.scratch.resolve() / "bench_pool"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    embeds, trains = Embedding(options.documents, options.blocks, scratch), Training(options.steps, scratch)
    speed = embeds.measure(ONE, embeds.blocks[:WARM])[0]["blocks_per_second"]
    share = min(len(embeds.blocks) // options.rounds, int(speed * options.seconds))
    embedded, trained = [], []
    for turn in range(options.rounds):
        order = -1 if turn % 2 else 1
        embedded += embeds.round(embeds.blocks[turn * share : (turn + 1) * share], [*WAYS][::order])
        trained += [trains.measure(way) for way in [*TRAINED][::order]]
    figures = {"processor": processor(), "blocks": len(embeds.blocks), "by_each_way": share * options.rounds, "bf16": embeds.bf16}
    table = medians(embedded) | medians(trained)
    print(json.dumps(result("pool", 2, **figures, medians=table, embedded=embedded, trained=trained)))


if __name__ == "__main__":
    main()
