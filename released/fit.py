"""The confidence of a reader that learnt from given paragraphs: fitted to its answers over documents, where most blocks hold none.

    python released/fit.py DATA runs/first runs/second --out runs/fitted.json

The weights of the runs' readers are averaged: the first knows more answers, the second knows better where there is none.

Questions of SQuAD 2.0's dev articles are asked of all their paragraphs, five blocks each: those with an answer, and those without one,
whose answers are all wrong. Out comes JSON with slope, bias, words_weight and abstain_below, and how well they fit; the last line says
the same.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from realm.answering.levels import held
from realm.evaluation.calibration import calibration_error, fit_confidence, threshold
from realm.evaluation.measures import is_correct
from realm.evaluation.questions.loading import load_questions
from realm.evaluation.questions.rows import QuestionOptions
from realm.models.model import RealmModel
from realm.progress import Progress
from realm.runs.cached import open_cached
from realm.storage.files import write_json
from realm.storage.paths import RunPaths
from realm.text.tokenizer import TextTokenizer

ASKED, DOCUMENTS = "squad/squad2_dev.jsonl.xz", "squad/corpus_squad_dev.jsonl.xz"
OPTIONS = QuestionOptions(unanswerable=True)
READ = 5
UNANSWERABLE = 2
"""One question without an answer for so many with one: people ask their own documents mostly for what is in them."""


def mean_reader(runs: Sequence[Path]) -> RealmModel:
    """Return the last run's model with the mean of the weights of all runs' readers, of one shape."""
    models = [RealmModel.from_pretrained(RunPaths(run).stage("finetune")) for run in runs]
    states = [model.reader.state_dict() for model in models]
    models[-1].reader.load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})
    return models[-1].eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the directory of public data")
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=400, help="questions with an answer")
    arguments = parser.parse_args()
    questions = load_questions(arguments.data / ASKED, OPTIONS)
    random.Random(0).shuffle(questions)
    answerable, others = ([question for question in questions if bool(question.answers) == kind] for kind in (True, False))
    questions = answerable[: arguments.most] + others[: arguments.most // UNANSWERABLE]
    with tempfile.TemporaryDirectory() as body:
        mean_reader(arguments.runs).save_pretrained(
            Path(body), tokenizer=TextTokenizer.load(RunPaths(arguments.runs[-1]).stage("finetune"))
        )
        answerer = open_cached([arguments.data / DOCUMENTS], body, Progress(quiet=True)).answerer
        answers = answerer.answer([question.text for question in questions], k=READ)
    hits = [bool(question.answers) and is_correct(answer.answer, question) for answer, question in zip(answers, questions, strict=True)]
    p, shares = [answer.p for answer in answers], [held(answer) for answer in answers]
    found = fit_confidence(p, hits, shares)
    sure = [found.of(*one) for one in zip(p, shares, strict=True)]
    kept = [confidence for confidence, question in zip(sure, questions, strict=True) if not question.answers]
    below = threshold(sure, hits)
    facts = {
        "slope": found.slope,
        "bias": found.bias,
        "words_weight": found.words_weight,
        "abstain_below": below,
        "asked": len(questions),
        "right": sum(hits),
        "error": calibration_error(sure, hits),
        "unanswerable": len(kept),
        "kept_back": sum(confidence < below for confidence in kept),
    }
    write_json(arguments.out, facts)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
