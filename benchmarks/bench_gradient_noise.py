"""How much of the retriever's gradient is signal: the share of its energy that two batches have in common, for each way to teach it.

    python benchmarks/bench_gradient_noise.py RUN --batch 16 --pairs 8

RUN has ended pre-training: its networks and its index are taken as they are, and nothing is trained. For each variant of [pretrain] the
same sentences are drawn in pairs of batches. With g and h the gradients of a pair by the embedder's weights, the share is
E[g.h] / E[(|g|^2 + |h|^2) / 2]: 1 where every batch says the same, 0 where each says something of its own. Adam makes steps of the same
size of either. A batch m times as large has the share m s / (1 + (m - 1) s), which is said beside it. The interval is a bootstrap over
pairs. The last line is one JSON object.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import result
from realm.nn.model import RealmModel
from realm.opening import read_run_recipe
from realm.paths import RunPaths
from realm.recipes.context import StageContext, load_stage, open_context, stage_facts
from realm.recipes.pretrain.task import PretrainTask
from realm.refresh import open_generation

VARIANTS: dict[str, dict[str, Any]] = {
    "marginal": {"objective": "marginal"},
    "emdr2": {"objective": "emdr2"},
    "distill": {"objective": "distill"},
    "distill, no null document": {"objective": "distill", "null": False},
    "marginal, in batch": {"objective": "marginal", "in_batch": True},
    "emdr2, in batch": {"objective": "emdr2", "in_batch": True},
    "marginal, span shown": {"objective": "marginal", "shown": 1.0},
}
LARGER = (64, 256)
DRAWS = 2000


def gradients(context: StageContext, model: RealmModel, batches: int) -> Iterator[torch.Tensor]:
    """The gradient of the mean loss by the embedder's weights, float32 [n], of one batch after another.

    Without its single numbers, the temperature and the null document's offset: every sentence pulls them the same way.
    """
    task = PretrainTask(context, model)
    number = stage_facts(context.paths, "pretrain")["generation"]
    task.generation = open_generation(context.paths, context.inputs, number, device=context.device)
    weights = [parameter for parameter in model.embedder.parameters() if parameter.requires_grad and parameter.numel() > 1]
    model.train()
    for step in range(batches):
        torch.manual_seed(step)
        found = torch.autograd.grad(task.step(step).mean, weights, allow_unused=True)
        parts = [torch.zeros(w.numel()) if g is None else g.float().flatten().cpu() for g, w in zip(found, weights, strict=True)]
        yield torch.cat(parts)


def share_of(products: np.ndarray, energies: np.ndarray) -> dict[str, Any]:
    """The share with its 95 % interval over pairs; products and energies are float64 [p]."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(products), size=(DRAWS, len(products)))
    low, high = np.quantile(products[drawn].sum(1) / energies[drawn].sum(1), (0.025, 0.975))
    return {"share": float(products.sum() / energies.sum()), "interval": [float(low), float(high)]}


def measure(context: StageContext, changes: dict[str, Any], batch: int, pairs: int) -> dict[str, Any]:
    """One row: the share of a variant."""
    taught = replace(
        context.recipe.pretrain, batch=batch, accumulate=1, steps=2 * pairs, reader_first=0, own_block=0.0, retriever_rate=1.0, **changes
    )
    context = replace(context, recipe=replace(context.recipe, pretrain=taught))
    model = load_stage(context, "pretrain")
    products, energies = [], []
    found = gradients(context, model, 2 * pairs)
    for first, second in zip(found, found, strict=True):
        products.append(float(first @ second))
        energies.append(float(first @ first + second @ second) / 2)
    row = share_of(np.array(products), np.array(energies))
    share = max(0.0, row["share"])
    grown = {str(size): size / batch * share / (1 + (size / batch - 1) * share) for size in LARGER}
    return row | {"batch": batch, "pairs": pairs, "share_at": grown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    arguments = parser.parse_args()
    paths = RunPaths(arguments.run)
    context = open_context(paths, read_run_recipe(paths), lambda *_: None)
    rows = {}
    for name in arguments.variants:
        rows[name] = measure(context, VARIANTS[name], arguments.batch, arguments.pairs)
        print(name, json.dumps(rows[name]), flush=True)
    print(json.dumps(result("gradient noise", torch.get_num_threads(), run=str(arguments.run), rows=rows)))


if __name__ == "__main__":
    main()
