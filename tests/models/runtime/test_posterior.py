"""Posteriors by numpy against those of training and against enumeration."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from realm.models import losses
from realm.models.runtime.posterior import RELEVANCE_POWER, competing_log_posterior, highest, log_sum_exp, softmax, span_log_posterior

SHAPES = st.tuples(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 5), st.integers(1, 6))


def drawn(seed, b, k, s):
    """Span scores, scores of absent spans, relevance, and the spans that there are."""
    rng = np.random.default_rng(seed)
    parts = rng.normal(0, 4, (b, k, s)), rng.normal(0, 4, (b, k)), rng.normal(0, 9, (b, k))
    return *(part.astype(np.float32) for part in parts), rng.random((b, k, s)) < 0.7


@given(SHAPES)
def test_spans_weigh_what_training_gives_them(shape):
    f, n, _, valid = drawn(*shape)
    spans, none = span_log_posterior(f, n, valid)
    given = [torch.from_numpy(part) for part in (f, n, valid)]
    np.testing.assert_allclose(np.exp(spans), losses.span_log_posterior(*given).exp(), atol=1e-6)
    np.testing.assert_allclose(none, losses.not_here_log_posterior(*given), atol=1e-5)


@given(SHAPES)
def test_competing_blocks_are_the_enumerated_odds_and_more_empty_blocks_change_nothing(shape):
    f, n, relevance, valid = drawn(*shape)
    read = np.ones(n.shape, bool)
    found = np.exp(competing_log_posterior(*span_log_posterior(f, n, valid), relevance, read))
    for i in range(len(f)):
        odds = np.exp((f[i] - n[i, :, None]).astype(np.float64))
        weight = odds * np.exp(RELEVANCE_POWER * (relevance[i] - relevance[i].max()))[:, None] * valid[i]
        np.testing.assert_allclose(found[i], weight / (1 + weight.sum()), rtol=1e-4, atol=1e-6)
    wider = [np.concatenate([part, part[:, :1]], 1) for part in (f, n, relevance, valid, read)]
    wider[3][:, -1] = wider[4][:, -1] = False  # one more block, which was not read
    more = competing_log_posterior(*span_log_posterior(*wider[:2], wider[3]), wider[2], wider[4])
    np.testing.assert_allclose(np.exp(more)[:, :-1], found, atol=1e-6)
    assert (more[:, -1] == -np.inf).all()


@pytest.mark.parametrize("values", [[1.0, 2.0, -np.inf], [-np.inf, -np.inf], [900.0, 900.0], [0.0]])
def test_sums_of_exponentials(values):
    values = np.array([values], np.float32)
    np.testing.assert_allclose(log_sum_exp(values), torch.from_numpy(values).logsumexp(-1), rtol=1e-6)
    expected = torch.from_numpy(values).softmax(-1).numpy()
    np.testing.assert_allclose(softmax(values), np.nan_to_num(expected), rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "count", "places"),
    [([[1, 5], [3, 5]], 3, [1, 3, 2]), ([[2, 2, 2]], 2, [0, 1]), ([[1, 2]], 9, [1, 0]), ([[-np.inf, 0]], 2, [1, 0])],
)
def test_the_highest_come_first(values, count, places):
    found = highest(np.array(values, np.float32), count)
    assert found.tolist() == places or values == [[2, 2, 2]]
