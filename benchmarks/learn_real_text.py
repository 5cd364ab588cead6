"""Does REALM learn on real text? One run of a recipe, with zero-shot recall of development questions along the way.

Recall is measured before training, after ICT and at every refresh of the index, and BM25's on the same blocks once. Everything is kept in
``RUN/curve.jsonl``: a killed run goes on, and a point that is there is not measured again.

    python benchmarks/learn_real_text.py recipes/simplewiki.toml --out RUN --questions webquestions/dev.jsonl.xz curatedtrec/dev.jsonl.xz

The last line of its output is one JSON object.
"""

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from common import result
from realm.candidates import Bm25Candidates, DenseCandidates, Source
from realm.config import load_recipe
from realm.data.questions.loading import load_questions
from realm.data.types import Question
from realm.nn.model import RealmModel
from realm.paths import RunPaths
from realm.pipeline.directory import build_run_corpus, claim_run
from realm.progress import Progress
from realm.recipes.context import StageContext, load_stage, open_context
from realm.recipes.evaluate import evaluate_retrieval
from realm.recipes.ict import run_ict
from realm.recipes.pretrain import stage as pretrain
from realm.recipes.scoring import Relevance
from realm.recipes.starting import new_model
from realm.recipes.warm import run_warm
from realm.refresh import Generation, refresh_index
from realm.train.loop import Metrics

DEPTHS = (1, 5, 20, 100)


class Curve:
    """Recall of each question file at each point of a run, in a file of its own."""

    def __init__(self, path: Path, context: StageContext, questions: dict[str, list[Question]]):
        self.path = path
        self.context = context
        self.questions = questions
        self.relevance = Relevance(context.store)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()] if self.path.exists() else []

    def has(self, point: str) -> bool:
        return any(row["point"] == point for row in self.rows())

    def measure(self, point: str, source: Source) -> None:
        recall = {name: evaluate_retrieval(source, self.relevance, rows, DEPTHS)["recall"] for name, rows in self.questions.items()}
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"point": point, "at": time.time(), "recall": recall}) + "\n")
        print(point, recall, flush=True)

    def measure_generation(self, point: str, generation: Generation) -> None:
        if not self.has(point):
            self.measure(point, DenseCandidates(generation.queries, generation.snapshot, generation.index, self.context.inputs))

    def measure_model(self, point: str, model: RealmModel) -> None:
        """Embed the corpus with a model of which no index is published."""
        if self.has(point):
            return
        scratch = self.context.paths.root / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        self.measure_generation(point, refresh_index(model, self.context.inputs, RunPaths(scratch), step=0))
        shutil.rmtree(scratch, ignore_errors=True)

    def measure_bm25(self) -> None:
        if not self.has("bm25"):
            self.measure("bm25", Bm25Candidates(self.context.inputs, np.flatnonzero(self.context.store.live)))


def watched(curve: Curve) -> type[pretrain.PretrainTask]:
    """Pre-training that measures each index it goes over to."""

    class Watched(pretrain.PretrainTask):
        def _go_over(self, step: int, found: Generation, seconds: float) -> Metrics:
            metrics = super()._go_over(step, found, seconds)
            curve.measure_generation(f"pretrain {step}", found)
            return metrics

    return Watched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--questions", type=Path, nargs="+", required=True)
    options = parser.parse_args()

    recipe, paths = load_recipe(options.recipe), RunPaths(options.out)
    claim_run(paths, recipe)
    with Progress() as progress:
        build_run_corpus(paths, recipe, progress)
        context = open_context(paths, recipe, progress.report)
        questions = {path.parent.name: load_questions(path) for path in options.questions}
        curve = Curve(paths.root / "curve.jsonl", context, questions)
        curve.measure_bm25()
        curve.measure_model("start", new_model(context).to(context.device))
        run_ict(context)
        curve.measure_model("ict", load_stage(context, "ict"))
        run_warm(context)
        with patch.object(pretrain, "PretrainTask", watched(curve)):
            pretrain.run_pretrain(context)
    utility = [
        [row["step"], row["marginal_utility"]] for row in context.log.rows() if row["stage"] == "pretrain" and "marginal_utility" in row
    ]
    print(json.dumps(result("learn_real_text", recipe.run.threads, rows=curve.rows(), marginal_utility=utility)))


if __name__ == "__main__":
    main()
