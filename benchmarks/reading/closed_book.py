"""Can the closed book learn? Exact match on its training questions, by passes and learning rate.

    python -m benchmarks.reading.closed_book recipes/squad-compare.toml --out DIR --questions 1000 --rates 2e-3 --passes 200

Reads as many wordpieces of masked sentences as REALM's encoder reads in the warm stage and pre-training of RECIPE (reckoned from its
steps; ``--read`` says another number), then learns the recipe's training questions at each rate, from the same weights, and is asked
them and the recipe's evaluation questions. The same command continues what was killed. The last line of its output is one JSON object.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.common import result
from realm.evaluation.measures import bootstrap_interval
from realm.evaluation.questions.loading import load_datasets, pooled
from realm.models.model import RealmModel
from realm.progress import Progress
from realm.recipe import load_recipe
from realm.runs.run import run_recipe
from realm.storage.paths import RunPaths
from realm.training.baselines.closed_book import (
    BATCH,
    LONGEST_ANSWER,
    TRAIN_SAMPLE,
    QuestionsTask,
    SentencesTask,
    reachable,
    share_correct,
    wordpieces_a_step,
    written,
)
from realm.training.context import StageContext, open_context, train
from realm.training.finetune.task import training_questions
from realm.training.starting import new_model
from realm.training.warm import WarmTask


def realm_reads(context: StageContext) -> int:
    """Wordpieces that REALM's encoder reads in the recipe's warm stage and pre-training; blocks of pre-training as long as warm's."""
    recipe = context.recipe
    warm = WarmTask(context, new_model(context, embeds=False)).wordpieces_a_step()
    a_pair = warm / recipe.warm.batch
    return round(warm * recipe.warm.steps + a_pair * recipe.pretrain.steps * recipe.pretrain.batch * recipe.pretrain.candidates)


def after_reading(context: StageContext, wordpieces: int, lr: float) -> tuple[Path, int]:
    """A model that has read masked sentences, as a directory; and how many wordpieces that were."""
    place, task = context.paths.root / "read", SentencesTask(context, new_model(context, embeds=False))
    each = wordpieces_a_step(task)
    steps = max(1, round(wordpieces / each))
    if not place.exists():
        train(context, task, section(context, lr, steps), f"read {wordpieces} {lr}")
        task.model.save_pretrained(place, tokenizer=context.store.tokenizer)
    return place, round(each * steps)


def section(context: StageContext, lr: float, steps: int) -> Any:
    return dataclasses.replace(context.recipe.warm, lr=lr, steps=steps, batch=BATCH)


def learnt(context: StageContext, start: Path, lr: float, passes: int, most: int) -> dict[str, Any]:
    """The row of one rate."""
    questions, test = training_questions(context)[0][:most], pooled(load_datasets(context.recipe.eval_files))
    task, began = QuestionsTask(context, RealmModel.from_pretrained(start), questions), time.process_time()
    train(context, task, section(context, lr, passes * len(task.items) // BATCH), f"learn {lr} {passes} {most}")
    seconds, sample = time.process_time() - began, written(questions)[:TRAIN_SAMPLE]
    right, hits = share_correct(context, task.model, sample), share_correct(context, task.model, test)
    return {
        "lr": lr,
        "passes": passes,
        "steps": passes * len(task.items) // BATCH,
        "train_em": sum(right) / len(right),
        "train_interval": bootstrap_interval([float(hit) for hit in right]),
        "train_reachable": reachable(context, sample),
        "test_em": sum(hits) / len(hits),
        "test_interval": bootstrap_interval([float(hit) for hit in hits]),
        "test_reachable": reachable(context, test),
        "learnt_from": len(task.items),
        "asked": len(test),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--read", type=int, default=0, help="wordpieces of sentences; 0: as many as REALM's encoder")
    parser.add_argument("--reading-rate", type=float, default=2e-3)
    parser.add_argument("--questions", type=int, default=10**9, help="the first ones of the recipe's training questions")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3])
    parser.add_argument("--passes", type=int, default=30)
    options = parser.parse_args()
    recipe, paths = load_recipe(options.recipe), RunPaths(options.out)
    run_recipe(recipe, options.out, stages=("corpus",), progress=Progress(quiet=True))
    context = open_context(paths, recipe, lambda *_: None)
    start, read = after_reading(context, options.read or realm_reads(context), options.reading_rate)
    rows = []
    for lr in options.rates:
        rows.append(learnt(context, start, lr, options.passes, options.questions))
        print(json.dumps(rows[-1]), flush=True)
    print(json.dumps(result("closed book", recipe.run.threads, rows=rows, read=read, longest_answer=LONGEST_ANSWER)))


if __name__ == "__main__":
    main()
