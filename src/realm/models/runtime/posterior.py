"""Posteriors of spans by numpy: the twins of ``models.losses`` that answer, where nothing learns.

Shapes as there: b examples, k candidates, s candidate spans. Masked entries are -inf."""

import numpy as np

RELEVANCE_POWER = 0.5  # of p(z|x) where blocks compete: the best of five on 400 held-out questions over 3,400 paragraphs


def log_sum_exp(values: np.ndarray) -> np.ndarray:
    """Return the logarithm of the sum of exponentials over the last axis; -inf where nothing is finite."""
    highest = values.max(-1, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0)
    with np.errstate(divide="ignore"):
        total: np.ndarray = np.log(np.exp(values - highest).sum(-1)) + highest[..., 0]
    return total


def softmax(values: np.ndarray) -> np.ndarray:
    """Return probabilities over the last axis; 0 at -inf, and everywhere where nothing is finite."""
    highest = values.max(-1, keepdims=True)
    odds = np.exp(values - np.where(np.isfinite(highest), highest, 0))
    found: np.ndarray = odds / np.maximum(odds.sum(-1, keepdims=True), np.finfo(odds.dtype).tiny)
    return found


def span_log_posterior(span_scores: np.ndarray, not_here: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log p(s|z,x) [..., s] and log p(none|z,x) [...] of scores f [..., s] and ``not_here`` [...], over ``valid`` spans."""
    kept = np.where(valid, span_scores, -np.inf)
    everything = np.logaddexp(log_sum_exp(kept), not_here)
    return kept - everything[..., None], not_here - everything


def competing_log_posterior(log_spans: np.ndarray, log_none: np.ndarray, relevance: np.ndarray, read: np.ndarray) -> np.ndarray:
    """Return log p(s|x) [b, k, s] where the spans of all blocks compete, and "not here" is one outcome of all blocks together.

    A span weighs p(s|z,x) / p(none|z,x) times (p(z|x) / max p(z|x)) ** RELEVANCE_POWER, "not here" weighs 1: an empty block takes nothing
    from a sure one, as it would in the mixture over p(z|x). Of log p(s|z,x) [b, k, s], log p(none|z,x) [b, k], ``relevance`` scores [b, k],
    and blocks ``read`` bool [b, k]; the rest to 1 is p(none|x)."""
    relevance = np.where(read, relevance, -np.inf)
    highest = relevance.max(-1, keepdims=True)
    weight = RELEVANCE_POWER * (relevance - np.where(np.isfinite(highest), highest, 0)) - log_none
    log_weight = log_spans + np.where(read, weight, -np.inf)[..., None]
    everything = np.logaddexp(0, log_sum_exp(log_weight.reshape(len(log_weight), -1)))  # log(1 + sum of weights)
    found: np.ndarray = log_weight - everything[:, None, None]
    return found


def highest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the ``count`` highest of all values, or of all if there are fewer, best first, in the flat array: int64 [n]."""
    flat = values.ravel()
    count = min(count, flat.size)
    places = np.argpartition(flat, flat.size - count)[flat.size - count :]
    found: np.ndarray = places[np.lexsort((places, -flat[places]))]
    return found
