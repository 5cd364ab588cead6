"""The schedule is a function of the step; weight decay spares biases and norms."""

import math

import pytest
import torch
from torch import nn
from toy_tasks import train

from realm.training.loop.optim import OPTIMIZERS, adamw, schedule
from realm.training.loop.stepping import one_step
from realm.training.loop.task import LoopOptions, StepResult, Task
from realm.training.order import WHOLE


def test_linear_up_then_linear_down_or_from_the_peak():
    values = [schedule(step, steps=10, warmup=4) for step in range(11)]
    assert values == pytest.approx([0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])
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


STEPS, WARMUP, LR = 12, 4, 0.05
NAMES = ("dense.weight", "dense.bias", "norm.weight", "norm.bias")
DECAY = {"dense.weight": 0.01, "dense.bias": 0.0, "norm.weight": 0.0, "norm.bias": 0.0}


class Line(nn.Module):
    """Four numbers, one of each kind: matrix, bias, and a norm's two."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(1, 1, dtype=torch.float64)
        self.norm = nn.LayerNorm(1, dtype=torch.float64)
        for i, name in enumerate(NAMES):
            with torch.no_grad():
                self.get_parameter(name).fill_(0.5 - 0.3 * i)


class Tilted(Task):
    """A loss whose gradient by each number is a known function of the step: large enough to be clipped at some steps."""

    name = "tilted"

    def __init__(self):
        self.model = Line()
        self.trace = []

    def step(self, step, share=WHOLE):
        loss = sum((slope(step, i) * self.model.get_parameter(name)).sum() for i, name in enumerate(NAMES))
        assert isinstance(loss, torch.Tensor)
        return StepResult(loss, 1)

    def between(self, step):
        self.trace.append({name: float(self.model.get_parameter(name).detach()) for name in NAMES})


def slope(step, i):
    return math.sin(1.7 * step + i) * (2.0 if step % 3 else 0.2)


def published():
    """google-research/bert's create_optimizer and AdamWeightDecayOptimizer, and clipping by the global norm, written out."""
    weights = {name: 0.5 - 0.3 * i for i, name in enumerate(NAMES)}
    m, v, trace = dict.fromkeys(NAMES, 0.0), dict.fromkeys(NAMES, 0.0), [dict(weights)]
    for step in range(STEPS):
        rate = LR * (step / WARMUP if step < WARMUP else 1 - step / STEPS)
        gradients = {name: slope(step, i) for i, name in enumerate(NAMES)}
        norm = math.sqrt(sum(g * g for g in gradients.values()))
        for name in NAMES:
            g = gradients[name] / max(norm, 1.0)
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g * g
            update = m[name] / (math.sqrt(v[name]) + 1e-6) + DECAY[name] * weights[name]
            weights[name] -= rate * update
        trace.append(dict(weights))
    return trace


def test_every_step_is_the_published_one(tmp_path):
    task, expected = Tilted(), published()
    train(task, tmp_path, LoopOptions(steps=STEPS, lr=LR, warmup=WARMUP, optimizer="bert", checkpoint_every=0))
    found = task.trace
    assert len(found) == len(expected) == STEPS + 1
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        # torch's clipping divides by norm + 1e-6, the published one by the norm.
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-7), step
    assert found[1] == found[0], "the warm-up starts at 0"
