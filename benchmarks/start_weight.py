"""How much of a reader that has pointed should be left after a few questions? Exact match for several values of finetune.start_questions.

    python benchmarks/start_weight.py RUN --train DATA/squad/qa_train.jsonl.xz --labels 16 128 --worth 0 16 64 256

RUN has ended pre-training with pretrain.fill = "pointer". For each seed and number of labelled questions the reader learns once, over the
retriever as it is; its weights and those it began with are then mixed as finetune.start_questions would mix them. The questions that are
asked are others of --train, the same for all rows, so that no test question decides. The last line is one JSON object.
"""

import argparse
import copy
import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import torch

from common import result
from evidence import seed_context
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
    steps = max(options.least, round(len(questions) / options.batch))
    file = context.paths.root / f"train-{len(questions)}.jsonl"
    write_questions(file, questions)
    values = {"train": str(file), "steps": steps, "batch": options.batch, "lr": options.lr, "warmup": max(4, steps // 6)}
    section = dataclasses.replace(context.recipe.finetune, read=options.read, start_questions=0, **values)
    here = dataclasses.replace(context, recipe=dataclasses.replace(context.recipe, finetune=section))
    task = ReadingTask(f"reader-{len(questions)}", here, source, copy.deepcopy(start), *training_questions(here))
    train_reader(here, task, fingerprint(here, task.name, "pretrain", labels=str(len(questions)), steps=str(steps)))
    return task.reader


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
    everyone = load_questions(options.train)
    random.Random(-1).shuffle(everyone)
    asked, rest = everyone[: options.asked], everyone[options.asked :]
    beside = options.run.with_name(f"{options.run.name}-start-weight")
    rows: list[dict[str, Any]] = []

    def row(answerer: Answerer, relevance: Relevance, **named: int) -> None:
        found = evaluate_answers(answerer, relevance, asked, options.read)
        rows.append(named | {"em": found["em"], "f1": found["f1"]})
        print(json.dumps(rows[-1]), flush=True)

    for seed in options.seeds:
        context = seed_context(options.run, seed, beside / f"seed-{seed}")
        left = load_stage(context, "pretrain")
        number = stage_facts(context.paths, "pretrain")["generation"]
        generation = open_generation(context.paths, context.inputs, number, device=context.device)
        source = source_over(context, left.embedder, generation).requires_grad_(False)
        relevance = Relevance(context.store, context.recipe.eval.match)
        start = {name: value.clone() for name, value in left.reader.state_dict().items()}
        answering = Answerer(context.inputs, source.eval(), left.reader, versions={}, bf16=context.recipe.run.bf16)
        if seed == options.seeds[0]:
            row(answering, relevance, labels=0)
        for labels in options.labels:
            learnt = taught(context, source, left.reader, random.Random(seed).sample(rest, labels), options).eval()
            weights = copy.deepcopy(learnt.state_dict())
            answerer = Answerer(context.inputs, source.eval(), learnt, versions={}, bf16=context.recipe.run.bf16)
            for worth in options.worth:
                learnt.load_state_dict(weights)
                with torch.no_grad():
                    blend(learnt, start, worth / (worth + labels))
                row(answerer, relevance, seed=seed, labels=labels, start_questions=worth)
    threads = read_run_recipe(RunPaths(options.run)).run.threads
    print(json.dumps(result("start weight", threads, run=str(options.run), asked=len(asked), rows=rows)))


if __name__ == "__main__":
    main()
