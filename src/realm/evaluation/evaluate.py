"""Evaluation of a stage: recall of the retriever, exact match of the answers, their confidence; independent of the batch size."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import numpy as np

from realm.answering.answerer import Answerer
from realm.answering.records import Answer
from realm.evaluation.calibration import confidence_facts
from realm.evaluation.measures import Relevance, bootstrap_interval, f1_of, is_correct, recall_at, recall_intervals
from realm.models.types import Question
from realm.progress import Counting
from realm.search.candidates import Source

SEARCH_BATCH = 64


@dataclass(frozen=True)
class Ranking:
    """Blocks found for one question."""

    question: Question
    rows: np.ndarray  # int64 [k], best first, NO_ROW if missing
    scores: np.ndarray  # float32 [k]
    by_answer: np.ndarray  # bool [k], the block holds an answer
    by_gold: np.ndarray | None  # bool [k], the block belongs to a positive document; None if the question names none


@dataclass(frozen=True)
class JudgedAnswer:
    """One answer and its scores.

    >>> answer = Answer("Who built it?", "Eiffel", 0.4, (), {}, {})
    >>> JudgedAnswer(Question("1", "Who built it?", ("Eiffel",)), answer, correct=True, f1=1.0, oracle=True).to_dict()["accepted"]
    ['Eiffel']
    """

    question: Question
    answer: Answer
    correct: bool
    f1: float | None  # None for regex questions
    oracle: bool  # a block that was read holds an answer

    def to_dict(self) -> dict[str, Any]:
        """Fields of ``Answer`` without timings, with "correct" and the "accepted" answers."""
        answer = {name: value for name, value in self.answer.to_dict().items() if name != "timings_ms"}
        return {**answer, "correct": self.correct, "accepted": list(self.question.answers)}


def rank(
    source: Source, relevance: Relevance, questions: SequenceOf[Question], depth: int, counting: Counting | None = None
) -> list[Ranking]:
    """The best ``depth`` blocks of each question, in the order of the questions, with their relevance."""
    rankings: list[Ranking] = []
    for at in range(0, len(questions), SEARCH_BATCH):
        part = list(questions[at : at + SEARCH_BATCH])
        tokens = relevance.store.tokenizer.encode([q.text for q in part])
        found = source.find([q.text for q in part], tokens, depth)
        for question, rows, values in zip(part, found.rows, found.scores, strict=True):
            gold = relevance.by_gold(question, rows) if question.positive_ids else None
            rankings.append(Ranking(question, rows, values, relevance.by_answer(question, rows), gold))
        if counting:
            counting("eval: questions searched", len(rankings), len(questions))
    return rankings


def answer_all(
    answerer: Answerer, relevance: Relevance, questions: SequenceOf[Question], k: int, counting: Counting | None = None
) -> list[JudgedAnswer]:
    """The answer to each question from the best ``k`` blocks, in the order of the questions."""
    readings: list[JudgedAnswer] = []
    for at in range(0, len(questions), SEARCH_BATCH):
        part = list(questions[at : at + SEARCH_BATCH])
        for question, answer in zip(part, answerer.answer([q.text for q in part], k=k), strict=True):
            rows = relevance.store.rows_of(np.array([e.block_id for e in answer.evidence], np.int64))
            oracle = bool(relevance.by_answer(question, rows).any())
            readings.append(JudgedAnswer(question, answer, is_correct(answer.answer, question), f1_of(answer.answer, question), oracle))
        if counting:
            counting("eval: questions answered", len(readings), len(questions))
    return readings


def ranking_summary(rankings: SequenceOf[Ranking], depths: SequenceOf[int]) -> dict[str, Any]:
    """Recall by answer, and by gold document over questions that name one, at each depth, with intervals."""
    by_answer = [ranking.by_answer for ranking in rankings]
    by_gold = [ranking.by_gold for ranking in rankings if ranking.by_gold is not None]
    return {
        "n": len(rankings),
        "recall": recall_at(by_answer, depths),
        "recall_interval": recall_intervals(by_answer, depths),
        "recall_gold": recall_at(by_gold, depths) if by_gold else None,
    }


def reading_summary(readings: SequenceOf[JudgedAnswer]) -> dict[str, Any]:
    """Exact match and F1 with bootstrap intervals, exact match of regex questions, the reader oracle, and calibration.

    ``f1`` is over questions with string answers, ``regex_em`` over the others; None if there are none."""
    hits = [reading.correct for reading in readings]
    answers = [reading.answer for reading in readings]
    scores = [reading.f1 for reading in readings if reading.f1 is not None]
    patterns = [reading.correct for reading in readings if reading.question.answer_type == "regex"]
    return {
        "n": len(readings),
        "em": sum(hits) / len(hits),
        "em_interval": list(bootstrap_interval(hits)),
        "regex_em": sum(patterns) / len(patterns) if patterns else None,
        "f1": sum(scores) / len(scores) if scores else None,
        "f1_interval": list(bootstrap_interval(scores)) if scores else None,
        "reader_oracle": sum(reading.oracle for reading in readings) / len(readings),
        **confidence_facts(answers, hits),
    }


def selective_facts(readings: SequenceOf[JudgedAnswer]) -> dict[str, Any]:
    """{"coverage", "selective_em"}: share of answers not abstained, and their exact match; None if all are."""
    kept = [reading.correct for reading in readings if not reading.answer.abstained]
    return {"coverage": len(kept) / len(readings), "selective_em": sum(kept) / len(kept) if kept else None}


def evaluate_retrieval(
    source: Source, relevance: Relevance, questions: SequenceOf[Question], depths: SequenceOf[int], counting: Counting | None = None
) -> dict[str, Any]:
    """Summary of a source's rankings."""
    return ranking_summary(rank(source, relevance, questions, max(depths), counting=counting), depths)


def evaluate_answers(answerer: Answerer, relevance: Relevance, questions: SequenceOf[Question], read: int) -> dict[str, Any]:
    """Summary of answers from the best ``read`` blocks."""
    return reading_summary(answer_all(answerer, relevance, questions, read))
