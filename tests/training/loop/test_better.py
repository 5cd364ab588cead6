"""The better of two weights of a network."""

import math

import pytest
import torch
from torch import nn

from realm.training.loop.checkpoint import Verdict, better_of


@pytest.mark.parametrize(
    ("before", "after", "kept"), [(0.2, 0.3, "after"), (0.3, 0.2, "before"), (0.3, 0.3, "after"), (0.3, math.nan, "before")]
)
def test_a_network_is_left_with_the_better_weights(before, after, kept):
    network = nn.Linear(2, 1)
    start = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
    learnt = {name: value.clone() for name, value in network.state_dict().items()}

    def measure():
        return before if not network.weight.any() else after

    verdict = better_of(network, start, "a measure", measure)
    assert verdict == Verdict("a measure", before, pytest.approx(after, nan_ok=True))
    assert verdict.facts()["kept"] == kept
    assert all(torch.equal(value, (learnt if kept == "after" else start)[name]) for name, value in network.state_dict().items())
