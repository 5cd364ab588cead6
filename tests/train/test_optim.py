"""The schedule is a function of the step; weight decay spares biases and norms."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from realm.train.optim import adamw, schedule


def test_linear_up_then_linear_down() -> None:
    values = [schedule(step, steps=10, warmup=4) for step in range(11)]
    assert values == pytest.approx([0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])


@given(st.integers(0, 50), st.integers(0, 60), st.integers(0, 60))
def test_any_schedule_stays_between_0_and_1(steps: int, warmup: int, step: int) -> None:
    value = schedule(step, steps=steps, warmup=warmup)
    assert 0 <= value <= 1
    if step < steps:
        assert value > 0


def test_without_warmup_it_starts_at_the_peak() -> None:
    assert schedule(0, steps=5, warmup=0) == 1


def test_biases_and_norms_do_not_decay() -> None:
    model = nn.ModuleDict({"dense": nn.Linear(2, 2), "LayerNorm": nn.LayerNorm(2), "norm": nn.LayerNorm(2), "frozen": nn.Linear(2, 2)})
    model["frozen"].requires_grad_(False)
    optimizer = adamw([model], lr=0.1)
    decay, plain = optimizer.param_groups
    assert [id(p) for p in decay["params"]] == [id(model["dense"].weight)]
    assert len(plain["params"]) == 5 and (decay["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    assert (decay["betas"], decay["eps"]) == ((0.9, 0.999), 1e-6)


def test_a_model_of_norms_alone_trains() -> None:
    model = nn.LayerNorm(3)
    optimizer = adamw([model], lr=0.1)
    model(torch.randn(2, 3)).pow(2).sum().backward()
    optimizer.step()
    assert (model.weight != 1).all()
