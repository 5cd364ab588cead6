"""Where the time of a run goes: processor seconds of a step, an answer and a block, by kind of work.

    python benchmarks/bench_profile.py RUN --questions qa_train.jsonl.xz --steps 6 --threads 1

RUN has been pre-trained with a reader that points (recipes/squad-pointer.toml, even if it was stopped early). Measured is processor time
of this process, which other jobs disturb little: steps of the reader alone, of the retriever beside the reader as it is, of fine-tuning;
answers; blocks embedded for an index. Each goes from the weights of the run; the first turn of each does not count. What a whole run of the
recipe takes is the sum over its steps. The last line is one JSON object.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from common import result
from realm.data.questions import load_datasets, pooled
from realm.nn.bodies import freeze_words
from realm.opening import read_run_recipe
from realm.paths import RunPaths
from realm.recipes.context import StageContext, load_stage, open_context, source_over, stage_facts
from realm.recipes.finetune.task import ReadingTask
from realm.recipes.pretrain.held_out import evaluate_held_out
from realm.recipes.pretrain.stage import starting_model
from realm.recipes.pretrain.task import PretrainTask
from realm.refresh import embed_corpus, open_generation
from realm.timing import Stopwatch, charged, running
from realm.train.loop import LoopOptions, Task
from realm.train.optim import OPTIMIZERS
from realm.train.stepping import one_step

Turn = Callable[[int], None]
EMBEDDED, ANSWERED, HELD_OUT = 64, 16, 12


def stepping(context: StageContext, task: Task) -> Turn:
    """One optimiser step of a task."""
    if context.recipe.model.freeze_words:
        freeze_words(task.model)
    optimizer = OPTIMIZERS[context.recipe.run.optimizer].build([task.model], lr=1e-5, rates=task.rates)
    options = LoopOptions(steps=1_000_000, lr=1e-5, warmup=0, seed=context.seed, bf16=context.recipe.run.bf16)

    def turn(number: int) -> None:
        one_step(task, number, optimizer, options)

    return turn


def evaluating(task: PretrainTask) -> Turn:
    """An evaluation on a few held-out sentences."""
    queries = task.held_out_queries()[:HELD_OUT]

    def turn(_: int) -> None:
        with charged("evaluation", whole=True):
            evaluate_held_out(task.view, queries, task.section.batch)

    return turn


def works(context: StageContext, questions: Path, candidates: int) -> Iterator[tuple[str, Turn, int]]:
    """What is measured: its name, a turn of it, and how many of its units a turn makes."""
    paths, section = context.paths, context.recipe.pretrain
    generation = open_generation(paths, context.inputs, stage_facts(paths, "pretrain")["generation"], device=context.device)
    for name, first in (("step, reader alone", 1_000_000), ("step, retriever", 1)):
        here = replace(context, recipe=replace(context.recipe, pretrain=replace(section, reader_first=first, steps=2_000_000)))
        task = PretrainTask(here, starting_model(here))
        task.generation = generation
        yield name, stepping(here, task), 1
        if name == "step, retriever":
            yield "held-out sentence", evaluating(task), HELD_OUT
    model = load_stage(context, "pretrain").fork_document_embedder()
    asked = pooled(load_datasets((str(questions),)))[:200]
    tuned = ReadingTask("finetune", context, source_over(context, model.embedder, generation), model.reader, asked, [])
    yield "step, fine-tuning", stepping(context, tuned), 1
    texts = [question.text for question in asked[:ANSWERED]]

    def answer(_: int) -> None:
        tuned.answerer.answer(texts, k=context.recipe.read)

    yield "answer", answer, ANSWERED
    rows = np.flatnonzero(context.store.live)

    def embed(number: int) -> None:
        chosen = np.random.default_rng(number).choice(rows, EMBEDDED, replace=False)
        with charged("embedding", whole=True):
            embed_corpus(model.documents, context.inputs, chosen, bf16=context.recipe.run.bf16)

    yield "block embedded", embed, EMBEDDED


def measured(turn: Turn, count: int, first: int) -> dict[str, float]:
    """Median processor seconds of a turn, together and by kind of work."""
    taken = []
    for number in range(count + 1):
        with running(Stopwatch("other", clock=time.process_time)) as watch:
            turn(first + number)
            taken.append(watch.seconds())
    kinds = sorted({kind for seconds in taken[1:] for kind in seconds})
    by_kind = {kind: float(np.median([seconds.get(kind, 0.0) for seconds in taken[1:]])) for kind in kinds}
    return {"together": float(np.median([sum(seconds.values()) for seconds in taken[1:]])), **by_kind}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    paths = RunPaths(arguments.run)
    context = open_context(paths, read_run_recipe(paths), lambda *_: None)
    torch.set_num_threads(arguments.threads)  # opening sets the run's own
    rows = []
    for name, turn, units in works(context, arguments.questions, context.recipe.pretrain.candidates):
        count = arguments.steps if units == 1 else max(1, arguments.steps // 3)
        found = measured(turn, count, 2)
        rows.append({"work": name, **{kind: round(seconds / units, 5) for kind, seconds in found.items()}})
        print(json.dumps(rows[-1]), flush=True)
    print(json.dumps(result("profile", arguments.threads, bf16=context.recipe.run.bf16, steps=arguments.steps, rows=rows)))


if __name__ == "__main__":
    main()
