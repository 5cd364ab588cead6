"""Evaluation of a stage: recall of the retriever before and after fine-tuning, exact match of the answers, their confidence.

In batches, question by question the same whatever their size.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realm.answerer import Answer, Answerer
from realm.candidates import Source
from realm.data.types import Question
from realm.progress import Counting
from realm.recipes.scoring import Relevance, bootstrap_interval, f1_of, is_correct, recall_at, recall_intervals

SEARCH_BATCH = 64


@dataclass(frozen=True)
class Ranking:
    """What a source found for one question.

    Attributes:
        rows: int64 [k], best first, NO_ROW where there is none.
        scores: float32 [k].
        by_answer: bool [k], True where the block holds an answer.
        by_gold: bool [k], True where it belongs to a positive document; None if the question names none.
    """

    question: Question
    rows: np.ndarray
    scores: np.ndarray
    by_answer: np.ndarray
    by_gold: np.ndarray | None


@dataclass(frozen=True)
class JudgedAnswer:
    """One answer and what it is worth; ``oracle``: an answer stands in a block that was read; ``f1`` is None for regex questions."""

    question: Question
    answer: Answer
    correct: bool
    f1: float | None
    oracle: bool


@torch.inference_mode()
def rank(
    source: Source,
    relevance: Relevance,
    questions: SequenceOf[Question],
    depth: int,
    *,
    batch: int = SEARCH_BATCH,
    counting: Counting | None = None,
) -> list[Ranking]:
    """The best ``depth`` blocks of each question, in the order of the questions, with what in them is relevant."""
    source.eval()
    rankings: list[Ranking] = []
    for at in range(0, len(questions), batch):
        part = list(questions[at : at + batch])
        tokens = relevance.store.tokenizer.encode([q.text for q in part])
        found = source([q.text for q in part], tokens, depth)
        scores = found.scores.float().cpu().numpy()
        for question, rows, values in zip(part, found.rows, scores, strict=True):
            gold = relevance.by_gold(question, rows) if question.positive_ids else None
            rankings.append(Ranking(question, rows, values, relevance.by_answer(question, rows), gold))
        if counting:
            counting("eval: questions searched", len(rankings), len(questions))
    return rankings


def answer_all(
    answerer: Answerer,
    relevance: Relevance,
    questions: SequenceOf[Question],
    k: int,
    *,
    batch: int = SEARCH_BATCH,
    counting: Counting | None = None,
) -> list[JudgedAnswer]:
    """The answer to each question from the best ``k`` blocks, in the order of the questions."""
    readings: list[JudgedAnswer] = []
    for at in range(0, len(questions), batch):
        part = list(questions[at : at + batch])
        for question, answer in zip(part, answerer.answer([q.text for q in part], k=k), strict=True):
            rows = relevance.store.rows_of(np.array([e.block_id for e in answer.evidence], np.int64))
            oracle = bool(relevance.by_answer(question, rows).any())
            readings.append(JudgedAnswer(question, answer, is_correct(answer.answer, question), f1_of(answer.answer, question), oracle))
        if counting:
            counting("eval: questions answered", len(readings), len(questions))
    return readings


def ranking_summary(rankings: SequenceOf[Ranking], depths: SequenceOf[int]) -> dict[str, Any]:
    """Recall by answer and by gold document at each depth, with intervals.

    Gold recall is over questions that name positive documents; None when none does.
    """
    by_answer = [ranking.by_answer for ranking in rankings]
    by_gold = [ranking.by_gold for ranking in rankings if ranking.by_gold is not None]
    return {
        "n": len(rankings),
        "recall": recall_at(by_answer, depths),
        "recall_interval": recall_intervals(by_answer, depths),
        "recall_gold": recall_at(by_gold, depths) if by_gold else None,
    }


def reading_summary(readings: SequenceOf[JudgedAnswer]) -> dict[str, Any]:
    """Exact match and F1 with their bootstrap intervals, exact match of the regex questions alone, the reader oracle, and what the
    answers' confidence is worth.

    ``f1`` is over questions with string answers, ``regex_em`` over the others; None when there are none.
    """
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
    """{"coverage", "selective_em"}: the share of questions whose answer did not abstain, and exact match over these; None where all did."""
    kept = [reading.correct for reading in readings if not reading.answer.abstained]
    return {"coverage": len(kept) / len(readings), "selective_em": sum(kept) / len(kept) if kept else None}


def evaluate_retrieval(
    source: Source, relevance: Relevance, questions: SequenceOf[Question], depths: SequenceOf[int], counting: Counting | None = None
) -> dict[str, Any]:
    """The summary of what a source finds."""
    return ranking_summary(rank(source, relevance, questions, max(depths), counting=counting), depths)


def evaluate_answers(
    answerer: Answerer, relevance: Relevance, questions: SequenceOf[Question], read: int, counting: Counting | None = None
) -> dict[str, Any]:
    """The summary of answers from the best ``read`` blocks."""
    return reading_summary(answer_all(answerer, relevance, questions, read, counting=counting))


TEMPERATURES = torch.logspace(-1, 1.5, 101)
"""From .1 to 32: beyond, an answer's confidence hardly depends on its scores any more."""
BINS = 10
COVERAGES = tuple(round(0.05 * n, 2) for n in range(1, 21))
LEAST = 1e-6


