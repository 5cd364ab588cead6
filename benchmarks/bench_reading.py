"""Do the question head of the structured start and the renaming of fine-tuning make a better reader? Measured without any retriever.

For every seed the warm stage trains one encoder with the head that takes in the question and one without. From them readers learn on the
atlas, each question with one block that holds its answer, with and without renaming, and answer development questions about other
entities, each with its block. Prints a table of their exact match, and as its last line one JSON object.

    python benchmarks/bench_reading.py --warm-steps 250 --steps 500 --seeds 3
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from common import atlas_corpus, result
from realm.candidates import Candidates
from realm.config import build_recipe
from realm.data.qa import AnswerLocator, answer_wordpieces
from realm.data.types import Question
from realm.paths import RunPaths
from realm.recipes.context import StageContext, load_stage, open_context, train
from realm.recipes.finetune.task import ReadingTask, training_questions
from realm.recipes.starting import with_new_reader
from realm.recipes.warm import run_warm

METHODS = {"plain": (False, 0.0), "question head": (True, 0.0), "question head, renaming": (True, 0.5)}


class OneGoldBlock(nn.Module):
    """For each known question the first of its documents' blocks that holds an answer; nothing is searched or learnt."""

    def __init__(self, context: StageContext, questions: Sequence[Question]):
        super().__init__()
        store, locator = context.store, AnswerLocator(context.store)
        documents = np.array([store.block(row).doc_id for row in range(len(store))])
        self.rows: dict[str, int] = {}
        for question in questions:
            holding = locator.spans(answer_wordpieces(store, question))
            gold = [row for row in sorted(holding) if documents[row] in question.positive_ids]
            if gold:
                self.rows[question.text] = gold[0]

    def known(self, questions: Sequence[Question]) -> list[Question]:
        return [question for question in questions if question.text in self.rows]

    def forward(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> Candidates:
        return Candidates(np.array([[self.rows[text]] for text in texts]), torch.zeros(len(texts), 1))


def context_for(corpus: Path, atlas: Path, scratch: Path, arguments: argparse.Namespace, seed: int, rename_rate: float) -> StageContext:
    questions = {"train": str(atlas / "qa_train.jsonl"), "dev": str(atlas / "qa_dev.jsonl")}
    reading = {"steps": arguments.steps, "lr": 7e-4, "read": 1, "eval_every": arguments.steps, "rename_rate": rename_rate}
    recipe = build_recipe(
        {
            "run": {"seed": seed, "device": "cpu", "threads": arguments.threads},
            "model": {"preset": "tiny", "layers": 3, "dropout": 0.0, "query_length": 48, "max_span": 8},
            "warm": {"steps": arguments.warm_steps, "least_steps": arguments.warm_steps, "check_every": arguments.warm_steps},
            "finetune": {**questions, **reading},
        }
    )
    paths = RunPaths(scratch)
    scratch.mkdir(exist_ok=True)
    if not paths.corpus.exists():
        paths.corpus.symlink_to(corpus)
    return open_context(paths, recipe, lambda *_: None)


def exact_match(context: StageContext, name: str) -> float:
    """Train a reader from the context's warm encoder; its exact match on the development questions at the last step."""
    model = with_new_reader(context, load_stage(context, "warm"))
    questions, dev = training_questions(context)
    source = OneGoldBlock(context, [*questions, *dev])
    task = ReadingTask(name, context, source, model.reader, source.known(questions), source.known(dev))  # type: ignore[arg-type]
    train(context, task, context.recipe.finetune, name)
    return [row["dev_em"] for row in context.log.rows() if row["stage"] == name and "dev_em" in row][-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warm-steps", type=int, default=250)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        atlas, corpus = atlas_corpus(Path(scratch))
        for seed in range(arguments.seeds):
            for method, (head, rename_rate) in METHODS.items():
                context = context_for(corpus, atlas, Path(scratch) / f"run-{seed}-{head}", arguments, seed, rename_rate)
                if head:
                    run_warm(context)
                else:
                    with patch("realm.nn.init.look_at_question", lambda *_: None):
                        run_warm(context)
                rows.append({"method": method, "seed": seed, "em": exact_match(context, method.replace(", ", "-").replace(" ", "-"))})
                print(rows[-1], file=sys.stderr)
    means = {method: statistics.mean(row["em"] for row in rows if row["method"] == method) for method in METHODS}
    for method, value in means.items():
        print(f"{method:25s} dev EM with a gold block {value:.3f} after {arguments.steps} steps, {arguments.seeds} seeds")
    differences = {f"em: {method} minus plain": means[method] - means["plain"] for method in METHODS if method != "plain"}
    lengths = {"warm_steps": arguments.warm_steps, "steps": arguments.steps}
    print(json.dumps(result("reading", arguments.threads, **lengths, rows=rows, ratios=differences)))


if __name__ == "__main__":
    main()
