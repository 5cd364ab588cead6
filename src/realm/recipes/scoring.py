"""Scores of answers and of rankings; all rates are fractions 0..1 (design decision 17)."""

from collections.abc import Sequence as SequenceOf

import numpy as np

from realm.answerer import Answer
from realm.corpus.blocks import BlockStore
from realm.data.loader import generator
from realm.data.qa import AnswerLocator, answer_wordpieces
from realm.data.types import Question
from realm.text.answers import contains_answer, exact_match, f1, regex_match

BOOTSTRAPS = 1000


def is_correct(prediction: str, question: Question) -> bool:
    """Exact match as the official script defines it; regex answers match at the start of the raw prediction."""
    match = regex_match if question.answer_type == "regex" else exact_match
    return match(prediction, question.answers)


def exact_match_share(answers: SequenceOf[Answer], questions: SequenceOf[Question]) -> float:
    """Share of questions answered correctly."""
    return float(np.mean([is_correct(a.answer, q) for a, q in zip(answers, questions, strict=True)]))


def f1_mean(answers: SequenceOf[Answer], questions: SequenceOf[Question]) -> float:
    """Mean token F1 over questions with string answers; regex questions have no reference tokens."""
    values = [f1(a.answer, q.answers) for a, q in zip(answers, questions, strict=True) if q.answer_type == "string"]
    return float(np.mean(values)) if values else 0.0


def bootstrap_interval(hits: SequenceOf[bool], seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of a share."""
    values = np.asarray(hits, np.float64)
    draws = generator("bootstrap", seed).integers(len(values), size=(BOOTSTRAPS, len(values)))
    low, high = np.percentile(values[draws].mean(1), [2.5, 97.5])
    return float(low), float(high)


class Relevance:
    """Which rows answer a question: by answer string anywhere in the block, and by gold document.

    String answers are matched as wordpieces, regex answers are searched in the block's text.
    """

    def __init__(self, store: BlockStore):
        self.store = store
        self.locator = AnswerLocator(store)

    def by_answer(self, question: Question, rows: np.ndarray) -> np.ndarray:
        """[k] True where the row's block holds an answer."""
        if question.answer_type == "regex":
            return np.array([row >= 0 and contains_answer(self.store.block(int(row)).text, question.answers, "regex") for row in rows])
        return np.isin(rows, list(self.locator.spans(answer_wordpieces(self.store, question))))

    def by_gold(self, question: Question, rows: np.ndarray) -> np.ndarray:
        """[k] True where the row belongs to one of the question's positive documents."""
        gold = [self.store.rows_of_document(document) for document in question.positive_ids]
        return np.isin(rows, np.concatenate(gold)) if gold else np.zeros(len(rows), bool)


def recall_at(hits: SequenceOf[np.ndarray], depths: SequenceOf[int]) -> dict[str, float]:
    """Share of questions with a hit among the first k, for each depth. ``hits`` are [k] each, best first."""
    return {str(k): float(np.mean([bool(h[:k].any()) for h in hits])) if len(hits) else 0.0 for k in depths}
