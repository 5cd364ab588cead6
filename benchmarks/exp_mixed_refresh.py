"""Is a mixed index better than a whole one? Real pre-training runs with the product's own refreshes, at an equal number of embeddings.

    python benchmarks/exp_mixed_refresh.py --work DIRECTORY --seeds 3

Each seed trains preset ``tiny`` on a part of the atlas up to ICT once, and then pre-trains from there with each method:

whole       all blocks every 16 steps
oldest      a quarter of the blocks every 4 steps, those that were embedded longest ago
retrieved   a quarter of the blocks every 4 steps, half of them the oldest, half those that training queries retrieved most

in two modes: ``inline`` searches an index from the step on whose parameters made it; ``beside`` has a refresher that takes exactly until
the next refresh is due, as one beside the trainer does whose budget is used up, so that a whole index is 16 steps old when it is first
searched and a mixed one 4. (A real process would make the comparison depend on what else the machine does.)

What counts is the recall of the true top 8 of the live parameters over held-out masked sentences, without excluded blocks, at three moments
of the second half, each of another phase between two whole refreshes; and what the stage ends with: probe recall and held-out marginal
utility under its last index, which is whole with every method. Prints one JSON object as its last line.
"""

import argparse
import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import result
from realm.config import build_recipe
from realm.data.loader import WHOLE, Share
from realm.demo.atlas import write_atlas
from realm.index.exact import ExactIndex
from realm.nn.model import RealmModel
from realm.paths import RunPaths
from realm.pipeline import run_recipe
from realm.progress import Progress
from realm.recipes.context import open_context, train
from realm.recipes.pretrain import staleness
from realm.recipes.pretrain.stage import starting_model
from realm.recipes.pretrain.task import PretrainTask
from realm.refresh import Generation, embed_corpus, refresh_index
from realm.refresh.swapping import Inline
from realm.train.loop import StepResult
from realm.train.metrics import MetricsLog

TOP = 8
QUERIES = 64
PART = 4
staleness.QUERIES, staleness.BLOCKS = 2, 16  # what a swap measures costs more than it embeds, on so small a corpus
METHODS = {"whole": (4 * PART, 1.0, "oldest"), "oldest": (PART, 0.25, "oldest"), "retrieved": (PART, 0.25, "retrieved")}


def recipe_of(work: Path, seed: int, steps: int, lr: float) -> Any:
    values = {
        "run": {"seed": seed, "threads": torch.get_num_threads(), "device": "cpu", "checkpoint_every": 0, "tensorboard": False},
        "corpus": {
            "sources": [str(work / "atlas" / "documents.jsonl")],
            "gazetteer": str(work / "atlas" / "gazetteer.txt"),
            "vocab_size": 3000,
        },
        "model": {"preset": "tiny", "dropout": 0.0, "query_length": 48},
        "warm": {"steps": 100, "check_every": 100},
        "ict": {"steps": 60, "batch": 32},
        "pretrain": {
            "steps": steps,
            "batch": 4,
            "candidates": 4,
            "lr": lr,
            "refresh": "inline",
            "force": True,
            "held_out": QUERIES,
            "eval_every": steps,
            "probe_queries": QUERIES,
        },
    }
    return build_recipe(values, path=work / "recipe.toml")


class Late(Inline):
    """A refresher that takes exactly until the next refresh is due: what was asked for then is searched from there on."""

    ready: Generation | None = None

    def between(self, step: int, model: RealmModel) -> Generation | None:
        if not self.schedule.due(step):
            return None
        if self.generation is None or step == self.schedule.steps:
            return self.settle(step, model)
        found = self.ready
        if found is not None:
            self.generation = found
            self.renewal.searched(found.snapshot)
        partial, protect = self.renewal.request(), self.protect() | {self.generation.number}
        self.ready = refresh_index(model, self.inputs, self.paths, step=step, protect=protect, partial=partial)
        return found


