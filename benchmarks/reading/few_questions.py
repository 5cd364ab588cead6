"""What are unlabelled documents worth to a reader? Exact match and F1 after no question, and after few, from a pre-trained run.

    python -m benchmarks.reading.few_questions RUN --train DATA/squad/qa_train.jsonl.xz --test DATA/squad/qa_dev.jsonl.xz

RUN has ended pre-training (steps = 0 is the published body as it is: the row to compare with). For each size a copy of the run learns
from so many questions, the first of one order drawn by --seed, in one pass and at least --least steps. "open" reads the best blocks that
the run's own search finds, "gold" those of the paragraph that the question was asked about. No dev question is used. The last line is
one JSON object.
"""

import argparse
import dataclasses
import json
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import result
from realm.answering.answerer import Answerer
from realm.answering.opening import read_run_recipe
from realm.evaluation.evaluate import evaluate_answers
from realm.evaluation.measures import Relevance, gold_rows
from realm.evaluation.questions.loading import load_questions, write_questions
from realm.models.types import Question
from realm.progress import Progress
from realm.runs.run import run_recipe
from realm.search.candidates import Candidates
from realm.storage.layout import RunPaths
from realm.training.context import StageContext, load_stage, open_context


class GoldBlocks:
    """The first blocks of each question's gold documents, all equally relevant.

    Args:
        relevance: knows which rows they are.
        questions: all that will be asked; those of equal text share their gold documents.
    """

    def __init__(self, relevance: Relevance, questions: Sequence[Question]):
        self.rows: dict[str, list[int]] = {}
        for question in questions:
            known = self.rows.setdefault(question.text, [])
            known += [row for row in gold_rows(relevance.store, question).tolist() if row not in known]

    def find(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> Candidates:
        rows = np.full((len(texts), k), -1, np.int64)
        for at, text in enumerate(texts):
            found = self.rows[text][:k]
            rows[at, : len(found)] = found
        return Candidates(rows, np.zeros(rows.shape, np.float32))


def with_gold(context: StageContext, stage: str, questions: Sequence[Question]) -> dict[str, Any]:
    """What the reader of a stage answers when it is given the gold documents."""
    model = load_stage(context, stage)
    relevance = Relevance(context.store)
    reader = model.reading(bf16=context.recipe.run.bf16)
    answerer = Answerer(context.inputs, GoldBlocks(relevance, questions), reader, versions={})
    found = evaluate_answers(answerer, relevance, questions, read=context.recipe.read)
    return {"stage": stage, **{key: found[key] for key in ("n", "em", "em_interval", "f1", "reader_oracle")}}


def drawn(source: Path, count: int, seed: int, out: Path) -> Path:
    """The first ``count`` of the questions of a file in the order of a seed, as a file."""
    questions = load_questions(source)
    chosen = random.Random(seed).sample(questions, min(count, len(questions)))
    write_questions(out, chosen)
    return out


def learning(options: argparse.Namespace, count: int) -> dict[str, Any]:
    """What [finetune] says where ``count`` questions are learnt from: one pass, and at least --least steps."""
    steps = max(options.least, round(count / options.batch))
    return {"steps": steps, "batch": options.batch, "lr": options.lr, "warmup": max(4, steps // 6), "read": options.read}


def measure(run: Path, scratch: Path, size: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row: learn from ``size`` questions in a copy of the run, and ask."""
    copy = scratch / f"{size}"
    if not copy.exists():
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints", "results", "finetune", "tensorboard", "LOCK*"))
    test = drawn(arguments.test, arguments.asked, 0, scratch / "test.jsonl")
    recipe, stages, stage = read_run_recipe(RunPaths(run)), ("corpus", "pretrain"), "pretrain"
    recipe = dataclasses.replace(recipe, eval=dataclasses.replace(recipe.eval, qa=str(test)))
    started = time.perf_counter()
    if size:
        train = drawn(arguments.train, size, arguments.seed, scratch / f"train-{size}.jsonl")
        changed = {"train": str(train), "start_questions": arguments.start_questions} | learning(arguments, size)
        section = dataclasses.replace(recipe.finetune, **changed)
        recipe, stages, stage = dataclasses.replace(recipe, finetune=section), ("corpus", "pretrain", "finetune", "eval"), "finetune"
    run_recipe(recipe, copy, stages=stages, progress=Progress(quiet=True))
    seconds = time.perf_counter() - started
    row: dict[str, Any] = {"questions": size, "seconds": round(seconds)}
    found = json.loads((copy / "results" / f"{stage}.json").read_text("utf-8"))
    row |= {name: found.get(name) for name in ("em", "em_interval", "f1", "recall")}
    if found.get("em") is not None:
        context = open_context(RunPaths(copy), recipe, lambda *_: None)
        gold = with_gold(context, stage, load_questions(test))
        row |= {f"gold_{name}": gold[name] for name in ("em", "em_interval", "f1")}
    shutil.rmtree(copy)
    return row


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much is learnt from which questions, as :func:`measure` wants it."""
    parser.add_argument("--train", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[0, 16, 128, 1024])
    parser.add_argument("--asked", type=int, default=300, help="questions of the test file, drawn once")
    parser.add_argument("--seed", type=int, default=0, help="which questions are learnt from")
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--least", type=int, default=40, help="steps at least, however few questions there are")
    parser.add_argument("--start-questions", type=int, default=16, help="finetune.start_questions; nothing where RUN's reader is new")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    add_options(parser)
    parser.add_argument("--scratch", type=Path, default=Path("few-questions"))
    arguments = parser.parse_args()
    if not (arguments.train and arguments.test):
        parser.error("--train and --test name the questions")
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    rows = []
    for size in arguments.sizes:
        rows.append(measure(arguments.run, arguments.scratch, size, arguments))
        print(json.dumps(rows[-1]), flush=True)
    threads = read_run_recipe(RunPaths(arguments.run)).run.threads
    print(json.dumps(result("few questions", threads, run=str(arguments.run), seed=arguments.seed, asked=arguments.asked, rows=rows)))


if __name__ == "__main__":
    main()
