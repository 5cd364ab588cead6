"""How long it takes to find where answers stand in a corpus: strings by the inverted list, patterns in one pass or tried on every block.

    python benchmarks/bench_answers.py --corpus CORPUS --strings webquestions/train.jsonl.xz --patterns curatedtrec/train.jsonl.xz

The first two take all questions and all blocks, so that their places serve every beam; the last two take some of the questions, and the
blocks of one beam or all of them. Seconds are the processor's. The last line of its output is one JSON object.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common import result
from realm.corpus.store.blocks import BlockStore
from realm.data.matching import locate_answers
from realm.data.questions import load_questions
from realm.data.types import Question
from realm.text.patterns import PatternSearch


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work gives, and the seconds of the processor it took."""
    began = time.process_time()
    return work(), time.process_time() - began


def row(method: str, questions: int, blocks: int, seconds: float, **more: Any) -> dict[str, Any]:
    return {
        "method": method,
        "questions": questions,
        "blocks": blocks,
        "seconds": seconds,
        "seconds_per_question": seconds / questions,
        **more,
    }


def located(method: str, store: BlockStore, questions: Sequence[Question]) -> dict[str, Any]:
    """All questions in all blocks, as fine-tuning locates them."""
    search = PatternSearch()
    found, seconds = timed(lambda: locate_answers(store, questions, "wordpiece", search))
    markable = [bool(((spans.table[:, 1] >= 0) & (spans.table[:, 2] - spans.table[:, 1] <= 10)).any()) for spans in found]
    more = {"places": sum(len(spans.table) for spans in found), "rows": sum(map(len, found)), "markable": float(np.mean(markable))}
    return row(method, len(questions), int(store.live.sum()), seconds, **more, slow=len(search.too_slow))


def plainly(method: str, store: BlockStore, questions: Sequence[Question], rows: Sequence[int]) -> dict[str, Any]:
    """Some patterns tried on every one of some blocks, whose texts are held ready: whether they match, and not where."""
    texts, search = [store.block(at).text for at in rows], PatternSearch()
    hits, seconds = timed(lambda: sum(search.found(text, question.answers) for question in questions for text in texts))
    return row(method, len(questions), len(rows), seconds, hits=hits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--strings", type=Path, required=True)
    parser.add_argument("--patterns", type=Path, required=True)
    parser.add_argument("--beam", type=int, default=5000)
    parser.add_argument("--sample", type=int, default=40, help="questions whose patterns are tried plainly")
    arguments = parser.parse_args()
    store, rng = BlockStore.open(arguments.corpus), np.random.default_rng(0)
    patterns = load_questions(arguments.patterns)
    some = [patterns[at] for at in rng.permutation(len(patterns))[: arguments.sample]]
    live = np.flatnonzero(store.live)
    beam = np.sort(rng.permutation(live)[: arguments.beam])
    rows = [
        located("strings, wordpiece", store, load_questions(arguments.strings)),
        located("patterns, one pass", store, patterns),
        plainly("patterns, every block of a beam", store, some, beam.tolist()),
        plainly("patterns, every block", store, some, live.tolist()),
    ]
    ratios = {"plain_over_one_pass": rows[3]["seconds_per_question"] / rows[1]["seconds_per_question"]}
    print(json.dumps(result("answers", 1, rows=rows, ratios=ratios)))


if __name__ == "__main__":
    main()
