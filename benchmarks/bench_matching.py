"""What the ways to find answers in blocks say differently, and how long each takes.

    python benchmarks/bench_matching.py --corpus CORPUS --questions squad/qa_dev.jsonl.xz --sample 300

A hit is a question and a block that holds an answer to it; a place is a row with the wordpieces that a reader would mark. Seconds are the
processor's, the best of --repeat. The last line of its output is one JSON object.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import result
from realm.corpus.store.blocks import BlockStore
from realm.data.matching import locate_answers
from realm.data.qa import Spans
from realm.data.questions import load_questions
from realm.data.types import Question
from realm.text.answers import MATCHES

PUBLISHED, WORDS = "wordpiece", "normalised"


def located(store: BlockStore, questions: Sequence[Question], match: str, repeat: int) -> tuple[list[Spans], float]:
    """Where the answers stand, and the least seconds that it took."""
    best = float("inf")
    for _ in range(repeat):
        began = time.process_time()
        found = locate_answers(store, questions, match)
        best = min(best, time.process_time() - began)
    return found, best


def differences(published: Sequence[Spans], words: Sequence[Spans]) -> dict[str, Any]:
    """Hits and places of two ways: how many each has, and which share of the first's the second does not have, and the other way round."""
    hits = [{(number, row) for number, spans in enumerate(found) for row in spans} for found in (published, words)]
    places = [{(number, *place) for number, spans in enumerate(found) for place in spans.table.tolist()} for found in (published, words)]
    row: dict[str, Any] = {}
    for name, (before, after) in (("hits", hits), ("places", places)):
        row[name] = {"published": len(before), "words": len(after)}
        row[name] |= {"gone": len(before - after) / len(before), "new": len(after - before) / len(before)}
    answerable = [sum(map(bool, found)) / len(found) for found in (published, words)]
    return row | {"answerable": dict(zip(("published", "words"), answerable, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=0, help="the first so many questions; 0: all")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    store, questions = BlockStore.open(arguments.corpus), load_questions(arguments.questions)
    questions = [question for question in questions if question.answer_type == "string"][: arguments.sample or None]
    found, seconds = {}, {}
    for match in MATCHES:
        found[match], seconds[match] = located(store, questions, match, arguments.repeat)
    rows = [{"questions": len(questions), "blocks": len(store), "seconds": seconds, **differences(found[PUBLISHED], found[WORDS])}]
    print(json.dumps(result("matching", 1, rows=rows, ratios={"words_over_published": seconds[WORDS] / seconds[PUBLISHED]})))


if __name__ == "__main__":
    main()
