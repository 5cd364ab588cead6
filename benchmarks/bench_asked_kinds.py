"""Does it help to prefer spans of the kind that a question asks for, dates after "When"? The same readings, weighed and not.

    python benchmarks/bench_asked_kinds.py RUN --questions DATA/squad/qa_dev.jsonl.xz --asked 300 --model realm-minilm-en

RUN is searched as it answers; --model reads instead of RUN's own reader. Each question is read once, and its answer chosen twice from the
same spans. Exact match of both, in all and by what is asked for, with a paired 95 % bootstrap interval of the difference; a few answers
that changed are printed. The last line is one JSON object.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import result
from realm.answerer import Answer, Answerer, ReadBlocks
from realm.data.asked_kinds import asked_for
from realm.data.questions import load_questions
from realm.data.types import Question
from realm.nn.bodies import freeze_words
from realm.nn.known_bodies import body_directory
from realm.nn.model import RealmModel
from realm.opening import open_run
from realm.recipes.scoring import bootstrap_interval, is_correct
from realm.text.scoring import scoring_of

SHOWN = 12


class Both(Answerer):
    """An answerer that also says what it would have answered without a look at what is asked for."""

    plain: list[str]

    def _assemble(self, question: str, rows: np.ndarray, p_z: Tensor, log_p: Tensor) -> Answer:
        self.plain.append(self._best_string(rows, log_p, ReadBlocks(self.inputs), scoring_of(question), None)[0])
        return super()._assemble(question, rows, p_z, log_p)


def sort_of(question: Question) -> str:
    """What is asked for, by its name in ``question_words.toml``."""
    asked = asked_for(question.text)
    return "anything" if asked is None else asked.sort


def gain(before: np.ndarray, after: np.ndarray) -> dict[str, Any]:
    """Exact match before and after in percent, and the difference with its interval."""
    change = after.astype(float) - before
    interval = [round(100 * end, 1) for end in bootstrap_interval(change.tolist())]
    each = {"before": before.mean(), "after": after.mean(), "gain": change.mean()}
    return {"n": len(before)} | {name: round(100 * float(value), 1) for name, value in each.items()} | {"interval": interval}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--asked", type=int, default=300, help="questions of the file, drawn once as few_questions.py draws them")
    parser.add_argument("--model", help="a body's name or a model's directory, whose reader reads")
    parser.add_argument("--read", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run, everyone = open_run(options.run), load_questions(options.questions)
    questions = random.Random(0).sample(everyone, min(options.asked, len(everyone)))
    reader = run.answerer.reader
    if options.model:
        named = RealmModel.from_pretrained(body_directory(options.model))
        freeze_words(named)
        reader = named.reader
    answerer = Both(run.inputs, run.source, reader, versions={}, bf16=run.recipe.run.bf16)
    answerer.plain = []
    answers = answerer.answer([question.text for question in questions], k=options.read)
    before = np.array([is_correct(said, question) for question, said in zip(questions, answerer.plain, strict=True)])
    after = np.array([is_correct(answer.answer, question) for question, answer in zip(questions, answers, strict=True)])
    sorts = np.array([sort_of(question) for question in questions])
    rows = {"all": gain(before, after)} | {sort: gain(before[sorts == sort], after[sorts == sort]) for sort in sorted(set(sorts))}
    changed = [i for i, answer in enumerate(answers) if answer.answer != answerer.plain[i]]
    shown = [
        {"question": questions[i].text, "before": answerer.plain[i], "after": answers[i].answer, "accepted": questions[i].answers[:2]}
        for i in changed[:SHOWN]
    ]
    for one in shown:
        print(json.dumps(one, ensure_ascii=False))
    facts = {"run": str(options.run), "model": options.model, "changed": len(changed)}
    print(json.dumps(result("asked kinds", options.threads, **facts, exact_match=rows, shown=shown), ensure_ascii=False))


if __name__ == "__main__":
    main()
