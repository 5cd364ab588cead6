"""Do links teach a retriever? ICT over a published body, with and without linked documents as positives, and the body as it is.

    python benchmarks/bench_link_positives.py DOCUMENTS.jsonl ... --questions QA.jsonl --scratch DIR

For each seed two runs of the stage ict, [ict] linked = 0 and --linked, from the same weights over the same corpus; then recall by answer of
dense search alone, over an index of each. Differences are paired by question, with 95 % bootstrap intervals over the means of the seeds.
"named" is the share of blocks of which a sentence names a linked document. The last line is one JSON object.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import result
from realm.config import build_recipe
from realm.data.loader import generator
from realm.data.questions.loading import load_questions
from realm.nn.model import RealmModel
from realm.paths import RunPaths
from realm.pipeline import run_recipe
from realm.progress import Progress
from realm.recipes.context import StageContext, load_stage, open_context, publish_index, source_over
from realm.recipes.evaluate import rank
from realm.recipes.ict import InverseCloze
from realm.recipes.scoring import Relevance
from realm.recipes.starting import new_model

DEPTHS = (1, 5, 20)
DRAWS = 10_000


def opened(arguments: argparse.Namespace, seed: int, linked: float) -> StageContext:
    """A run whose stage ict is published."""
    root = arguments.scratch / f"seed-{seed}-linked-{linked:g}"
    values: dict[str, Any] = {
        "run": {"seed": seed, "threads": arguments.threads, "device": "cpu"},
        "model": {"body": "minilm"},
        "corpus": {"sources": [str(path.resolve()) for path in arguments.documents]},
        "retrieval": {"kind": "dense"},
        "ict": {"steps": arguments.steps, "batch": arguments.batch, "lr": arguments.lr, "warmup": arguments.steps // 10, "linked": linked},
        "pretrain": {"from_ict": True, "steps": 1},
    }
    recipe = build_recipe(values)
    run_recipe(recipe, root, stages=("corpus", "ict"), progress=Progress(quiet=True))
    return open_context(RunPaths(root), recipe, lambda *_: None)


def hits(context: StageContext, model: RealmModel, arguments: argparse.Namespace, name: str) -> np.ndarray:
    """bool [n, depths]: whether a block with an answer is among the best, of each question."""
    paths = RunPaths(arguments.scratch / "indexes" / f"{context.paths.root.name}-{name}")
    generation = publish_index(context, model, paths)
    source = source_over(context, generation.queries, generation, paths)
    rankings = rank(source, Relevance(context.store, "normalised"), load_questions(arguments.questions), max(DEPTHS))
    return np.array([[ranking.by_answer[:depth].any() for depth in DEPTHS] for ranking in rankings])


def named_share(context: StageContext) -> float:
    """The share of blocks of which a sentence names a linked document."""
    cloze = InverseCloze(context.store, keep_rate=1.0, linked=1.0)
    examples = [cloze.example(item, generator(0, item)) for item in range(len(cloze))]
    own = [int(context.store.block_ids[row]) for row in cloze.rows]
    return float(np.mean([example.block_id != block for example, block in zip(examples, own, strict=True)]))


def show(name: str, found: np.ndarray, **facts: Any) -> None:
    """One row while the others are still to come: recall in percent at each depth."""
    print(json.dumps({"row": name, **facts, "recall": (100 * found.mean(0)).round(2).tolist()}), flush=True)


def difference(ours: np.ndarray, other: np.ndarray) -> dict[str, list[float]]:
    """Mean difference in points at each depth with its interval; hits [seeds, n, depths]."""
    each = 100.0 * (ours.mean(0) - other.mean(0))
    drawn = np.random.default_rng(0).integers(len(each), size=(DRAWS, len(each)))
    found = {}
    for at, depth in enumerate(DEPTHS):
        low, high = np.percentile(each[drawn, at].mean(1), [2.5, 97.5])
        found[str(depth)] = [round(float(value), 2) for value in (each[:, at].mean(), low, high)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path, nargs="+")
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--linked", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows: dict[str, list[np.ndarray]] = {"published": [], "ict": [], "ict with links": []}
    facts: dict[str, Any] = {}
    for seed in arguments.seeds:
        for name, linked in (("ict", 0.0), ("ict with links", arguments.linked)):
            context = opened(arguments, seed, linked)
            if not facts:
                facts = {"blocks": len(context.store), "named": round(named_share(context), 3)}
                start = new_model(context).with_parts(encoder=None)
                rows["published"] = [hits(context, start, arguments, "published")] * len(arguments.seeds)
                show("published", rows["published"][0], **facts)
            rows[name].append(hits(context, load_stage(context, "ict"), arguments, "ict"))
            show(name, rows[name][-1], seed=seed)
    found = {name: np.array(values, float) for name, values in rows.items()}
    depths = [str(depth) for depth in DEPTHS]
    recall = {name: dict(zip(depths, (100 * values.mean((0, 1))).round(2).tolist(), strict=True)) for name, values in found.items()}
    compared = {f"ict with links minus {name}": difference(found["ict with links"], found[name]) for name in ("ict", "published")}
    settings = {name: getattr(arguments, name) for name in ("seeds", "linked", "steps", "batch", "lr")}
    print(json.dumps(result("links as positives", arguments.threads, **settings, **facts, recall=recall, differences=compared)))


if __name__ == "__main__":
    main()
