"""The schedule is a function of the step; weight decay spares biases and norms."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from realm.training.loop.optim import OPTIMIZERS, adamw, schedule
from realm.training.loop.stepping import one_step
from realm.training.loop.task import LoopOptions, StepResult, Task


def test_linear_up_then_linear_down():
    values = [schedule(step, steps=10, warmup=4) for step in range(11)]
    assert values == pytest.approx([0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])


@given(st.integers(0, 50), st.integers(0, 60), st.integers(0, 60))
def test_any_schedule_stays_between_0_and_1(steps, warmup, step):
    value = schedule(step, steps=steps, warmup=warmup)
    assert 0 <= value <= 1
    if step < steps:
        assert value > 0


def test_without_warmup_it_starts_at_the_peak():
    assert schedule(0, steps=5, warmup=0) == 1


def test_biases_and_norms_do_not_decay():
    model = nn.ModuleDict({"dense": nn.Linear(2, 2), "LayerNorm": nn.LayerNorm(2), "norm": nn.LayerNorm(2), "frozen": nn.Linear(2, 2)})
    model["frozen"].requires_grad_(False)
    decay, plain = adamw([model], lr=0.1).param_groups
    assert [id(p) for p in decay["params"]] == [id(model["dense"].weight)]
    assert len(plain["params"]) == 5 and (decay["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    assert (decay["betas"], decay["eps"]) == ((0.9, 0.999), 1e-6)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_parts_learn_at_their_own_rates(name):
    """Half the rate moves a part as half the learning rate would, none not at all, and what is not named as ever."""

    def moved(lr, rates):
        torch.manual_seed(0)
        model = nn.ModuleDict({part: nn.Linear(3, 3) for part in ("reader", "source", "documents")})
        task = Task()
        task.name, task.model, task.rates = "parts", model, rates
        inputs = torch.randn(4, 3)
        task.step = lambda step, share=None: StepResult(sum(part(inputs).pow(2).sum() for part in model.values()), 4, {}, 4)
        options = LoopOptions(steps=3, lr=lr, warmup=0, optimizer=name)
        optimizer = OPTIMIZERS[name].build([model], lr=lr, rates=task.rates)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        one_step(task, 1, optimizer, options)
        return {key: value - before[key] for key, value in model.state_dict().items()}

    whole, half, mixed = moved(0.1, {}), moved(0.05, {}), moved(0.1, {"source": 0.5, "documents": 0.0})
    for key in whole:
        expected = {"reader": whole, "source": half}.get(key.split(".")[0])
        assert whole[key].abs().min() > 0
        assert torch.equal(mixed[key], expected[key] if expected else torch.zeros_like(whole[key]))


def test_a_model_of_norms_alone_trains():
    model = nn.LayerNorm(3)
    optimizer = adamw([model], lr=0.1)
    model(torch.randn(2, 3)).pow(2).sum().backward()
    optimizer.step()
    assert (model.weight != 1).all()
