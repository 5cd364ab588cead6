"""Fits on dev after training: the confidence of answers with the abstention threshold, and the weight of sparse against dense search."""

from collections.abc import Sequence as SequenceOf
from dataclasses import asdict
from math import log
from typing import Any

import numpy as np

from realm.answering.answerer import MIN_PROBABILITY, Answerer, Confidence, logit
from realm.answering.records import Answer
from realm.evaluation.measures import is_correct
from realm.models.types import Question

SLOPES = np.logspace(-1.5, 1, 101)  # from 1/32, at which confidence hardly depends on p, to 10
NEWTON_STEPS = 50  # steps, of which a few are enough
CALIBRATION_BINS = 10
COVERAGES = tuple(round(0.05 * n, 2) for n in range(1, 21))
ABSTENTION_COST = 0.08  # share of the right answers that abstaining may cost
MIN_RIGHT_ANSWERS = 20  # right answers that a threshold needs


def calibrate(answerer: Answerer, dev: SequenceOf[Question], read: int) -> dict[str, Any]:
    """Fit the confidence of answers on dev questions, and measure it.

    Returns {"slope", "bias", "pooled", "abstain_below", "calibration": {"n", "nll", "nll_before", "error", "error_before"}}: negative
    log-likelihood of right and wrong, and expected calibration error, of the confidence and of pooled p; :func:`threshold` is the other.
    """
    answers = answerer.answer([question.text for question in dev], k=read)
    hits = [is_correct(answer.answer, question) for answer, question in zip(answers, dev, strict=True)]
    p = [answer.pooled for answer in answers]
    found = fit_confidence(p, hits)
    confidence = list(map(found.of, p))
    facts = {
        "n": len(hits),
        "nll": log_loss(confidence, hits),
        "nll_before": log_loss(p, hits),
        "error": calibration_error(confidence, hits),
        "error_before": calibration_error(p, hits),
    }
    return {**asdict(found), "abstain_below": threshold(confidence, hits), "calibration": facts}


def fit_confidence(p: SequenceOf[float], hits: SequenceOf[bool]) -> Confidence:
    """Most likely slope and bias given pooled p and correctness of n answers.

    Standard normal priors on the bias and the logarithm of the slope keep a handful of answers, or only right ones, from certainty."""
    x, right = np.array([logit(value) for value in p]), np.asarray(hits, np.float64)
    fits = [(slope, _bias(slope * x, right)) for slope in SLOPES.tolist()]

    def unlikely(fit: tuple[float, float]) -> float:
        z = fit[0] * x + fit[1]
        return float((np.logaddexp(0.0, z) - right * z).sum() + (fit[1] ** 2 + log(fit[0]) ** 2) / 2)

    return Confidence(*min(fits, key=unlikely), pooled=True)


def _bias(z: np.ndarray, right: np.ndarray) -> float:
    """The likeliest addition to the log-odds z [n], by Newton's method: the loss is convex, steps are bounded."""
    bias = 0.0
    for _ in range(NEWTON_STEPS):
        p = 1.0 / (1.0 + np.exp(-(z + bias)))
        step = float(((p - right).sum() + bias) / ((p * (1.0 - p)).sum() + 1.0))
        bias -= min(max(step, -1.0), 1.0)
    return bias


def threshold(confidence: SequenceOf[float], hits: SequenceOf[bool], cost: float = ABSTENTION_COST) -> float:
    """Confidence with a share ``cost`` of the right answers below it; 0 if there are too few of them.

    Most unanswerable questions are below it: no question without an answer is needed to find it."""
    right = sorted(p for p, hit in zip(confidence, hits, strict=True) if hit)
    return right[int(cost * len(right))] if len(right) >= MIN_RIGHT_ANSWERS else 0.0


def log_loss(confidence: SequenceOf[float], hits: SequenceOf[bool]) -> float:
    """Mean negative log-likelihood of "right" and "wrong" under n confidences."""
    p, right = np.clip(np.asarray(confidence, np.float64), MIN_PROBABILITY, 1 - MIN_PROBABILITY), np.asarray(hits, np.float64)
    return float(-(right * np.log(p) + (1 - right) * np.log(1 - p)).mean())


def calibration_error(confidence: SequenceOf[float], hits: SequenceOf[bool]) -> float:
    """Expected calibration error: |share of right answers - mean confidence| over ten bins of confidence, weighted by their answers.

    >>> calibration_error([0.75, 0.75, 0.75, 0.75], [True, True, True, False])
    0.0
    """
    p, right = np.asarray(confidence, np.float64), np.asarray(hits, np.float64)
    bins = np.minimum((p * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    gaps = [abs(right[bins == b].sum() - p[bins == b].sum()) for b in range(CALIBRATION_BINS)]
    return float(sum(gaps) / max(1, len(p)))


def risk_coverage(confidence: SequenceOf[float], hits: SequenceOf[bool]) -> dict[str, Any]:
    """Risk against coverage: the share of wrong answers among the most confident ones.

    Returns {"curve": [[coverage, risk, threshold]], "area"}: at each of 20 coverages the risk of the kept answers and their least
    confidence; the area under the whole curve, smaller is better. Ties keep the order given."""
    order = np.argsort(-np.asarray(confidence, np.float64), kind="stable")
    wrong = 1.0 - np.asarray(hits, np.float64)[order]
    risk = wrong.cumsum() / np.arange(1, len(wrong) + 1)
    kept = [max(1, round(c * len(wrong))) for c in COVERAGES]
    curve = [[c, float(risk[n - 1]), float(confidence[order[n - 1]])] for c, n in zip(COVERAGES, kept, strict=True)]
    return {"curve": curve, "area": float(risk.mean())}


def confidence_facts(answers: SequenceOf[Answer], hits: SequenceOf[bool]) -> dict[str, Any]:
    """Calibration of the answers' confidence, or p: {"calibration_error", "risk_coverage"}."""
    confidence = [answer.sureness for answer in answers]
    return {"calibration_error": calibration_error(confidence, hits), "risk_coverage": risk_coverage(confidence, hits)}
