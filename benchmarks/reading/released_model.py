"""What does the released model answer on documents and questions that it never saw, without any training on them?

    python -m benchmarks.reading.released_model DATA --scratch DIR [--wiki RUN] [--body realm-minilm-en]

DATA holds the public sets (docs/benchmarks say which). Documents are indexed by the body as it is, below --scratch; Simple Wikipedia, which
takes most of an hour, is asked where --wiki names a run over it that was indexed by the same body. Each set of questions is answered over
the body's own search and over BM25 with the same reader; "gold" reads the paragraphs that a question was asked about. SQuAD's questions
are asked once more as if the document that each was asked about were not there: what is answered then should be kept back. Cranfield is
ranked. A row for each is printed as it is done; the last line is one JSON object.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import judged_values, load_cranfield, result
from benchmarks.reading.few_questions import GoldBlocks
from realm.answering.opening import OpenRun, open_run
from realm.evaluation.evaluate import evaluate_answers, evaluate_retrieval
from realm.evaluation.measures import Relevance, is_correct
from realm.evaluation.questions.loading import load_questions
from realm.models.types import Question
from realm.progress import Progress
from realm.recipe import build_recipe
from realm.runs.run import run_recipe

DEPTHS = (1, 5, 20)
SHOWN = ("n", "em", "em_interval", "f1", "recall", "calibration_error")
SMALL = {
    "squad": (("squad/corpus_squad_dev.jsonl.xz", "corpus/2wiki_paragraphs.jsonl.xz"), "squad/qa_dev.jsonl.xz"),
    "covidqa": (("covidqa/corpus.jsonl.xz",), "covidqa/qa_dev.jsonl.xz"),
}
"""Documents, and questions on them."""
WIKI = {
    "webquestions": "webquestions/test_visible.jsonl.xz",
    "curatedtrec": "curatedtrec/test_visible.jsonl.xz",
    "nq_open": "nq_open/dev_visible.jsonl.xz",
}
"""Questions on Simple Wikipedia."""


def indexed(sources: list[Path], body: str, out: Path) -> OpenRun:
    """A run of the body as it is over some documents, made where it is not there."""
    values = {
        "model": {"body": body},
        "corpus": {"sources": [str(source) for source in sources], "tagger": "none"},
        "retrieval": {"kind": "hybrid"},
        "pretrain": {"steps": 0},
    }
    run_recipe(build_recipe(values), out, stages=("corpus", "pretrain"), progress=Progress(quiet=True))
    return open_run(out)


def drawn(path: Path, count: int) -> list[Question]:
    questions = load_questions(path)
    return random.Random(0).sample(questions, min(count, len(questions)))


def asked(run: OpenRun, questions: list[Question], read: int) -> list[dict[str, Any]]:
    """The rows of one set of questions: each way of finding blocks, with the same reader."""
    relevance, rows = Relevance(run.inputs.store), []
    reader = run.networks.reader
    for name, source in (("own search", run.source), ("BM25", run.source_by("sparse"))):
        found: dict[str, Any] = evaluate_retrieval(source, relevance, questions, DEPTHS)
        found |= evaluate_answers(reader.over(run.inputs, source, versions={}), relevance, questions, read)
        rows.append({"search": name, **{key: found[key] for key in SHOWN}})
    if all(question.positive_ids for question in questions):
        answerer = reader.over(run.inputs, GoldBlocks(relevance, questions), versions={})
        found = evaluate_answers(answerer, relevance, questions, read)
        rows.append({"search": "gold", **{key: found[key] for key in SHOWN if key in found}})
    return rows


def abstaining(run: OpenRun, questions: list[Question], read: int) -> dict[str, Any]:
    """What the threshold that the model came with keeps back: with the documents there, and without the one that was asked about."""
    below = run.abstain_below
    there, gone = [], []
    for question in questions:
        (answer,) = run.answerer.answer([question.text], k=read)
        there.append((is_correct(answer.answer, question), answer.sureness))
        (answer,) = run.answerer_without(list(question.positive_ids)).answer([question.text], k=read)
        if not is_correct(answer.answer, question):  # another paragraph says it, too
            gone.append(answer.sureness)
    right = np.array([sureness for hit, sureness in there if hit])
    wrong = np.array([sureness for hit, sureness in there if not hit])
    without = np.array(gone)
    return {
        "threshold": below,
        "kept_back_without_document": float((without < below).mean()),
        "right_answers_lost": float((right < below).mean()),
        "wrong_answers_kept_back": float((wrong < below).mean()),
        "kept_back_at_a_tenth_of_right": float((without < np.quantile(right, 0.1)).mean()),
        "area_under_curve": float((right[:, None] > without[None]).mean()),
        "n": len(questions),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--wiki", type=Path, help="a run over Simple Wikipedia, indexed by the body")
    parser.add_argument("--body", default="realm-minilm-en")
    parser.add_argument("--asked", type=int, default=500, help="questions of each set, drawn once")
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sets", nargs="+", default=[*SMALL, "cranfield", *WIKI])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows: list[dict[str, Any]] = []

    def row(**facts: Any) -> None:
        rows.append(facts)
        print(json.dumps(facts), flush=True)

    for name in (name for name in arguments.sets if name in SMALL):
        sources, file = SMALL[name]
        run = indexed([arguments.data / source for source in sources], arguments.body, arguments.scratch / name)
        questions = drawn(arguments.data / file, arguments.asked)
        for facts in asked(run, questions, arguments.read):
            row(set=name, **facts)
        if name == "squad":
            row(set=name, abstaining=abstaining(run, questions, arguments.read))
    if "cranfield" in arguments.sets:
        run = indexed([arguments.data / "ir/cranfield_corpus.jsonl.xz"], arguments.body, arguments.scratch / "cranfield")
        values = judged_values(run.source, run.inputs.store, load_cranfield(arguments.data / "ir"))
        row(set="cranfield", **{name: float(np.mean(value)) for name, value in values.items()})
    if arguments.wiki:
        run = open_run(arguments.wiki)
        for name in (name for name in arguments.sets if name in WIKI):
            for facts in asked(run, drawn(arguments.data / WIKI[name], arguments.asked), arguments.read):
                row(set=name, **facts)
    facts = {"body": arguments.body, "read": arguments.read, "rows": rows}
    print(json.dumps(result("released model", arguments.threads, **facts)))


if __name__ == "__main__":
    main()
