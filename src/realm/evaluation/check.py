"""Fit of a question file to a corpus: answers found, their lengths, and gold documents."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.errors import DataError
from realm.evaluation.places import Spans, answer_wordpieces, locate_answers
from realm.evaluation.questions.loading import QuestionFile, read_questions
from realm.evaluation.questions.rows import QuestionOptions
from realm.models.types import Question
from realm.progress import Counting
from realm.text.matching.answers import normalize_answer
from realm.text.matching.patterns import PatternSearch, compiled_pattern

MAX_SPAN, QUERY_LENGTH = 10, 64  # most wordpieces that a reader marks, and of a question with its special tokens: a recipe's defaults


def check_question_file(
    path: Path, corpus: Path | None = None, *, options: QuestionOptions | None = None, counting: Counting | None = None
) -> dict[str, Any]:
    """Facts of a question file, and of its fit to a ``corpus``: the ``data check --json`` object.

    Raises DataError, with file and line: a malformed question, or an answer too long for a block. Raises CorpusError: no usable corpus.
    """
    file = read_questions(path, options)
    facts = _alone(file)
    if corpus is None:
        return facts
    store = BlockStore.open(corpus)
    require_readable(path, store, file)
    return facts | _against(store, file.questions, counting or (lambda *_: None))


def _alone(file: QuestionFile) -> dict[str, Any]:
    questions = file.questions
    strings = [answer for q in questions if q.answer_type == "string" for answer in q.answers]
    patterns = [answer for q in questions if q.answer_type == "regex" for answer in q.answers]
    words = [len(answer.split()) for answer in strings]
    texts = Counter(normalize_answer(q.text) for q in questions)
    return {
        "questions": len(questions),
        "format": file.format,
        "skipped": file.skipped,
        "repeated_questions": sum(count - 1 for count in texts.values()),
        "answer_types": dict(sorted(Counter(q.answer_type for q in questions).items())),
        "answers_per_question": sum(len(q.answers) for q in questions) / len(questions),
        "answer_words": {"mean": float(np.mean(words)), "median": float(np.median(words)), "longest": max(words)} if words else None,
        "empty_answers": sum(not normalize_answer(answer) for answer in strings),
        "invalid_patterns": sum(compiled_pattern(pattern) is None for pattern in patterns),
        "with_gold_documents": sum(bool(q.positive_ids) for q in questions) / len(questions),
    }


def _against(store: BlockStore, questions: list[Question], counting: Counting) -> dict[str, Any]:
    pieces = [answer_wordpieces(store, q) for q in questions]
    fitting = [any(len(ids) <= MAX_SPAN for ids in answers) for answers in pieces]
    live = store.live
    patterns = PatternSearch()
    located = locate_answers(store, questions, patterns, lambda done, total: counting("data check: patterns", done, total))
    found = [_answerable(spans, live) for spans in located]
    known = set(store.documents())
    lengths = [len(ids) for ids in store.tokenizer.encode([q.text for q in questions])]
    return {
        "answerable": sum(found) / len(questions),
        "answerable_by_type": {
            kind: float(np.mean([hit for hit, q in zip(found, questions, strict=True) if q.answer_type == kind]))
            for kind in sorted({q.answer_type for q in questions})
        },
        "too_long": sum(bool(some) and not fits for some, fits in zip(pieces, fitting, strict=True)) / len(questions),
        "cut_questions": sum(length > QUERY_LENGTH - 2 for length in lengths),
        "slow_patterns": len(patterns.too_slow),
        "unknown_gold_documents": len({name for q in questions for name in q.positive_ids} - known),
    }


def _answerable(spans: Spans, live: np.ndarray) -> bool:
    """True if a live block has a markable answer of at most ``MAX_SPAN`` wordpieces."""
    table = spans.table[live[spans.table[:, 0]]]
    return bool(((table[:, 1] >= 0) & (table[:, 2] - table[:, 1] <= MAX_SPAN)).any())


def require_readable(path: Path, store: BlockStore, file: QuestionFile | None = None) -> None:
    """Require an answer of every question that fits into a block. Raises DataError, with file and line of the first without one."""
    room = store.manifest.block_length - 3
    file = file or read_questions(path)
    for question, line in zip(file.questions, file.lines, strict=True):
        sizes = [len(ids) for ids in answer_wordpieces(store, question)]
        if sizes and min(sizes) > room:
            problem = f"the answer of '{question.id}' has {min(sizes)} wordpieces, a block holds {room}"
            raise DataError(problem, path=path, line=line, cure="Shorten the answer, or build with longer blocks.")
