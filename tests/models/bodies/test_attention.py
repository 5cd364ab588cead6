"""Attention by products is attention: against the explicit sum, against torch's, and in the whole network in bfloat16."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from realm.models.bodies import attention
from realm.models.bodies.body import build_body
from realm.models.featurize import pad_batch
from realm.models.spec import BodySpec
from realm.models.types import Sequence

Ragged = Callable[..., list[Sequence]]


def enumerated(query: Tensor, key: Tensor, value: Tensor, keep: Tensor) -> Tensor:
    """One row, head and query at a time."""
    found = torch.zeros_like(query)
    for b, h, q in torch.cartesian_prod(*(torch.arange(n) for n in query.shape[:3])).tolist():
        seen = keep[b, 0, 0].nonzero().flatten()
        scores = torch.stack([(query[b, h, q] * key[b, h, t]).sum() / math.sqrt(query.shape[-1]) for t in seen])
        weights = scores.exp() / scores.exp().sum()
        found[b, h, q] = sum(w * value[b, h, t] for w, t in zip(weights, seen, strict=True))
    return found


def heads(dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    query = torch.randn(3, 2, 4, 8, dtype=dtype)
    key, value = torch.randn(2, 3, 2, 6, 8, dtype=dtype)
    return query, key, value, (torch.arange(6) < torch.tensor([[6], [3], [1]]))[:, None, None]


def test_products_are_the_explicit_sum_with_its_gradients() -> None:
    *inputs, keep = heads(torch.float64)
    leaves = [tensor.requires_grad_() for tensor in inputs]
    weights = torch.randn(3, 2, 4, 8, dtype=torch.float64)
    slow, fast = enumerated(*leaves, keep), attention.by_products(*leaves, keep)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-13)
    for ours, theirs in zip(*(torch.autograd.grad((found * weights).sum(), leaves) for found in (fast, slow)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("masked", [True, False])
def test_bfloat16_on_a_cpu_is_as_near_to_float32_as_the_fused_way(masked: bool) -> None:
    *inputs, keep = heads(torch.float32)
    mask = keep if masked else None
    exact = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    halves = [tensor.bfloat16() for tensor in inputs]
    ours, fused = attention.attend(*halves, mask), F.scaled_dot_product_attention(*halves, attn_mask=mask)
    assert ours.dtype == torch.bfloat16
    error, allowed = ((found.float() - exact).abs().max() for found in (ours, fused))
    assert error <= 2 * allowed + 1e-3


def test_which_way_is_taken(monkeypatch: pytest.MonkeyPatch, bert: BodySpec, ragged: Ragged) -> None:
    taken: list[torch.dtype] = []
    products = attention.by_products

    def watched(query: Tensor, *rest: Any) -> Tensor:
        taken.append(query.dtype)
        return products(query, *rest)

    monkeypatch.setattr(attention, "by_products", watched)
    body, inputs = build_body(bert, pooler=False).eval(), pad_batch(ragged(3, 12), 0)
    body(inputs)
    assert not taken, "in float32 torch's own way is the faster one"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        body(inputs), body.states_at(inputs, torch.zeros(3, 1, dtype=torch.long))
    layers = int(bert.config["num_hidden_layers"])
    assert taken == [torch.bfloat16] * (2 * layers), "in all layers, the short last one too"


def test_probabilities_are_dropped_by_the_seed() -> None:
    *inputs, keep = heads(torch.bfloat16)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(attention.attend(*inputs, keep, 0.3))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    many = torch.stack([attention.by_products(*(t.float() for t in inputs), keep, 0.3) for _ in range(4000)]).mean(0)
    torch.testing.assert_close(many, attention.by_products(*(t.float() for t in inputs), keep), atol=0.08, rtol=0.0)


def test_the_name_is_not_saved(bert: BodySpec) -> None:
    model = build_body(bert, pooler=False).model
    assert model.config._attn_implementation == attention.NAME and attention.NAME not in str(model.config.to_dict())
