"""The confidence of a reader that learnt from given paragraphs: fitted to its answers over documents, where most blocks hold none.

    python released/fit.py runs/second/stages/finetune DATA --out runs/fitted.json

Questions of SQuAD 2.0's dev articles are asked of all their paragraphs, five blocks each: those with an answer, and those without one,
whose answers are all wrong. Out comes JSON with slope, bias, abstain_below, and how well they fit; the last line says the same.
"""

import argparse
import json
import random
from pathlib import Path

from realm.answering.answerer import Answerer
from realm.evaluation.calibration import calibration_error, fit_confidence, threshold
from realm.evaluation.measures import is_correct
from realm.evaluation.questions.loading import load_questions
from realm.evaluation.questions.rows import QuestionOptions
from realm.models.model import RealmModel
from realm.runs.cached import open_documents
from realm.storage.files import write_json

ASKED, DOCUMENTS = "squad/squad2_dev.jsonl.xz", "squad/corpus_squad_dev.jsonl.xz"
OPTIONS = QuestionOptions(unanswerable=True)
READ = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="directory of the run's last stage")
    parser.add_argument("data", type=Path, help="the directory of public data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=500, help="questions asked")
    arguments = parser.parse_args()
    questions = load_questions(arguments.data / ASKED, OPTIONS)
    random.Random(0).shuffle(questions)
    questions = questions[: arguments.most]
    reader = RealmModel.from_pretrained(arguments.model).reader.eval()
    opened = open_documents(arguments.data / DOCUMENTS)._run.answerer
    answers = Answerer(opened.inputs, opened.source, reader, versions={}).answer([question.text for question in questions], k=READ)
    hits = [bool(question.answers) and is_correct(answer.answer, question) for answer, question in zip(answers, questions, strict=True)]
    found = fit_confidence([answer.p for answer in answers], hits)
    sure = [found.of(answer.p) for answer in answers]
    kept = [confidence for confidence, question in zip(sure, questions, strict=True) if not question.answers]
    below = threshold(sure, hits)
    facts = {
        "slope": found.slope,
        "bias": found.bias,
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
