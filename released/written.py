"""Questions written by a language model on documents of many kinds, among those of the parts before: what a person asks of a folder.

    python released/written.py --out runs/fifth.jsonl --third runs/reader-data/third.jsonl --fourth runs/reader-data/fourth.jsonl

written.jsonl.xz holds them, each with its block: one question a line on blocks of manuals, changelogs, READMEs and policies of packages
(`source` names package and file, under the package's own licence) and of invented documents of working and private life. They were written
for this project one by one, each with its passage in view, and checked by rule: each answer stands in its block, and no question
is one of a test's. held.jsonl.xz and held-blocks.jsonl.xz have questions on other documents, which no reader learns from: they choose and
calibrate. Some questions are asked once more of a block that does not answer: with ``--more written-more.jsonl.xz``, of further questions,
those that this file brings, each with one that keyword search finds for it. The last line is one JSON object.
"""

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from prepare import KEPT, misleading  # beside this file

from realm.evaluation.questions.loading import load_questions, write_questions
from realm.models.types import Question

WRITTEN = Path(__file__).with_name("written.jsonl.xz")
SEED, MISLED = 19, 0.4
THIRD, FOURTH = (14_000, 5_000), (5_000, 1_500)
"""Questions with an answer, and without one, of the parts before: a reader forgets what it no longer reads."""


def numbered(path: Path) -> list[Question]:
    """The questions of a file, with the file's name in each id: files number theirs alike."""
    return [replace(question, id=f"{path.name.partition('.')[0]}:{question.id}") for question in load_questions(path, KEPT)]


def placed(question: Question) -> Question:
    """Mark the place that is meant where the shortest answer stands in several, and a longer one tells which."""
    text, shortest = question.context, min(question.answers, key=len, default="")
    telling = [answer for answer in question.answers if shortest in answer and text.count(answer) == 1]
    if question.places or not telling or text.count(shortest) < 2:
        return question
    starts = [text.index(answer) for answer in telling]
    meant = text.index(shortest, starts[0])
    places = ((meant, meant + len(shortest)), *((start, start + len(answer)) for start, answer in zip(starts, telling, strict=True)))
    return replace(question, places=places)


def mixed(questions: Sequence[Question], most: tuple[int, int], rng: random.Random) -> list[Question]:
    """Draw so many questions with an answer, and without one."""
    groups = [[question for question in questions if bool(question.answers) == kind] for kind in (True, False)]
    return [question for group, count in zip(groups, most, strict=True) for question in rng.sample(group, min(count, len(group)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--third", type=Path, required=True, help="as prepare.py writes it")
    parser.add_argument("--fourth", type=Path, required=True, help="as manuals.py writes it")
    parser.add_argument("--placed", action="store_true", help="of an answer that repeats, only the place that a longer one tells")
    parser.add_argument("--of-third", type=int, nargs=2, default=THIRD, help="so many of its questions with an answer, and without one")
    parser.add_argument("--of-fourth", type=int, nargs=2, default=FOURTH, help="the same of the fourth")
    parser.add_argument("--more", type=Path, nargs="+", default=[], help="further questions, and blocks that do not answer some of all")
    parser.add_argument("--of-written", type=int, help="so many of all these; without it all")
    parser.add_argument("--fresh", type=Path, nargs="*", default=[], help="questions that are taken whole")
    arguments = parser.parse_args()
    rng, written = random.Random(SEED), numbered(WRITTEN)
    titles = {question.context: question.title for question in written}
    asked = [question for question in written if question.answers]
    others = [question for path in arguments.more for question in numbered(path)]
    chosen = [*written, *(others or misleading(rng.sample(asked, int(MISLED * len(asked))), titles, rng))]
    chosen = rng.sample(chosen, arguments.of_written) if arguments.of_written else chosen
    chosen += [question for path in arguments.fresh for question in numbered(path)]
    third = numbered(arguments.third)
    known = {question.text for question in third}
    manuals = [question for question in numbered(arguments.fourth) if question.text not in known]
    chosen += mixed(third, arguments.of_third, rng) + mixed(manuals, arguments.of_fourth, rng)
    rng.shuffle(chosen)
    write_questions(arguments.out, [placed(question) for question in chosen] if arguments.placed else chosen)
    print(json.dumps({"written": len(written), "with_an_answer": len(asked), "all": len(chosen)}))


if __name__ == "__main__":
    main()