class Measured(PretrainTask):
    """Pre-training that looks now and then at what its index finds of the true top."""

    found: list[float]

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        if (step - self.section.steps // 2) % 12 == 2 and step >= self.section.steps // 2:
            self.found.append(self.recall())
        return super().step(step, share)

    @torch.inference_mode()
    def recall(self) -> float:
        """Recall of the true top of the live parameters."""
        inputs, queries = self.context.inputs, self.held_out_queries()
        sequences, excluded = [inputs.featurizer.query(query.ids) for query in queries], [query.excluded for query in queries]
        rows = np.arange(len(inputs.store))
        live = ExactIndex(embed_corpus(self.model.documents, inputs, rows), np.asarray(inputs.store.block_ids))
        true = live.search(self.model.embedder.eval()(sequences), TOP, excluded)
        found = self.generation.index.search(self.generation.queries(sequences), TOP, excluded)
        self.model.train()
        return float(np.mean([len(np.intersect1d(a, b)) / TOP for a, b in zip(found.ids, true.ids, strict=True)]))


def started(work: Path, seed: int, steps: int, lr: float) -> RunPaths:
    """The run of a seed up to ICT; a second call takes what is there."""
    if not (work / "atlas").exists():
        write_atlas(work / "atlas", domains=("countries", "us_states"))
    paths = RunPaths(work / f"seed-{seed}")
    run_recipe(recipe_of(work, seed, steps, lr), paths.root, stages=("corpus", "warm", "ict"), progress=Progress(quiet=True))
    return paths


def pretrained(start: RunPaths, recipe: Any, mode: str, method: str) -> dict[str, float]:
    """Pre-train from there with one method. Returns its numbers; a second call reads them."""
    paths = RunPaths(start.root.with_name(f"{start.root.name}-{mode}-{method}"))
    kept = paths.root / "measured.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    shutil.rmtree(paths.root, ignore_errors=True)
    shutil.copytree(start.root, paths.root, ignore=shutil.ignore_patterns("index", "params", "metrics.jsonl"))
    every, budget, first = METHODS[method]
    refresher = replace(recipe.refresher, budget=budget, first=first)
    recipe = replace(recipe, pretrain=replace(recipe.pretrain, refresh_every=every), refresher=refresher)
    context = open_context(paths, recipe, lambda *_: None)
    task = Measured(context, starting_model(context))
    task.found = []
    if mode == "beside":
        like = task.source
        task.source = Late(like.paths, like.inputs, like.device, like.schedule, like.protect, like.options, like.renewal)
    train(context, task, recipe.pretrain, "measured")
    last = {key: value for row in MetricsLog(paths.metrics).rows() if row["stage"] == "pretrain" for key, value in row.items()}
    numbers = {"recall": float(np.mean(task.found)), "probe_recall": last["probe_recall"], "utility": last["held_out_utility"]}
    kept.write_text(json.dumps(numbers))
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for the runs; a second call goes on there")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--modes", nargs="+", default=["beside", "inline"], choices=["beside", "inline"])
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: dict[tuple[str, str], list[dict[str, float]]] = {}
    for mode in options.modes:
        for seed in range(options.seeds):
            start = started(options.work, seed, options.steps, options.lr)
            recipe = recipe_of(options.work, seed, options.steps, options.lr)
            for method in METHODS:
                began = time.perf_counter()
                numbers = pretrained(start, recipe, mode, method)
                rows.setdefault((mode, method), []).append(numbers)
                print(f"{mode}, seed {seed}, {method}: {numbers}, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    table = [
        {"method": method, "mode": mode, **{key: [round(of[key], 4) for of in found] for key in found[0]}}
        for (mode, method), found in rows.items()
    ]
    ratios = {
        f"{mode}: {method} to whole, recall": float(
            np.mean([of["recall"] for of in found]) / np.mean([of["recall"] for of in rows[mode, "whole"]])
        )
        for (mode, method), found in rows.items()
    }
    print(json.dumps(result("mixed refresh", options.threads, rows=table, ratios=ratios)))


if __name__ == "__main__":
    main()
