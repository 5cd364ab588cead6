"""Scores of answers and of rankings; all rates are fractions 0..1."""

from collections.abc import Sequence as SequenceOf
from functools import lru_cache

import numpy as np

from realm.answering.records import Answer
from realm.documents.store.blocks import BlockStore
from realm.models.types import Question
from realm.recipe.seeds import generator
from realm.text.matching.answers import padded_answers, padded_parts, regex_match, scoring_of
from realm.text.matching.patterns import PatternSearch
from realm.text.words import language_of

BOOTSTRAPS = 1000
_DRAWS_PER_CHUNK = 10_000_000
CACHED_BLOCKS = 2**14  # blocks with cached normalised words, some 30 MB: questions share blocks


def is_correct(prediction: str, question: Question) -> bool:
    """Exact match by the official script of the question's language; regex answers match at the start of the raw prediction.

    >>> is_correct("The Eiffel Tower.", Question("1", "Which tower is it?", ("Eiffel tower",)))
    True
    """
    if question.answer_type == "regex":
        return regex_match(prediction, question.answers)
    return scoring_of(question.text).exact_match(prediction, question.answers)


def exact_match_share(answers: SequenceOf[Answer], questions: SequenceOf[Question]) -> float:
    """Share of questions answered correctly."""
    return float(np.mean([is_correct(a.answer, q) for a, q in zip(answers, questions, strict=True)]))


def f1_of(prediction: str, question: Question) -> float | None:
    """F1 by the official script of the question's language; None for regex questions, which have no reference to count."""
    return scoring_of(question.text).f1(prediction, question.answers) if question.answer_type == "string" else None


def bootstrap_interval(values: SequenceOf[float] | np.ndarray, draws: int = BOOTSTRAPS, of: str = "bootstrap") -> tuple[float, float]:
    """95 % percentile bootstrap interval of a mean, or of a share if the values are hits and misses; ``of`` names its random numbers.

    >>> bootstrap_interval([1.0, 1.0, 1.0])
    (1.0, 1.0)
    """
    sample = np.asarray(values, np.float64)
    rng = generator(of, 0)
    at_once = max(1, min(draws, _DRAWS_PER_CHUNK // len(sample)))
    counts = [min(at_once, draws - done) for done in range(0, draws, at_once)]
    means = np.concatenate([sample[rng.integers(len(sample), size=(count, len(sample)))].mean(1) for count in counts])
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


class Relevance:
    """Relevance of rows to a question: by an answer anywhere in the block, and by gold document.

    A string answer counts if its normalised words occur in a row. Regex answers are searched in the text, and a pattern that exceeds its
    time twice is not tried again (see ``patterns``)."""

    def __init__(self, store: BlockStore):
        self.store = store
        self.patterns = PatternSearch()
        self._words = lru_cache(CACHED_BLOCKS)(lambda row: padded_parts(store.block(row).text))

    def by_answer(self, question: Question, rows: np.ndarray) -> np.ndarray:
        """[k] True if the row's block holds an answer."""
        if question.answer_type == "regex":
            found = [row >= 0 and self.patterns.found(self.store.block(row).text, question.answers) for row in rows.tolist()]
        else:
            needles = padded_answers(question.answers)
            found = [row >= 0 and any(needle in self._words(row) for needle in needles) for row in rows.tolist()]
        return np.array(found, np.bool_)

    def by_gold(self, question: Question, rows: np.ndarray) -> np.ndarray:
        """[k] True if the row belongs to one of the question's positive documents."""
        return np.isin(rows, gold_rows(self.store, question))

    def language(self, question: Question) -> str:
        """Language of the question's first positive document in the corpus; else of the question, which is shorter to tell by."""
        gold = gold_rows(self.store, question)
        return self.store.language(int(gold[0])) if len(gold) else language_of(question.text)


def gold_rows(store: BlockStore, question: Question) -> np.ndarray:
    """Rows of the question's positive documents in the corpus, int64 [n]."""
    gold = [store.rows_of_document(document) for document in question.positive_ids]
    return np.concatenate(gold).astype(np.int64) if gold else np.empty(0, np.int64)


def recall_at(hits: SequenceOf[np.ndarray], depths: SequenceOf[int]) -> dict[str, float]:
    """Share of questions with a hit among the first k, for each depth. ``hits`` are [k] each, best first.

    >>> recall_at([np.array([False, True]), np.array([False, False])], depths=(1, 2))
    {'1': 0.0, '2': 0.5}
    """
    return {str(k): float(np.mean([bool(h[:k].any()) for h in hits])) if len(hits) else 0.0 for k in depths}


def recall_intervals(hits: SequenceOf[np.ndarray], depths: SequenceOf[int]) -> dict[str, list[float]]:
    """Bootstrap interval of each share of :func:`recall_at`."""
    return {str(k): list(bootstrap_interval([bool(h[:k].any()) for h in hits])) for k in depths}
