"""How well does a reader read a paragraph that it is given, on every set that nothing was trained on?

    python -m benchmarks.reading.given_paragraphs DATA MODEL [--most 1000] [--threads 1]

DATA holds the public sets, MODEL is the directory of a run's stage or the name of a known body with a reader. Each question is read beside
its own paragraph, whole; where a paragraph may hold no answer, the reader abstains where the log-odds of its answer against "not here" are
below a threshold that is fitted to SQuAD 2.0's questions on the dev articles, and to no other set. A row for each set is printed as it is
done; the last line is one JSON object.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import result
from realm.evaluation.measures import bootstrap_interval
from realm.evaluation.questions.loading import load_questions
from realm.evaluation.questions.rows import QuestionOptions
from realm.models.bodies.known import body_directory
from realm.models.featurize import Featurizer
from realm.models.model import RealmModel
from realm.models.reader import Reader
from realm.models.types import Question
from realm.storage.files import json_lines
from realm.text.matching.answers import exact_match, f1
from realm.text.tokenizer import TextTokenizer
from realm.training.finetune.given import GivenAnswer, GivenParagraphs, read_given

FITTED = "squad2_dev"
SETS = {
    "squad2_dev": "squad/squad2_dev.jsonl.xz",
    "squad_qa_dev": "squad/qa_dev.jsonl.xz",
    "squad_former_train": "squad/qa_train.jsonl.xz",
    "squad2_former_train": "squad/squad2_former_train.jsonl.xz",
    "tydi_dev": "tydiqa/tydiqa_english_dev.jsonl.xz",
    "shifts_new_wiki": "squadshifts/squadshifts_new_wiki.jsonl.xz",
    "shifts_amazon": "squadshifts/squadshifts_amazon_reviews.jsonl.xz",
    "shifts_reddit": "squadshifts/squadshifts_reddit.jsonl.xz",
    "nq_gold": "nq_open/dev_visible_gold_passages.jsonl.xz",
}
OPTIONS = QuestionOptions(id_column="no column", unanswerable=True)
BLOCK_LENGTH, QUERY_LENGTH = 384, 64


def questions_of(data: Path, file: str, most: int) -> list[Question]:
    """The questions of a set with their paragraphs, ``most`` of them drawn by one seed; 0: all."""
    questions = load_questions(data / file, OPTIONS)
    if any(question.positive_ids for question in questions):
        paragraphs = {str(row["id"]): row for _, row in json_lines(data / "squad/corpus_squad_dev.jsonl.xz", "Fetch the file again.")}
        own = ((question, paragraphs[question.positive_ids[0]]) for question in questions)
        questions = [replace(question, context=row["text"], title=row["title"]) for question, row in own]
    return random.Random(0).sample(questions, most) if 0 < most < len(questions) else questions


def odds(answer: GivenAnswer) -> float:
    """Log-odds of an answer against "not here"."""
    return math.log(max(answer.p, 1e-12)) - math.log(max(answer.not_here, 1e-12))


def scored(answers: list[GivenAnswer], questions: list[Question], below: float) -> np.ndarray:
    """Exact match and F1 of each question, [n, 2], where answers with lower odds are kept back."""
    rows = []
    for answer, question in zip(answers, questions, strict=True):
        said = answer.text if odds(answer) >= below else ""
        right = (exact_match(said, question.answers), f1(said, question.answers)) if question.answers else (not said, not said)
        rows.append([float(value) for value in right])
    return np.array(rows)


def best_threshold(answers: list[GivenAnswer], questions: list[Question]) -> float:
    """The odds below which abstaining gives the highest F1."""
    candidates = np.quantile([odds(answer) for answer in answers], np.linspace(0, 1, 101)).tolist()
    return max([-math.inf, *candidates], key=lambda below: scored(answers, questions, below)[:, 1].mean())


def rows(reader: Reader, tokenizer: TextTokenizer, data: Path, most: int) -> Iterator[dict[str, Any]]:
    """A row for each set, the one that the threshold is fitted to first."""
    special = tokenizer.special
    features = Featurizer(special.cls, special.sep, special.mask, special.pad, QUERY_LENGTH, BLOCK_LENGTH)
    below = -math.inf
    for name, file in SETS.items():
        questions, started = questions_of(data, file, most), time.process_time()
        answers = read_given(reader, GivenParagraphs(questions, tokenizer, features, reader.max_span))
        seconds = time.process_time() - started
        if name == FITTED:
            below = best_threshold(answers, questions)
        whole = all(question.answers for question in questions)
        found = scored(answers, questions, -math.inf if whole else below)
        row = {
            "set": name,
            "n": len(questions),
            "em": round(found[:, 0].mean(), 4),
            "em_interval": [round(end, 4) for end in bootstrap_interval(found[:, 0])],
        }
        row |= {"f1": round(found[:, 1].mean(), 4), "milliseconds": round(1000 * seconds / len(questions), 1)}
        if not whole:
            kept_back = np.array([odds(answer) < below for answer in answers])
            asked = np.array([bool(question.answers) for question in questions])
            row |= {"threshold": round(below, 3), "abstains_rightly": round(float(kept_back[~asked].mean()), 4)}
            right = scored(answers, questions, -math.inf)[:, 0].astype(bool) & asked
            row |= {"right_kept_back": round(float(kept_back[right].mean()), 4), "em_answerable": round(found[asked, 0].mean(), 4)}
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--most", type=int, default=0, help="questions of a set at most, drawn by one seed; 0: all")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    directory = body_directory(arguments.model)
    found = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for row in rows(RealmModel.from_pretrained(directory).reader, TextTokenizer.load(directory), arguments.data, arguments.most):
            print(json.dumps(row), flush=True)
            found.append(row)
    print(json.dumps(result("given_paragraphs", arguments.threads, model=arguments.model, rows=found)))


if __name__ == "__main__":
    main()
