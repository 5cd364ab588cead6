"""The mathematics of mixing against a reference in plain loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from realm.errors import ConfigError
from realm.knn.settings import Mixing, mixed_log_probs, neighbour_weights, token_probs, wanted_probs


def brute_force(scores, tokens, valid, temperature, v):
    """p_kNN over the vocabulary by its definition, float64 [b,v]."""
    p = np.zeros((len(scores), v))
    for i in range(len(scores)):
        mass = [math.exp((scores[i, j] - scores[i][valid[i]].max()) / temperature) if valid[i, j] else 0.0 for j in range(len(scores[i]))]
        for j, share in enumerate(mass):
            if sum(mass):
                p[i, tokens[i, j]] += share / sum(mass)
    return p


def draw(seed, b=5, k=7, v=11):
    rng = np.random.default_rng(seed)
    scores = -np.abs(rng.standard_normal((b, k))).astype(np.float32) * 10 ** rng.uniform(-2, 3)
    valid = rng.random((b, k)) < 0.8
    valid[0], scores[0, 0] = True, scores[0].max()
    valid[1] = False
    return scores, rng.integers(0, v, (b, k)), valid


@given(st.integers(0, 10**6), st.floats(0.01, 1000))
def test_p_knn_is_its_definition(seed, temperature):
    scores, tokens, valid = draw(seed)
    expected = brute_force(scores, tokens, valid, temperature, 11)
    weights = neighbour_weights(*map(torch.from_numpy, (scores, valid)), temperature)
    found = token_probs(weights, torch.from_numpy(tokens), 11).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found.sum(1), valid.any(1), atol=1e-9)
    wanted = torch.from_numpy(tokens[:, 0])
    np.testing.assert_allclose(wanted_probs(weights, torch.from_numpy(tokens), wanted), expected[np.arange(5), tokens[:, 0]], atol=1e-6)


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_mixture_is_its_definition(seed, a):
    rng = np.random.default_rng(seed)
    model, near = rng.dirichlet(np.ones(6), 4), rng.dirichlet(np.ones(6), 4)
    near[0, :3] = 0
    mixed = mixed_log_probs(torch.from_numpy(model).log(), torch.from_numpy(near), torch.full((4,), a, dtype=torch.float64))
    np.testing.assert_allclose(mixed.exp(), a * near + (1 - a) * model, atol=1e-9)


@pytest.mark.parametrize("values", [{"a": 1.5}, {"a": -0.1}, {"a": float("nan")}, {"k": 0}, {"temperature": 0.0}, {"temperature": -1.0}])
def test_settings_out_of_range(values):
    with pytest.raises(ConfigError, match=next(iter(values))):
        Mixing(**values)
