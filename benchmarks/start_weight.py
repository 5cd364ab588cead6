"""How much of a reader that has pointed should be left after a few questions? Exact match for several values of finetune.start_questions.

    python benchmarks/start_weight.py RUN --train DATA/squad/qa_train.jsonl.xz --labels 16 128 --worth 0 16 64 256

RUN has ended pre-training with pretrain.fill = "pointer". For each seed and number of labelled questions the reader learns once, over the
retriever as it is; its weights and those it began with are then mixed as finetune.start_questions would mix them. The questions that are
asked are others of --train, the same for all rows, so that no test question decides. The last line is one JSON object.
"""

import argparse
import copy
import dataclasses
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import result
from evidence import seed_context
from few_questions import learning
from realm.answerer import Answerer
from realm.candidates import DenseCandidates
from realm.data.questions.loading import load_questions, write_questions
from realm.data.types import Question
from realm.nn.reader import Reader
from realm.opening import read_run_recipe
from realm.paths import RunPaths
from realm.recipes.context import StageContext, fingerprint, load_stage, source_over, stage_facts
from realm.recipes.evaluate import evaluate_answers
from realm.recipes.finetune.task import ReadingTask, training_questions
from realm.recipes.finetune.training import blend, train_reader
from realm.recipes.scoring import Relevance
from realm.refresh import open_generation


def taught(context: StageContext, source: DenseCandidates, start: Reader, questions: list[Question], options: argparse.Namespace) -> Reader:
    """The reader after one pass over so many questions and at least --least steps, nothing of its start mixed in."""
    file = context.paths.root / f"train-{len(questions)}.jsonl"
    write_questions(file, questions)
    section = dataclasses.replace(context.recipe.finetune, train=str(file), start_questions=0, **learning(options, len(questions)))
    here = dataclasses.replace(context, recipe=dataclasses.replace(context.recipe, finetune=section))
    task = ReadingTask(f"reader-{len(questions)}", here, source, copy.deepcopy(start), *training_questions(here))
    train_reader(here, task, fingerprint(here, task.name, "pretrain", labels=str(len(questions)), steps=str(section.steps)))
    return task.reader.eval()


def rows_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for the reader as it is, then one for each seed, number of questions and value."""
    rest = load_questions(options.train)
    random.Random(-1).shuffle(rest)
    asked, rest = rest[: options.asked], rest[options.asked :]
    beside = options.run.with_name(f"{options.run.name}-start-weight")
    first = seed_context(options.run, 0, beside / "start")
    generation = open_generation(first.paths, first.inputs, stage_facts(first.paths, "pretrain")["generation"], device=first.device)
    left, relevance = load_stage(first, "pretrain"), Relevance(first.store, first.recipe.eval.match)
    source = source_over(first, left.embedder, generation).requires_grad_(False)

    def row(reader: Reader, **named: int) -> dict[str, Any]:
        answerer = Answerer(first.inputs, source.eval(), reader, versions={}, bf16=first.recipe.run.bf16)
        found = evaluate_answers(answerer, relevance, asked, options.read)
        return named | {"em": found["em"], "f1": found["f1"]}

    yield row(left.reader, labels=0)
    start = left.reader.state_dict()
    for seed, labels in itertools.product(options.seeds, options.labels):
        context = seed_context(options.run, seed, beside / f"seed-{seed}", first.inputs)
        learnt = taught(context, source, left.reader, random.Random(seed).sample(rest, labels), options)
        for worth in options.worth:
            mixed = copy.deepcopy(learnt)
            blend(mixed, start, worth / (worth + labels))
            yield row(mixed, seed=seed, labels=labels, start_questions=worth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--labels", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--worth", type=int, nargs="+", default=[0, 16, 64, 256], help="values of finetune.start_questions")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="which questions are learnt from, and their order")
    parser.add_argument("--asked", type=int, default=200)
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--least", type=int, default=40)
    options = parser.parse_args()
    rows = []
    for row in rows_of(options):
        rows.append(row)
        print(json.dumps(row), flush=True)
    threads = read_run_recipe(RunPaths(options.run)).run.threads
    print(json.dumps(result("start weight", threads, run=str(options.run), asked=options.asked, rows=rows)))


if __name__ == "__main__":
    main()