def calibrate(answerer: Answerer, dev: SequenceOf[Question], read: int) -> dict[str, Any]:
    """The temperature under which the confidence of an answer is likeliest to be the share of right ones, on dev questions.

    Returns:
        {"temperature", "calibration": {"n", "nll", "nll_before", "error", "error_before"}}: negative log-likelihood of right and wrong,
        and expected calibration error, after and before (temperature 1).
    """
    texts, confidence = answerer.confidences([q.text for q in dev], read, torch.cat([TEMPERATURES, torch.ones(1)]))
    hits = [is_correct(text, question) for text, question in zip(texts, dev, strict=True)]
    nll = log_loss(confidence, hits)
    best = int(nll[:-1].argmin())
    facts = {
        "n": len(hits),
        "nll": float(nll[best]),
        "nll_before": float(nll[-1]),
        "error": calibration_error(confidence[:, best].tolist(), hits),
        "error_before": calibration_error(confidence[:, -1].tolist(), hits),
    }
    return {"temperature": float(TEMPERATURES[best]), "calibration": facts}


def log_loss(confidence: Tensor, hits: SequenceOf[bool]) -> Tensor:
    """Mean negative log-likelihood of "right" and "wrong" under n confidences [n, t], at each temperature. [t]"""
    right = torch.tensor(hits).unsqueeze(1)
    p = confidence.double().clamp(LEAST, 1 - LEAST)
    return -torch.where(right, p.log(), (1 - p).log()).mean(0)


def calibration_error(confidence: SequenceOf[float], hits: SequenceOf[bool]) -> float:
    """Expected calibration error: |share of right answers - mean confidence| over ten bins of confidence, weighted by their answers."""
    p, right = np.asarray(confidence, np.float64), np.asarray(hits, np.float64)
    bins = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    gaps = [abs(right[bins == b].sum() - p[bins == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / max(1, len(p)))


def risk_coverage(confidence: SequenceOf[float], hits: SequenceOf[bool]) -> dict[str, Any]:
    """What abstaining buys: the share of wrong answers among the most confident ones.

    Returns:
        {"curve": [[coverage, risk, threshold]], "area"}: at each of 20 coverages the risk of the answers kept and the confidence of the
        least confident of them; the area under the whole curve, smaller is better. Equal confidences are kept in the order given.
    """
    order = np.argsort(-np.asarray(confidence, np.float64), kind="stable")
    wrong = 1.0 - np.asarray(hits, np.float64)[order]
    risk = wrong.cumsum() / np.arange(1, len(wrong) + 1)
    kept = [max(1, round(c * len(wrong))) for c in COVERAGES]
    curve = [[c, float(risk[n - 1]), float(confidence[order[n - 1]])] for c, n in zip(COVERAGES, kept, strict=True)]
    return {"curve": curve, "area": float(risk.mean())}


def confidence_facts(answers: SequenceOf[Answer], hits: SequenceOf[bool]) -> dict[str, Any]:
    """What an evaluation says of the answers' confidence, p where nothing was calibrated: {"calibration_error", "risk_coverage"}."""
    confidence = [answer.sureness for answer in answers]
    return {"calibration_error": calibration_error(confidence, hits), "risk_coverage": risk_coverage(confidence, hits)}
