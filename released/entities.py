"""Questions that people typed without a paragraph, each with a block of an encyclopaedia that answers it, and some with one that does not.

    python released/entities.py CORPUS DATA MODEL --out entities.jsonl

CORPUS is the corpus of a run over Simple Wikipedia, MODEL a directory with a reader. Keyword search finds ``AT_ONCE`` blocks for a question
of ``SETS``; of those in which an answer stands the reader reads ``READ``, and the one is kept in which it says an answer most surely, or
else one of the first ``HARD`` blocks. Of the best blocks without an answer one that the reader would answer from is kept for some
questions, as one that does not answer. Nothing of a test is kept (``prepare.Tests``). The last line is one JSON object.
"""

import argparse
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from prepare import KEPT, Tests  # beside this file

from realm.documents.store.blocks import Block, BlockStore
from realm.evaluation.questions.loading import load_questions, write_questions
from realm.models.featurize import Featurizer
from realm.models.model import RealmModel
from realm.models.types import Question
from realm.search.sparse import SparseIndex, count_words
from realm.text.matching.answers import exact_match, f1, normalised_ranges
from realm.text.tokenizer import TextTokenizer
from realm.training.finetune.given import GivenAnswer, GivenParagraphs, read_given

SETS = ("webquestions/train", "nq_open/train_part", "triviaqa/train_part")
TESTED = ("triviaqa/test_visible.jsonl.xz",)
SEED, AT_ONCE, READ, HARD, LONGEST = 23, 20, 3, 3, 8
MISLED = 0.4
"""Share of the questions that are asked once more of a block without an answer."""
Places = tuple[tuple[int, int], ...]


def places_in(text: str, question: Question) -> Places:
    """Places of a question's answers in a text, none of more than ``LONGEST`` words."""
    found = normalised_ranges(text, question.answers)
    return tuple((start, end) for start, end in found if len(text[start:end].split()) <= LONGEST)


def asked(question: Question, block: Block, places: Places) -> Question:
    """A question with a block; its answers are what stands at the places."""
    answers = tuple(dict.fromkeys(block.text[start:end] for start, end in places))
    return replace(question, answers=answers, context=block.text, title=block.full_title, places=places)


def searched(index: SparseIndex, store: BlockStore, question: Question) -> tuple[list[tuple[int, Question]], list[Question]]:
    """The blocks that hold an answer, with their ranks, and those among the best that hold none."""
    ids = index.search([question.text], AT_ONCE)[0][0]
    blocks = [store.block(row) for row in store.rows_of(ids[ids >= 0]).tolist()]
    placed = [(rank, block, places_in(block.text, question)) for rank, block in enumerate(blocks)]
    held = [(rank, asked(question, block, places)) for rank, block, places in placed if places]
    return held[:READ], [asked(question, block, ()) for _, block, places in placed[:READ] if not places]


class Readings:
    """What a reader says of questions with their blocks."""

    def __init__(self, directory: Path):
        self._reader = RealmModel.from_pretrained(directory).reader
        self._tokenizer = TextTokenizer.load(directory)
        special = self._tokenizer.special
        self._features = Featurizer(special.cls, special.sep, special.mask, special.pad, 64, 384)

    def __call__(self, questions: list[Question]) -> list[GivenAnswer]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return read_given(self._reader, GivenParagraphs(questions, self._tokenizer, self._features, self._reader.max_span))


def answered(held: list[tuple[int, Question]], said: list[GivenAnswer]) -> Question | None:
    """The block in which the reader says an answer most surely; where it says none, the first among the best ``HARD``."""
    right = [(answer.p, question) for answer, (_, question) in zip(said, held, strict=True) if exact_match(answer.text, question.answers)]
    if right:
        return max(right, key=lambda pair: pair[0])[1]
    return next((question for rank, question in held if rank < HARD), None)


def misleading(question: Question, without: list[Question], said: list[GivenAnswer]) -> Question | None:
    """The block without an answer from which the reader would answer most surely, in no word of an answer."""
    wrong = [(answer.p, other) for answer, other in zip(said, without, strict=True) if not f1(answer.text, question.answers)]
    return max(wrong, key=lambda pair: pair[0])[1] if wrong else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng, store, tests = random.Random(SEED), BlockStore.open(arguments.corpus), Tests(arguments.data)
    ids = np.asarray(store.block_ids)
    index = SparseIndex([count_words((f"{b.full_title} {b.text}" for b in map(store.block, range(len(store)))), ids)], ids, store)
    tested = {question.text.lower() for name in TESTED for question in load_questions(arguments.data / name, KEPT)}
    readings, chosen, counts = Readings(arguments.model), list[Question](), Counter[str]()
    for name in SETS:
        questions = load_questions(arguments.data / f"{name}.jsonl.xz", KEPT)
        kept = [replace(q, id=f"{name}:{q.id}") for q in questions if not tests.reason(q) and q.text.lower() not in tested]
        found = [searched(index, store, question) for question in kept]
        found = [(held, without if rng.random() < MISLED else []) for held, without in found]
        said = iter(readings([question for held, without in found for question in (*(one for _, one in held), *without)]))
        for question, (held, without) in zip(kept, found, strict=True):
            of_held, of_without = [next(said) for _ in held], [next(said) for _ in without]
            if one := answered(held, of_held):
                chosen.append(one)
                counts[f"{name} answered"] += 1
                if one := misleading(question, without, of_without):
                    chosen.append(replace(one, id=f"{one.id}-misled"))
                    counts[f"{name} misled"] += 1
        counts[name] = len(questions)
        print(json.dumps(counts), flush=True)
    rng.shuffle(chosen)
    write_questions(arguments.out, chosen)
    print(json.dumps({"written": len(chosen), **counts}))


if __name__ == "__main__":
    main()
