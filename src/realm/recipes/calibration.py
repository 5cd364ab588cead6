"""What is fitted on dev after training: the temperature that makes a confidence of span scores, with what abstaining buys, and the weight
of sparse against dense search.
"""

from collections.abc import Sequence as SequenceOf
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realm.answerer import Answer, Answerer
from realm.candidates import EVEN, HybridCandidates
from realm.data.types import Question
from realm.recipes.scoring import Relevance, is_correct

TEMPERATURES = torch.logspace(-1, 1.5, 101)
"""From .1 to 32: beyond, an answer's confidence hardly depends on its scores any more."""
BINS = 10
COVERAGES = tuple(round(0.05 * n, 2) for n in range(1, 21))
LEAST = 1e-6
COST = 0.1
"""Share of the right answers that abstaining may cost."""
LEAST_RIGHT = 20
"""Right answers from which on their share is told."""
WEIGHTS = tuple(sorted((2 ** (n / 2) for n in range(-4, 5)), key=lambda weight: abs(log(weight))))
"""Of sparse against dense search, from 1/4 to 4, the most even first."""
WEIGHT_DEPTH = 5
"""Blocks among which an answer is looked for when a weight is fitted: as many as are read."""


def calibrate(answerer: Answerer, dev: SequenceOf[Question], read: int) -> dict[str, Any]:
    """The temperature under which the confidence of an answer is likeliest to be the share of right ones, on dev questions.

    Returns:
        {"temperature", "abstain_below", "calibration": {"n", "nll", "nll_before", "error", "error_before"}}: negative log-likelihood of
        right and wrong, and expected calibration error, after and before (temperature 1); see :func:`threshold` for the second.
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
    below = threshold(confidence[:, best].tolist(), hits)
    return {"temperature": float(TEMPERATURES[best]), "abstain_below": below, "calibration": facts}


def threshold(confidence: SequenceOf[float], hits: SequenceOf[bool]) -> float:
    """The confidence below which a share ``COST`` of the right answers lies; 0 where there are too few of them to tell.

    What documents do not answer is mostly below it: no question without an answer is needed to find it.
    """
    right = sorted(p for p, hit in zip(confidence, hits, strict=True) if hit)
    return right[int(COST * len(right))] if len(right) >= LEAST_RIGHT else 0.0


def fit_weight(source: HybridCandidates, relevance: Relevance, dev: SequenceOf[Question]) -> dict[str, Any]:
    """The weight of sparse search at which most dev questions find an answer among the best five blocks; of equal ones the most even.

    Returns:
        {"retrieval_weight", "weight_fit": {"n", "recall", "recall_even"}}: recall at 5 with that weight, and with 1.
    """
    recall = hits_by_weight(source, relevance, dev).mean(1).tolist()
    best = int(np.argmax(recall))
    return {
        "retrieval_weight": WEIGHTS[best],
        "weight_fit": {"n": len(dev), "recall": recall[best], "recall_even": recall[WEIGHTS.index(EVEN)]},
    }


def hits_by_weight(source: HybridCandidates, relevance: Relevance, questions: SequenceOf[Question]) -> np.ndarray:
    """Whether each question finds an answer among its best ``WEIGHT_DEPTH`` blocks at each of ``WEIGHTS``, bool [w, n]."""
    source.eval()
    texts = [question.text for question in questions]
    rows = source.rows_by_weight(texts, relevance.store.tokenizer.encode(texts), WEIGHTS, WEIGHT_DEPTH)
    return np.array([[relevance.by_answer(q, found).any() for q, found in zip(questions, each, strict=True)] for each in rows])


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
