"""The inverse cloze loss and the relevance score against Python loops, in float64."""

import math

import pytest
import torch

from realm.models import losses


def test_ict_is_cross_entropy_over_the_columns():
    rng = torch.Generator().manual_seed(0)
    queries = torch.randn(3, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    blocks = torch.randn(5, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    positive = torch.tensor([4, 0, 2])
    loss, valid = losses.ict(queries, blocks, positive)
    assert valid.all()
    for i, own in enumerate(positive.tolist()):
        scores = [math.exp(float(queries[i].detach() @ blocks[c].detach())) for c in range(5)]
        assert loss[i].item() == pytest.approx(-math.log(scores[own] / sum(scores)), rel=1e-9)
    loss.sum().backward()
    assert torch.isfinite(queries.grad).all() and torch.isfinite(blocks.grad).all()


def test_ict_collisions_are_no_negatives():
    """Block 7 was drawn twice: the second copy is no negative of the first, and a query's own column always counts."""
    rng = torch.Generator().manual_seed(1)
    queries = torch.randn(3, 4, generator=rng, dtype=torch.float64)
    blocks = torch.randn(3, 4, generator=rng, dtype=torch.float64).requires_grad_()
    ids = torch.tensor([7, 7, 9])
    collision = ids.unsqueeze(1) == ids.unsqueeze(0)
    loss, valid = losses.ict(queries, blocks, torch.arange(3), collision)
    assert valid.all()
    for i, kept in enumerate([(0, 2), (1, 2), (0, 1, 2)]):
        scores = {c: math.exp(float(queries[i].detach() @ blocks[c].detach())) for c in kept}
        assert loss[i].item() == pytest.approx(-math.log(scores[i] / sum(scores.values())), rel=1e-9)
    loss[0].backward()
    assert (blocks.grad[1] == 0).all() and (blocks.grad[0] != 0).any()
    everything, _ = losses.ict(queries, blocks, torch.arange(3), torch.ones(3, 3, dtype=torch.bool))
    assert everything.tolist() == [0, 0, 0]


def test_relevance_is_the_inner_product():
    queries, blocks = torch.randn(2, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    scores = losses.relevance_scores(queries, blocks)
    for i in range(2):
        for z in range(3):
            assert scores[i, z].item() == pytest.approx(float(queries[i] @ blocks[i, z]))
