"""The confidence of a reader that learnt from given paragraphs: fitted to its answers over documents, where most blocks hold none.

    python released/fit.py DATA runs/first runs/second --out runs/fitted.json
    python released/fit.py DATA --body realm-mpnet-en --out runs/fitted.json

A body is fitted as it is. The weights of runs' readers are averaged: the first knows more answers, the second knows better where there is
none.

Questions of SQuAD 2.0's dev articles are asked of all their paragraphs, five blocks each: those with an answer, and those without one,
whose answers are all wrong. With ``--manuals QUESTIONS DOCUMENTS`` questions of manuals (``manuals.py``) are asked of their folder, too:
technical words are answered with other probabilities than articles, and one confidence serves both. Out comes JSON with slope,
bias, pooled and abstain_below, and how well they fit each; the last line says the same.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from realm.evaluation.calibration import calibration_error, fit_confidence, threshold
from realm.evaluation.measures import f1_of, is_correct
from realm.evaluation.questions.loading import load_questions
from realm.evaluation.questions.rows import QuestionOptions
from realm.models.model import RealmModel
from realm.models.types import Question
from realm.progress import Progress
from realm.runs.cached import open_cached
from realm.storage.files import write_json
from realm.storage.layout import RunPaths
from realm.text.tokenizer import TextTokenizer

ASKED, DOCUMENTS = "squad/squad2_dev.jsonl.xz", "squad/corpus_squad_dev.jsonl.xz"
OPTIONS = QuestionOptions(unanswerable=True)
READ, A_FEW, MOSTLY = 5, 4, 0.6
COST = 0.1
"""Share of all right answers that abstaining may cost: about 6 in 100 over articles, and more over manuals."""
UNANSWERABLE = 2
"""One question without an answer for so many with one: people ask their own documents mostly for what is in them."""


def mean_reader(runs: Sequence[Path]) -> RealmModel:
    """Return the last run's model with the mean of the weights of all runs' readers, of one shape."""
    models = [RealmModel.from_pretrained(RunPaths(run).stage("finetune")) for run in runs]
    states = [model.reader.state_dict() for model in models]
    models[-1].reader.load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})
    return models[-1].eval()


@dataclass(frozen=True)
class Outcome:
    """An answer: its pooled probability, whether it is right and whether there is one."""

    p: float
    right: bool
    answerable: bool


def outcomes(body: str, asked: Path, documents: Path, most: int) -> list[Outcome]:
    """Answers of a body to ``most`` questions with an answer, and some without."""
    questions = load_questions(asked, OPTIONS)
    random.Random(0).shuffle(questions)
    answerable, others = ([question for question in questions if bool(question.answers) == kind] for kind in (True, False))
    questions = answerable[:most] + others[: most // UNANSWERABLE]
    answers = open_cached([documents], body, Progress(quiet=True)).answerer.answer([question.text for question in questions], k=READ)
    return [
        Outcome(answer.pooled, bool(question.answers) and is_right(answer.answer, question), bool(question.answers))
        for answer, question in zip(answers, questions, strict=True)
    ]


def is_right(answer: str, question: Question) -> bool:
    """True for the words asked for, or most of them: answers of manuals are clauses."""
    return is_correct(answer, question) or (len(question.answers[0].split()) > A_FEW and (f1_of(answer, question) or 0.0) >= MOSTLY)


def pooled(told: Mapping[str, Sequence[Outcome]], *fields: str) -> list[list[Any]]:
    """Fields of all outcomes, a list each."""
    return [[getattr(one, field) for rows in told.values() for one in rows] for field in fields]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the directory of public data")
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--body", help="a known body with a reader, or a directory of one, instead of runs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--manuals", type=Path, nargs=2, metavar=("QUESTIONS", "DOCUMENTS"))
    parser.add_argument("--most", type=int, default=400, help="questions with an answer")
    arguments = parser.parse_args()
    if bool(arguments.runs) == bool(arguments.body):
        parser.error("name runs, or --body")
    asked = {"articles": (arguments.data / ASKED, arguments.data / DOCUMENTS)}
    if arguments.manuals:
        asked["manuals"] = arguments.manuals
    with tempfile.TemporaryDirectory() as mean:
        if arguments.runs:
            tokenizer = TextTokenizer.load(RunPaths(arguments.runs[-1]).stage("finetune"))
            mean_reader(arguments.runs).save_pretrained(Path(mean), tokenizer=tokenizer)
        told = {name: outcomes(arguments.body or mean, *files, arguments.most) for name, files in asked.items()}
    found = fit_confidence(*pooled(told, "p", "right"))
    sure = {name: [found.of(one.p) for one in rows] for name, rows in told.items()}
    below = threshold([value for values in sure.values() for value in values], pooled(told, "right")[0], COST)
    facts = {"slope": found.slope, "bias": found.bias, "pooled": found.pooled, "abstain_below": below}
    for name, rows in told.items():
        given = [value >= below for value in sure[name]]
        facts[name] = {
            "asked": len(rows),
            "right": sum(one.right for one in rows),
            "right_given": sum(one.right and gave for one, gave in zip(rows, given, strict=True)),
            "error": calibration_error(sure[name], [one.right for one in rows]),
            "unanswerable": sum(not one.answerable for one in rows),
            "kept_back": sum(not one.answerable and not gave for one, gave in zip(rows, given, strict=True)),
        }
    write_json(arguments.out, facts)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
