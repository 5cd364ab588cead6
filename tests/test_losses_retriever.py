"""The retriever's signals beyond the paper against their definitions: explicit sums in Python loops, in float64."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from realm import losses
from realm.config import PretrainConfig, build_recipe
from realm.recipes.pretrain.objectives import ScoredCandidates, pretraining_loss

NINF = float("-inf")
SHAPES = st.tuples(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 6), st.integers(1, 4))


class Example:
    """A random batch: scores, valid candidates, target log-probabilities and slots, some of them ragged."""

    def __init__(self, seed: int, b: int = 3, k: int = 4, m: int = 3):
        rng = torch.Generator().manual_seed(seed)
        self.scores = (torch.randn(b, k, generator=rng, dtype=torch.float64) * 2).requires_grad_()
        self.targets = (-torch.rand(b, k, m, generator=rng, dtype=torch.float64) * 5 - 1e-3).requires_grad_()
        self.valid = torch.rand(b, k, generator=rng) < 0.7
        self.slots = torch.arange(m) < torch.randint(0, m + 1, (b, 1), generator=rng)
        self.b, self.k = b, k

    @property
    def log_p_z(self) -> Tensor:
        return losses.candidate_log_probs(self.scores, self.valid)

    def alive(self, i: int) -> bool:
        return bool(self.valid[i].any()) and bool(self.slots[i].any())

    def live(self, i: int) -> list[int]:
        return [z for z in range(self.k) if self.valid[i, z]]

    def p_z(self, i: int) -> dict[int, float]:
        exps = {z: math.exp(self.scores[i, z].item()) for z in self.live(i)}
        return {z: e / sum(exps.values()) for z, e in exps.items()}

    def p_span(self, i: int, z: int) -> float:
        return math.prod(math.exp(self.targets[i, z, j].item()) for j in range(self.targets.shape[2]) if self.slots[i, j])


def softmax(values: dict[int, float]) -> dict[int, float]:
    exps = {z: math.exp(v) for z, v in values.items()}
    return {z: e / sum(exps.values()) for z, e in exps.items()}


@given(SHAPES)
def test_emdr2_is_the_joint_likelihood_and_moves_to_the_posterior(shape: tuple[int, int, int, int]) -> None:
    e = Example(*shape)
    loss, valid = losses.emdr2_retriever(e.targets, e.log_p_z, e.slots)
    assert valid.tolist() == [e.alive(i) for i in range(e.b)]
    loss.sum().backward()
    assert e.targets.grad is None and e.scores.grad is not None
    for i in range(e.b):
        if not e.alive(i):
            assert loss[i] == 0 and (e.scores.grad[i] == 0).all()
            continue
        p_z = e.p_z(i)
        joint = {z: p * e.p_span(i, z) for z, p in p_z.items()}
        total = sum(joint.values())
        assert loss[i].item() == pytest.approx(-math.log(total), rel=1e-9)
        for z in range(e.k):
            expected = p_z[z] - joint[z] / total if z in p_z else 0.0
            assert e.scores.grad[i, z].item() == pytest.approx(expected, abs=1e-9)


@given(SHAPES, st.floats(0.2, 5.0))
def test_distillation_is_the_divergence_from_the_likelihoods(shape: tuple[int, int, int, int], temperature: float) -> None:
    e = Example(*shape)
    loss, valid = losses.distilled_retriever(e.targets, e.log_p_z, e.slots, temperature)
    assert valid.tolist() == [e.alive(i) for i in range(e.b)]
    loss.sum().backward()
    assert e.targets.grad is None and e.scores.grad is not None
    for i in range(e.b):
        if not e.alive(i):
            assert loss[i] == 0 and (e.scores.grad[i] == 0).all()
            continue
        p_z = e.p_z(i)
        target = softmax({z: math.log(e.p_span(i, z)) / temperature for z in e.live(i)})
        assert loss[i].item() == pytest.approx(sum(t * math.log(t / p_z[z]) for z, t in target.items()), abs=1e-9)
        assert loss[i].item() >= -1e-12
        for z in range(e.k):
            expected = p_z[z] - target[z] if z in p_z else 0.0
            assert e.scores.grad[i, z].item() == pytest.approx(expected, abs=1e-9)


def test_gradients_pass_the_numerical_check() -> None:
    rng = torch.Generator().manual_seed(3)
    scores = torch.randn(2, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    targets = -torch.rand(2, 3, 2, generator=rng, dtype=torch.float64) * 4
    valid, slots = torch.tensor([[True, True, True], [True, False, True]]), torch.tensor([[True, True], [True, False]])
    for form in (losses.emdr2_retriever, lambda *a: losses.distilled_retriever(*a, 0.7)):
        assert torch.autograd.gradcheck(lambda s, form=form: form(targets, losses.candidate_log_probs(s, valid), slots)[0], (scores,))


def test_extreme_likelihoods_stay_finite() -> None:
    """A document that is 10,000 nats worse, a temperature near nothing, one candidate alone."""
    scores = torch.tensor([[0.0, 300.0], [5.0, 5.0]], dtype=torch.float32, requires_grad=True)
    targets = torch.tensor([[[-0.1], [-1e4]], [[-1e4], [-0.1]]])
    valid, slots = torch.tensor([[True, True], [True, False]]), torch.ones(2, 1, dtype=torch.bool)
    log_p_z = losses.candidate_log_probs(scores, valid)
    total = losses.emdr2_retriever(targets, log_p_z, slots)[0].sum() + losses.distilled_retriever(targets, log_p_z, slots, 1e-3)[0].sum()
    total.backward()
    assert torch.isfinite(total) and scores.grad is not None and torch.isfinite(scores.grad).all()


def section(**choices: object) -> PretrainConfig:
    return build_recipe({"pretrain": choices}).pretrain


def scored(e: Example) -> ScoredCandidates:
    return ScoredCandidates(e.log_p_z, e.targets, e.slots, 0)


@given(SHAPES)
def test_emdr2_with_joint_reading_has_the_papers_gradient(shape: tuple[int, int, int, int]) -> None:
    """Split in two with either side held fixed, the joint likelihood's gradient is the same: EMDR2 differs where reading is per token."""
    e, same = Example(*shape), Example(*shape)
    pretraining_loss(scored(e), section(objective="emdr2", marginal="joint"))[0].sum().backward()
    pretraining_loss(scored(same), section(marginal="joint"))[0].sum().backward()
    torch.testing.assert_close(e.scores.grad, same.scores.grad)
    torch.testing.assert_close(e.targets.grad, same.targets.grad)


