"""The mathematics of mixing, as pure functions: p = a * p_kNN + (1 - a) * p_model (Khandelwal et al. 2020).

Shapes: b predictions, k neighbours, v vocabulary. A neighbour's score is its negative squared distance or its inner product, larger is
nearer; p_kNN(token) is the sum of softmax(score / temperature) over the neighbours that hold the token, each counted as often as pairs
were merged into it.
"""

import torch
from torch import Tensor

from realm.errors import ConfigError


def neighbour_weights(scores: Tensor, valid: Tensor, counts: Tensor | None, temperature: float) -> Tensor:
    """The share of each neighbour in p_kNN.

    Args:
        scores: [b,k].
        valid: bool [b,k], False where there is no neighbour.
        counts: [b,k], pairs merged into each neighbour; None: one each.
        temperature: above 0; the larger, the more even.

    Returns:
        float64 [b,k]; rows sum to 1, or to 0 where no neighbour is valid.

    Raises:
        ConfigError: the temperature is not above 0.
    """
    if not temperature > 0:
        raise ConfigError(f"temperature = {temperature} must be above 0")
    logits = scores.double() / temperature
    if counts is not None:
        logits = logits + counts.double().clamp_min(1).log()
    logits = logits.masked_fill(~valid, -torch.inf)
    return torch.softmax(logits, -1).nan_to_num(0.0) if logits.shape[-1] else logits


def token_probs(weights: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
    """p_kNN over the vocabulary: the weights [b,k] added up by token, integer [b,k]. -> float64 [b,v]."""
    return torch.zeros((len(weights), vocab_size), dtype=weights.dtype, device=weights.device).scatter_add_(1, tokens.long(), weights)


def wanted_probs(weights: Tensor, tokens: Tensor, wanted: Tensor) -> Tensor:
    """p_kNN of one token each, integer [b]: the weights [b,k] of the neighbours that hold it. -> float64 [b]."""
    return (weights * (tokens == wanted.unsqueeze(-1))).sum(-1)


def share_of_neighbours(a: float | Tensor, weights: Tensor) -> Tensor:
    """a of each prediction, float64 [b]: 0 where no neighbour is valid. Raises ConfigError: a is outside 0 to 1."""
    given = torch.as_tensor(a, dtype=torch.float64, device=weights.device)
    if not bool(((given >= 0) & (given <= 1)).all()):
        raise ConfigError(f"a = {a if isinstance(a, float | int) else 'a value'} is outside 0 to 1", cure="a is the share of p_kNN.")
    return given * (weights.sum(-1) > 0)


def mixed_log_probs(log_probs: Tensor, p_knn: Tensor, a: Tensor) -> Tensor:
    """log(a * p_kNN + (1 - a) * p_model), in the type of ``log_probs``.

    Args:
        log_probs: the model's, [..., b, v] or [b].
        p_knn: of the same shape.
        a: [b]. Where it is 0 the model's value comes back bit for bit; where it is 1, log p_kNN.

    Returns:
        Of the shape of ``log_probs``.
    """
    share = a.view(-1, *[1] * (log_probs.ndim - 1))
    mixed = torch.logaddexp(log_probs.double() + torch.log1p(-share), p_knn.double().log() + share.log())
    return torch.where(share > 0, mixed.to(log_probs.dtype), log_probs)
