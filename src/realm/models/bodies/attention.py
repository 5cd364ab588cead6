"""Attention of BERT bodies: torch's ``scaled_dot_product_attention``, and plain matrix products where that is slow.

In bfloat16 on a CPU torch's fused attention is slower in forward and backward than in float32: products of whole heads take a quarter to
three fifths of its time (benchmarks/results/2026-11-22-step-bf16-2-cores.md), for probabilities [b, heads, t, t] kept until the backward.
In float32, and on a GPU, the fused way wins.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

NAME = "realm"
"""What transformers knows this attention by."""


def attend(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, dropout: float = 0.0) -> Tensor:
    """softmax(query key^T / sqrt(d)) value, each head for itself.

    Args:
        query: [b, heads, q, d].
        key, value: [b, heads, t, d].
        keep: bool, broadcastable to [b, heads, q, t]: what may be looked at; None: everything.
        dropout: share of the probabilities that are dropped.

    Returns:
        [b, heads, q, d].
    """
    if query.dtype == torch.bfloat16 and query.device.type == "cpu":
        return by_products(query, key, value, keep, dropout)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=keep, dropout_p=dropout)


def by_products(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, dropout: float = 0.0) -> Tensor:
    """``attend``, with every probability in memory."""
    scores = torch.matmul(query * (1.0 / math.sqrt(query.shape[-1])), key.transpose(-1, -2))
    if keep is not None:
        # Added in place: nothing of the scores' size is copied, and the gradient needs no second look at the mask.
        scores += torch.zeros(keep.shape, dtype=scores.dtype, device=keep.device).masked_fill_(~keep, torch.finfo(scores.dtype).min)
    return torch.matmul(F.dropout(scores.softmax(-1), dropout), value)


def attend_by_name(model: Any) -> None:
    """Let the layers of a transformers model call :func:`attend`; one that was made with another attention than torch's stays as it is."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if model.config._attn_implementation != "sdpa":
        return
    AttentionInterface.register(NAME, _called_by_transformers)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def _called_by_transformers(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0, **options: Any
) -> tuple[Tensor, None]:
    """``attend`` as transformers' BERT calls it. -> [b, q, heads, d]."""
    return attend(query, key, value, attention_mask, dropout).transpose(1, 2).contiguous(), None
