"""Mixing: p = a * p_kNN + (1 - a) * p_model (Khandelwal et al. 2020), for b predictions, k neighbours, v words of the vocabulary.

A score is the negative squared distance; p_kNN(token) sums softmax(score / temperature) over the neighbours that hold it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from realm.errors import ConfigError, DataError
from realm.knn.datastore import Neighbours
from realm.storage.files import write_json
from realm.storage.manifests import Errors, read_object


def neighbour_weights(scores: Tensor, valid: Tensor, temperature: float) -> Tensor:
    """Share of each neighbour in p_kNN: float64 [b,k]; rows sum to 1, or to 0 where no neighbour is valid.

    scores, valid: [b,k]; the larger the temperature, the more even."""
    logits = (scores.double() / temperature).masked_fill(~valid, -torch.inf)
    return torch.softmax(logits, -1).nan_to_num(0.0) if logits.shape[-1] else logits


def token_probs(weights: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
    """p_kNN over the vocabulary: the weights [b,k] added up by token, integer [b,k]. -> float64 [b,v]."""
    return torch.zeros((len(weights), vocab_size), dtype=weights.dtype, device=weights.device).scatter_add_(1, tokens.long(), weights)


def wanted_probs(weights: Tensor, tokens: Tensor, wanted: Tensor) -> Tensor:
    """p_kNN of one token each, integer [b]: the weights [b,k] of the neighbours that hold it. -> float64 [b]."""
    return (weights * (tokens == wanted.unsqueeze(-1))).sum(-1)


def mixed_log_probs(log_probs: Tensor, p_knn: Tensor, a: Tensor) -> Tensor:
    """log(a * p_kNN + (1 - a) * p_model), of the shape and type of ``log_probs`` [..., b, v] or [b]; a: [b].

    Where a is 0 the model's value comes back bit for bit; where it is 1, log p_kNN."""
    share = a.view(-1, *[1] * (log_probs.ndim - 1))
    mixed = torch.logaddexp(log_probs.double() + torch.log1p(-share), p_knn.double().log() + share.log())
    return torch.where(share > 0, mixed.to(log_probs.dtype), log_probs)


@dataclass(frozen=True)
class Mixing:
    """Weight of the neighbours: k of them, a share a of p_kNN, and a temperature over scores.

    >>> Mixing(k=8, a=0.25).facts()
    {'k': 8, 'a': 0.25, 'temperature': 10.0}

    Raises ConfigError: a value out of range."""

    k: int = 32
    a: float = 0.25
    temperature: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.a <= 1:
            raise ConfigError(f"a = {self.a} is outside 0 to 1", cure="a is the share of p_kNN.")
        if self.k < 1:
            raise ConfigError(f"k = {self.k} must be at least 1")
        if not self.temperature > 0 or self.temperature == float("inf"):
            raise ConfigError(f"temperature = {self.temperature} must be above 0")

    @property
    def only_model(self) -> bool:
        """Tell whether neighbours have no weight at all."""
        return self.a == 0

    def facts(self) -> dict[str, Any]:
        """Settings as reports show them."""
        return asdict(self)

    def weigh(self, neighbours: Neighbours) -> tuple[Tensor, Tensor]:
        """Weight of each neighbour [b,k], and a of each prediction, float64 [b]: 0 where no neighbour is valid."""
        scores, _, valid = neighbours.tensors()
        weights = neighbour_weights(scores, valid, self.temperature)
        return weights, self.a * (weights.sum(-1) > 0).double()

    def save(self, path: Path) -> None:
        write_json(path, self.facts())

    @classmethod
    def load(cls, path: Path) -> "Mixing":
        """Read what ``save`` wrote. Raises DataError: missing or something else; ConfigError: a value out of range."""
        cure = "Make it with: realm knn tune"
        values = read_object(path, Errors.of(DataError, cure))
        try:
            return cls(int(values["k"]), float(values["a"]), float(values["temperature"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("no settings of kNN", path=path, cure=cure) from error
