"""What pointing costs: a pre-training step of the reader that points beside one of the encoder that fills masks, and the memory of each.

    python benchmarks/bench_pointer_step.py RUN --rounds 5 --threads 2

RUN has an index of a published body (realm index build DOCS --body minilm --out RUN). Both forms start from its weights and learn from the
same sentences with recurring spans and the same candidates, retriever and reader together; the ways take turns, and the first round does
not count. "reader alone" is a step of pretrain.reader_first. Times are medians; memory is what a step took beyond what was there before.
The last line is one JSON object.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from common import result
from memory import Extra
from realm.nn.bodies import freeze_words
from realm.nn.precision import multiplying
from realm.opening import read_run_recipe
from realm.paths import RunPaths
from realm.recipes.context import StageContext, open_context, stage_facts
from realm.recipes.pretrain.stage import starting_model
from realm.recipes.pretrain.task import PretrainTask
from realm.refresh import open_generation

WAYS: dict[str, dict[str, Any]] = {
    "mlm": {"fill": "mlm"},
    "pointer": {"fill": "pointer"},
    "pointer, reader alone": {"fill": "pointer", "reader_first": 1_000_000},
}


def stepping(context: StageContext, changes: dict[str, Any], batch: int, candidates: int) -> Callable[[int], float]:
    """What takes one step, forward, backward and optimiser, and returns its loss."""
    same: dict[str, Any] = {"masking": "recurring", "exclude": "document", "proposals": 50, "retriever_rate": 1.0, "steps": 1}
    same |= {"from_ict": False, "from_warm": False, "own_block": 0.0, "questions": 0.0, "held_out": 0}
    section = replace(context.recipe.pretrain, batch=batch, candidates=candidates, **same, **changes)
    here = replace(context, recipe=replace(context.recipe, pretrain=section))
    model = starting_model(here)
    freeze_words(model)
    task = PretrainTask(here, model)
    task.generation = open_generation(here.paths, here.inputs, stage_facts(here.paths, "pretrain")["generation"], device=here.device)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-5)

    def step(number: int) -> float:
        model.train()
        torch.manual_seed(number)
        with multiplying("cpu", bf16=here.recipe.run.bf16):
            loss = task.step(number).mean
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    paths = RunPaths(arguments.run)
    context = open_context(paths, read_run_recipe(paths), lambda *_: None)
    torch.set_num_threads(arguments.threads)  # opening sets the run's own
    ways = {name: stepping(context, changes, arguments.batch, arguments.candidates) for name, changes in WAYS.items()}
    taken: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ways}
    for number in range(arguments.rounds + 1):
        for name, step in ways.items():
            extra, wall, worked = Extra(), time.perf_counter(), time.process_time()
            step(number)
            row = (time.perf_counter() - wall, time.process_time() - worked, extra.mib() or 0)
            if number:
                taken[name].append(row)
    rows = []
    for name, found in taken.items():
        seconds, processor, mib = (median(column) for column in zip(*found, strict=True))
        rows.append({"way": name, "seconds": round(seconds, 3), "processor_seconds": round(processor, 3), "extra_mib": mib})
        print(json.dumps(rows[-1]), flush=True)
    facts = {"batch": arguments.batch, "candidates": arguments.candidates, "bf16": context.recipe.run.bf16, "rounds": arguments.rounds}
    print(json.dumps(result("pointer step", arguments.threads, **facts, rows=rows)))


if __name__ == "__main__":
    main()
