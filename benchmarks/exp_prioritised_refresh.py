"""Is it better to re-embed some blocks often than all blocks rarely? An experiment on the parameters of real pre-training runs.

    python benchmarks/exp_prioritised_refresh.py --work DIRECTORY --seeds 3

Each seed trains preset ``tiny`` on a part of the atlas and keeps the index of every few steps (``TICK``), so that the embeddings of all
blocks under the parameters of every tick are known. Then refreshing is played through with the same number of embeddings a tick:

whole       all blocks under one version of the parameters, published when the last is done; searched by the embedder of that version or
            by the live one, whichever finds more (given to it)
round robin the blocks that were embedded longest ago; the rows of the index are of many versions, the live embedder searches
retrieved   the blocks that the training queries since their last embedding retrieved most
as built    half of the budget so, half as round robin: ``refresher.first = "retrieved"``
moved       a tenth of the budget goes to random blocks; who lies near those that moved most is embedded
oracle      the blocks that did move most: what no method could know

What counts is the recall of the true top 8 of the current parameters over held-out masked sentences, without excluded blocks, averaged
over ticks after the first whole refresh. Prints one JSON object as its last line.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import result
from realm.config import build_recipe
from realm.demo.atlas import write_atlas
from realm.index.snapshot import Snapshot
from realm.nn.model import RealmModel
from realm.paths import RunPaths
from realm.pipeline import run_recipe
from realm.progress import Progress
from realm.recipes.context import open_context
from realm.recipes.pretrain.sentences import pretraining_sentences
from realm.refresh import parameters
from realm.refresh.mixing import RETRIEVED, first_rows
from realm.storage.generations import published_generations

TICK = 8
TOP = 8
HELD_OUT = 256
PER_TICK = 64
"""Training queries between two ticks: TICK steps of 8."""
SAMPLED = 0.1
NEIGHBOURS = 4
BUDGETS = (2, 4, 8)
"""Ticks that a whole refresh takes."""


@dataclass(frozen=True)
class History:
    """Embeddings of the same things under the parameters of every tick.

    Attributes:
        blocks: float32 [t, n, d].
        held_out, training: queries, float32 [t, q, d].
        hidden: bool [q, n], what a held-out query must not retrieve.
    """

    blocks: np.ndarray
    held_out: np.ndarray
    training: np.ndarray
    hidden: np.ndarray


def recipe_of(work: Path, seed: int, steps: int, lr: float) -> Any:
    values = {
        "run": {"seed": seed, "threads": torch.get_num_threads(), "device": "cpu", "checkpoint_every": 0},
        "corpus": {
            "sources": [str(work / "atlas" / "documents.jsonl")],
            "gazetteer": str(work / "atlas" / "gazetteer.txt"),
            "vocab_size": 3000,
        },
        "model": {"preset": "tiny", "dropout": 0.0, "query_length": 48},
        "warm": {"steps": 100, "check_every": 100},
        "ict": {"steps": 60, "batch": 32},
        "pretrain": {"steps": steps, "batch": 8, "candidates": 6, "lr": lr, "refresh": "inline", "refresh_every": TICK, "force": True},
    }
    return build_recipe(values, path=work / "recipe.toml")


def trained(work: Path, seed: int, steps: int, lr: float) -> tuple[RunPaths, Any]:
    """Pre-training with every generation kept. A second call takes what is there."""
    parameters.KEEP_GENERATIONS = sys.maxsize
    if not (work / "atlas").exists():
        write_atlas(work / "atlas", domains=("countries", "us_states"))
    recipe, paths = recipe_of(work, seed, steps, lr), RunPaths(work / f"seed-{seed}")
    run_recipe(recipe, paths.root, stages=("corpus", "warm", "ict", "pretrain"), progress=Progress(quiet=True))
    return paths, recipe


@torch.inference_mode()
def history(paths: RunPaths, recipe: Any) -> History:
    """Blocks as they were published at each tick, and masked sentences under the same parameters."""
    context = open_context(paths, recipe, lambda *_: None)
    sentences, rng = pretraining_sentences(context), np.random.default_rng(0)
    picked = rng.permutation(len(sentences))[: HELD_OUT + 8 * PER_TICK]
    queries = [sentences.query(int(item), rng) for item in picked]
    sequences = [context.inputs.featurizer.query(query.ids) for query in queries]
    manifest, blocks, embedded = context.store.manifest, [], []
    for number in published_generations(paths.index):
        owner = {"corpus_id": manifest.corpus_id, "tokenizer_sha256": manifest.tokenizer_sha256}
        snapshot = Snapshot.open(paths.index, number, **owner, document_embedder_sha256=None)
        blocks.append(np.array(snapshot.vectors))
        model = RealmModel.from_pretrained(parameters.parameters_path(paths, number)).eval()
        embedded.append(model.embedder(sequences).numpy())
    hidden = np.stack([np.isin(snapshot.block_ids, query.excluded) for query in queries[:HELD_OUT]])
    every = np.stack(embedded)
    return History(np.stack(blocks), every[:, :HELD_OUT], every[:, HELD_OUT:], hidden)


def top(queries: np.ndarray, rows: np.ndarray, hidden: np.ndarray | None = None) -> np.ndarray:
    """[q, TOP]: the best rows of each query."""
    scores = queries @ rows.T
    if hidden is not None:
        scores = np.where(hidden, -np.inf, scores)
    return np.argpartition(-scores, TOP, axis=1)[:, :TOP]


def recall(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.mean([len(np.intersect1d(a, b)) / TOP for a, b in zip(found, true, strict=True)]))


class Mixed:
    """An index whose rows are of different ticks; ``choose`` says which are embedded next."""

    def __init__(self, of: History, budget: int, choose: Callable[["Mixed", int], np.ndarray]):
        self.of, self.budget, self.choose = of, budget, choose
        self.rows = of.blocks[0].copy()
        self.age = np.zeros(self.rows.shape[0], np.int64)
        self.counts = np.zeros(self.rows.shape[0], np.int64)
        self.rng = np.random.default_rng(1)

    def tick(self, now: int) -> None:
        """The training queries of a tick are answered, then the chosen blocks are embedded under the parameters of now."""
        pool = self.of.training[now]
        asked = pool[self.rng.permutation(len(pool))[:PER_TICK]]
        np.add.at(self.counts, top(asked, self.rows).ravel(), 1)
        self.embed(self.choose(self, now), now)

    def embed(self, chosen: np.ndarray, now: int) -> None:
        self.rows[chosen], self.age[chosen], self.counts[chosen] = self.of.blocks[now][chosen], now, 0


def longest_ago(index: Mixed, now: int) -> np.ndarray:
    return np.argsort(index.age, kind="stable")[: index.budget]


def most_retrieved(index: Mixed, now: int) -> np.ndarray:
    return np.lexsort((index.age, -index.counts))[: index.budget]


def most_moved(index: Mixed, now: int) -> np.ndarray:
    """Movement is measured on a sample; others are taken to have moved as fast as their nearest neighbours in it."""
    sample = index.rng.permutation(len(index.rows))[: max(NEIGHBOURS, int(SAMPLED * index.budget))]
    moved = np.linalg.norm(index.of.blocks[now][sample] - index.rows[sample], axis=1) / np.maximum(1, now - index.age[sample])
    distance = ((index.rows[:, None] - index.rows[None, sample]) ** 2).sum(-1)
    near = np.argpartition(distance, NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS]
    expected = moved[near].mean(1) * (now - index.age)
    expected[sample] = np.inf  # embedded already, to be measured
    return np.argsort(-expected, kind="stable")[: index.budget]


def truly_moved(index: Mixed, now: int) -> np.ndarray:
    return np.argsort(-np.linalg.norm(index.of.blocks[now] - index.rows, axis=1), kind="stable")[: index.budget]


def as_built(index: Mixed, now: int) -> np.ndarray:
    """What ``refresher.first = "retrieved"`` does."""
    return np.flatnonzero(first_rows(index.age, index.counts, (index.budget - 0.5) / len(index.age), RETRIEVED))


METHODS = {"round robin": longest_ago, "retrieved": most_retrieved, "as built": as_built, "moved": most_moved, "oracle": truly_moved}


def whole(of: History, ticks: int, late: int) -> list[float]:
    """Recall at each tick of an index that is exchanged whole, every so many ticks; its parameters are ``late`` refreshes older."""
    found = []
    for now in range(ticks, len(of.blocks)):
        made = (now // ticks - late) * ticks
        true = top(of.held_out[now], of.blocks[now], of.hidden)
        found.append(max(recall(top(of.held_out[by], of.blocks[made], of.hidden), true) for by in (made, now)))
    return found


def mixed(of: History, ticks: int, choose: Callable[[Mixed, int], np.ndarray]) -> list[float]:
    index, found = Mixed(of, -(-of.blocks.shape[1] // ticks), choose), []
    for now in range(1, len(of.blocks)):
        index.tick(now)
        if now >= ticks:
            true = top(of.held_out[now], of.blocks[now], of.hidden)
            found.append(recall(top(of.held_out[now], index.rows, of.hidden), true))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for the runs; a second call goes on there")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    table: dict[tuple[int, str], list[float]] = {}
    drift: list[float] = []
    for seed in range(options.seeds):
        started = time.perf_counter()
        of = history(*trained(options.work, seed, options.steps, options.lr))
        drift.append(recall(top(of.held_out[-1], of.blocks[0], of.hidden), top(of.held_out[-1], of.blocks[-1], of.hidden)))
        for ticks in BUDGETS:
            for name, late in (("whole", 1), ("at once", 0)):
                table.setdefault((ticks, name), []).append(float(np.mean(whole(of, ticks, late))))
            for name, choose in METHODS.items():
                table.setdefault((ticks, name), []).append(float(np.mean(mixed(of, ticks, choose))))
        print(f"seed {seed}: {of.blocks.shape}, {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    rows = [
        {"method": f"{name}, whole refresh in {ticks} ticks", "recall": [round(v, 4) for v in values]}
        for (ticks, name), values in table.items()
    ]
    ratios = {f"{name} wins, {ticks} ticks": float(np.mean(np.array(table[ticks, name]) > table[ticks, "whole"])) for ticks, name in table}
    fields = {"rows": rows, "ratios": ratios, "recall of the first index at the end": [round(v, 4) for v in drift]}
    print(json.dumps(result("prioritised refresh", options.threads, **fields)))


if __name__ == "__main__":
    main()
