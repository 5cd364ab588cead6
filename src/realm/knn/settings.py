"""Mixing: p = a * p_kNN + (1 - a) * p_model (Khandelwal et al. 2020), for b predictions, k neighbours, v words of the vocabulary.

A score is the negative squared distance; p_kNN(token) sums softmax(score / temperature) over the neighbours that hold it.
a is fixed, or a gate predicts it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from realm.errors import ConfigError, DataError
from realm.knn.datastore import Neighbours
from realm.storage.decoding import json_value
from realm.storage.files import write_json

FEATURES = ("nearest score", "mean drop", "entropy", "best p_kNN", "distinct tokens", "the model's best log-probability")
HIDDEN = 16
STEPS, RATE = 400, 0.02
SMALLEST_SPREAD = 1e-3


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


def share_of_neighbours(a: float | Tensor, weights: Tensor) -> Tensor:
    """a of each prediction, float64 [b]: 0 where no neighbour is valid."""
    return torch.as_tensor(a, dtype=torch.float64, device=weights.device) * (weights.sum(-1) > 0)


def mixed_log_probs(log_probs: Tensor, p_knn: Tensor, a: Tensor) -> Tensor:
    """log(a * p_kNN + (1 - a) * p_model), of the shape and type of ``log_probs`` [..., b, v] or [b]; a: [b].

    Where a is 0 the model's value comes back bit for bit; where it is 1, log p_kNN."""
    share = a.view(-1, *[1] * (log_probs.ndim - 1))
    mixed = torch.logaddexp(log_probs.double() + torch.log1p(-share), p_knn.double().log() + share.log())
    return torch.where(share > 0, mixed.to(log_probs.dtype), log_probs)


def gate_features(scores: Tensor, tokens: Tensor, valid: Tensor, weights: Tensor, temperature: float, best_log_prob: Tensor) -> Tensor:
    """Input of the gate, float32 [b,6], see FEATURES; zeros where no neighbour is valid. ``best_log_prob``: the model's largest, [b]."""
    scaled = scores.double().masked_fill(~valid, 0.0) / temperature
    count = valid.sum(-1).clamp_min(1)
    nearest = scaled[:, 0]
    drop = nearest - scaled.sum(-1) / count
    entropy = -torch.special.xlogy(weights, weights).sum(-1)
    ordered, place = torch.where(valid, tokens.long(), -1).sort(-1)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    by_token = torch.zeros_like(weights).scatter_add_(1, new.long().cumsum(-1) - 1, weights.gather(1, place))
    distinct = (new & (ordered >= 0)).sum(-1)
    columns = torch.stack([nearest, drop, entropy, by_token.max(-1).values, distinct / count, best_log_prob.double().exp()], -1)
    return (columns * valid.any(-1, keepdim=True)).float()


@dataclass(frozen=True)
class Gate:
    """A network that predicts a: mean and spread [6] of the features, inner [HIDDEN][6] and outer [HIDDEN] layers with biases."""

    mean: tuple[float, ...]
    spread: tuple[float, ...]
    inner: tuple[tuple[float, ...], ...]
    inner_bias: tuple[float, ...]
    outer: tuple[float, ...]
    outer_bias: float

    def __call__(self, features: Tensor) -> Tensor:
        """a of each prediction, float64 [b], of features [b,6]."""
        mean, spread, inner, inner_bias, outer = (
            torch.tensor(values, dtype=torch.float64) for values in (self.mean, self.spread, self.inner, self.inner_bias, self.outer)
        )
        return torch.sigmoid(torch.tanh((features.double() - mean) / spread @ inner.T + inner_bias) @ outer + self.outer_bias)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Gate":
        """The gate of its fields. Raises KeyError, TypeError, ValueError: other values."""
        gate = cls(**{name: _floats(values[name]) for name in cls.__dataclass_fields__})
        n = len(FEATURES)
        if [np.shape(numbers) for numbers in vars(gate).values()] != [(n,), (n,), (HIDDEN, n), (HIDDEN,), (HIDDEN,), ()]:
            raise ValueError("numbers of features or inner units differ")
        return gate


def _floats(value: Any) -> Any:
    return tuple(map(_floats, value)) if isinstance(value, list | tuple) else float(value)


def train_gate(features: Tensor, log_p_model: Tensor, p_knn: Tensor, *, seed: int = 0) -> Gate:
    """The gate that makes wanted tokens most probable, from features [n,6], log_p_model and p_knn [n]; deterministic."""
    mean, spread = features.mean(0), features.std(0, correction=0).clamp_min(SMALLEST_SPREAD)
    x = (features - mean) / spread
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        first, last = nn.Linear(len(FEATURES), HIDDEN), nn.Linear(HIDDEN, 1)
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=RATE)
    log_knn = p_knn.clamp_min(1e-30).log().float()
    log_model = log_p_model.float()
    with torch.enable_grad():
        for _ in range(STEPS):
            logit = last(torch.tanh(first(x))).squeeze(-1)
            mixed = torch.logaddexp(nn.functional.logsigmoid(logit) + log_knn, nn.functional.logsigmoid(-logit) + log_model)
            optimizer.zero_grad()
            (-mixed.mean()).backward()
            optimizer.step()
    inner, outer = tuple(tuple(row) for row in first.weight.tolist()), tuple(last.weight[0].tolist())
    return Gate(tuple(mean.tolist()), tuple(spread.tolist()), inner, tuple(first.bias.tolist()), outer, last.bias.item())


@dataclass(frozen=True)
class Mixing:
    """Weight of the neighbours: k of them, a share a of p_kNN (unused with a gate), and a temperature over scores.

    >>> Mixing(k=8, a=0.25).facts()
    {'k': 8, 'a': 0.25, 'temperature': 10.0, 'gate': False}

    Raises ConfigError: a value out of range."""

    k: int = 32
    a: float = 0.25
    temperature: float = 10.0
    gate: Gate | None = None

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
        return self.gate is None and self.a == 0

    def facts(self) -> dict[str, Any]:
        """Settings as reports show them."""
        a, gate = (None, True) if self.gate else (self.a, False)
        return {"k": self.k, "a": a, "temperature": self.temperature, "gate": gate}

    def weigh(self, neighbours: Neighbours, best_log_prob: Tensor) -> tuple[Tensor, Tensor]:
        """Weight of each neighbour [b,k] and a of each prediction [b]; the model's largest log-probability is [b]."""
        scores, tokens, valid = neighbours.tensors()
        weights = neighbour_weights(scores, valid, self.temperature)
        a: float | Tensor = self.a
        if self.gate is not None:
            a = self.gate(gate_features(scores, tokens, valid, weights, self.temperature, best_log_prob.cpu()))
        return weights, share_of_neighbours(a, weights)

    def save(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> "Mixing":
        """Read what ``save`` wrote. Raises DataError: missing or something else; ConfigError: a value out of range."""
        cure = "Make it with: realm knn tune"
        try:
            values: dict[str, Any] = json_value(path.read_text("utf-8"))
            gate = None if values["gate"] is None else Gate.from_dict(values["gate"])
            return cls(int(values["k"]), float(values["a"]), float(values["temperature"]), gate)
        except OSError as error:
            raise DataError(error.strerror or "cannot be read", path=path, cure=cure) from error
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("no settings of kNN", path=path, cure=cure) from error