@given(SHAPES)
def test_each_side_has_its_own_term(shape: tuple[int, int, int, int]) -> None:
    """The retriever's gradient is that of its term alone, the encoder's that of the likelihood under fixed weights."""
    for objective, term in (
        ("emdr2", lambda e: losses.emdr2_retriever(e.targets, e.log_p_z, e.slots)),
        ("distill", lambda e: losses.distilled_retriever(e.targets, e.log_p_z, e.slots, 2.0)),
    ):
        both, retriever, reader = Example(*shape), Example(*shape), Example(*shape)
        loss, valid = pretraining_loss(scored(both), section(objective=objective, temperature=2.0))
        loss.sum().backward()
        retrieving, _ = term(retriever)
        reading, valid_reading = losses.marginal_nll_per_token(reader.targets, reader.log_p_z, reader.slots)
        assert (valid == valid_reading).all()
        torch.testing.assert_close(loss, retrieving + reading)
        retrieving.sum().backward()
        reading.sum().backward()
        torch.testing.assert_close(both.scores.grad, retriever.scores.grad)
        torch.testing.assert_close(both.targets.grad, reader.targets.grad)


def test_the_default_is_the_papers_likelihood() -> None:
    e = Example(1)
    for marginal, nll in (("token", losses.marginal_nll_per_token), ("joint", losses.marginal_nll_joint)):
        torch.testing.assert_close(pretraining_loss(scored(e), section(marginal=marginal)), nll(e.targets, e.log_p_z, e.slots))
    assert section() == PretrainConfig() and PretrainConfig().objective == "marginal"
