"""Why does a run of a comparison answer so little? Three looks at what could be missing: reading, retrieval, or the corpus.

Exact match with the gold document's blocks given (equally relevant, as many as are read otherwise) is what the reader reaches when nothing
has to be found. The answerable share is what the corpus allows. The curve of marginal utility tells whether documents taught the retriever
in pre-training: the share is logged every 20 steps, and on held-out sentences where the recipe holds some out.

    python benchmarks/qa_diagnosis.py OUT/seed-0 --qa squad/qa_dev.jsonl.xz --stages finetune orqa bm25

The last line of its output is one JSON object.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import result
from realm.answerer import Answerer
from realm.candidates import Candidates, Source
from realm.config import load_recipe
from realm.data.check import check_question_file
from realm.data.questions import load_questions
from realm.data.types import Question
from realm.paths import RunPaths
from realm.recipes.context import StageContext, load_stage, open_context
from realm.recipes.evaluate import evaluate_answers
from realm.recipes.scoring import Relevance


class GoldBlocks(Source):
    """The first blocks of each question's gold documents, all equally relevant.

    Args:
        relevance: knows which rows they are.
        questions: all that will be asked; those of equal text share their gold documents.
    """

    def __init__(self, relevance: Relevance, questions: Sequence[Question]):
        super().__init__()
        self.rows: dict[str, list[int]] = {}
        for question in questions:
            known = self.rows.setdefault(question.text, [])
            known += [row for row in relevance.gold_rows(question).tolist() if row not in known]

    def forward(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> Candidates:
        rows = np.full((len(texts), k), -1, np.int64)
        for at, text in enumerate(texts):
            found = self.rows[text][:k]
            rows[at, : len(found)] = found
        return Candidates(rows, torch.zeros(rows.shape))


def with_gold(context: StageContext, stage: str, questions: Sequence[Question]) -> dict[str, Any]:
    """What the reader of a stage answers when it is given the gold documents."""
    model = load_stage(context, stage)
    relevance = Relevance(context.store, context.recipe.eval.match)
    answerer = Answerer(context.inputs, GoldBlocks(relevance, questions), model.reader, versions={}, bf16=context.recipe.run.bf16)
    found = evaluate_answers(answerer, relevance, questions, read=context.recipe.read)
    return {"stage": stage, **{key: found[key] for key in ("n", "em", "em_interval", "f1", "reader_oracle")}}


def utility_curve(paths: RunPaths) -> list[dict[str, Any]]:
    """The rows of pre-training's log that tell what documents were worth."""
    keys = ("marginal_utility", "held_out_utility", "probe_recall", "p_null")
    rows = [json.loads(line) for line in paths.metrics.read_text("utf-8").splitlines()]
    told = [{key: value for key, value in row.items() if key in keys} | {"step": row["step"]} for row in rows if row["stage"] == "pretrain"]
    return [row for row in told if len(row) > 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--qa", type=Path, required=True)
    parser.add_argument("--stages", nargs="*", default=["finetune"])
    parser.add_argument("--questions", type=int, default=0, help="only so many, the first; 0 for all")
    arguments = parser.parse_args()
    paths = RunPaths(arguments.run)
    context = open_context(paths, load_recipe(paths.config), lambda *_: None)
    questions = [q for q in load_questions(arguments.qa) if q.positive_ids][: arguments.questions or None]
    facts = check_question_file(arguments.qa, paths.corpus, max_span=context.recipe.model.max_span)
    rows = [with_gold(context, stage, questions) for stage in arguments.stages] if questions else []
    answerable = {key: facts[key] for key in ("questions", "answerable", "too_long", "cut_questions")}
    print(json.dumps(result("qa_diagnosis", torch.get_num_threads(), rows=rows, utility=utility_curve(paths), corpus=answerable)))


if __name__ == "__main__":
    main()
