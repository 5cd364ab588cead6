"""Whether a question file fits a corpus: how many answers stand in it, how long they are, which gold documents exist."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from realm.corpus.blocks import BlockStore
from realm.data.qa import AnswerLocator, answer_wordpieces, load_questions
from realm.data.types import Question
from realm.errors import DataError
from realm.paths import open_text
from realm.text.answers import contains_answer


def check_question_file(path: Path, corpus: Path | None = None, *, max_span: int = 10) -> dict[str, Any]:
    """The ``data check --json`` object.

    Args:
        path: questions (JSONL).
        corpus: also say how they fit this corpus.
        max_span: longest answer, in wordpieces, that a reader can mark.

    Raises:
        DataError: a malformed question, or an answer that no block can hold; file and line are named.
        CorpusError: no usable corpus.
    """
    questions = load_questions(path)
    words = [len(answer.split()) for q in questions for answer in q.answers if q.answer_type == "string"]
    facts: dict[str, Any] = {
        "questions": len(questions),
        "answer_types": dict(sorted(Counter(q.answer_type for q in questions).items())),
        "answers_per_question": sum(len(q.answers) for q in questions) / len(questions),
        "answer_words": {"mean": float(np.mean(words)), "longest": max(words)} if words else None,
        "with_gold_documents": sum(bool(q.positive_ids) for q in questions) / len(questions),
    }
    if corpus is None:
        return facts
    store = BlockStore.open(corpus)
    require_readable(path, store, questions)
    return facts | _against(store, questions, max_span)


def _against(store: BlockStore, questions: list[Question], max_span: int) -> dict[str, Any]:
    """What the corpus has for these questions."""
    locator = AnswerLocator(store)
    pieces = [answer_wordpieces(store, q) for q in questions]
    readable = [[ids for ids in answers if len(ids) <= max_span] for answers in pieces]
    regexes = [q for q in questions if q.answer_type == "regex"]
    texts = [store.block(int(row)).text for row in np.flatnonzero(store.live)] if regexes else []
    found = sum(any(contains_answer(text, q.answers, "regex") for text in texts) for q in regexes)
    found += sum(bool(locator.spans(answers)) for answers in readable)
    known = set(store.documents())
    return {
        "answerable": found / len(questions),
        "too_long": sum(bool(some) and not fitting for some, fitting in zip(pieces, readable, strict=True)) / len(questions),
        "unknown_gold_documents": len({name for q in questions for name in q.positive_ids} - known),
    }


def require_readable(path: Path, store: BlockStore, questions: list[Question] | None = None) -> None:
    """Every question has an answer that fits into a block.

    Raises:
        DataError: naming file and line of the first that has none.
    """
    room = store.manifest.block_length - 3
    for number, question in enumerate(questions or load_questions(path)):
        sizes = [len(ids) for ids in answer_wordpieces(store, question)]
        if sizes and min(sizes) > room:
            problem = f"the answer of '{question.id}' has {min(sizes)} wordpieces, a block holds {room}"
            raise DataError(problem, path=path, line=_line_of(path, number), cure="Shorten the answer, or build with longer blocks.")


def _line_of(path: Path, wanted: int) -> int:
    """The 1-based line of question number ``wanted``: blank lines hold none."""
    with open_text(path) as lines:
        filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    return filled[wanted]
