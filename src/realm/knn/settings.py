"""How neighbours are mixed in: k, a (fixed, or by a gate), temperature, metric; what ``realm knn tune`` finds and the others read.

The mathematics: p = a * p_kNN + (1 - a) * p_model (Khandelwal et al. 2020), for b predictions, k neighbours, v words of the vocabulary. A
score is the negative squared distance or the inner product; p_kNN(token) is the sum of softmax(score / temperature) over the neighbours
that hold the token, each counted as often as pairs were merged into it.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from realm.decoding import json_value
from realm.errors import ConfigError, DataError
from realm.index.mips import Metric
from realm.knn.datastore import Neighbours
from realm.knn.gate import Gate, gate_features
from realm.storage.files import write_json


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


@dataclass(frozen=True)
class Mixing:
    """How much the neighbours say.

    Args:
        k: neighbours of each prediction.
        a: the share of p_kNN, 0 to 1; not used where there is a gate.
        temperature: of the softmax over scores.
        metric: l2, squared distances; or ip, inner products.
        gate: predicts a for each token.

    Raises:
        ConfigError: a value out of range.
    """

    k: int = 32
    a: float = 0.25
    temperature: float = 10.0
    metric: Metric = "l2"
    gate: Gate | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.a <= 1:
            raise ConfigError(f"a = {self.a} is outside 0 to 1", cure="a is the share of p_kNN.")
        if self.k < 1:
            raise ConfigError(f"k = {self.k} must be at least 1")
        if not self.temperature > 0 or self.temperature == float("inf"):
            raise ConfigError(f"temperature = {self.temperature} must be above 0")
        if self.metric not in ("l2", "ip"):
            raise ConfigError(f"no metric '{self.metric}'", cure="It is l2 or ip.")

    @property
    def only_model(self) -> bool:
        """Whether neighbours say nothing at all."""
        return self.gate is None and self.a == 0

    def weigh(self, neighbours: Neighbours, best_log_prob: Tensor) -> tuple[Tensor, Tensor]:
        """The weight of each neighbour [b,k] and a of each prediction [b]; the model's largest log-probability is [b]."""
        scores, tokens, valid, counts = neighbours.tensors()
        weights = neighbour_weights(scores, valid, counts, self.temperature)
        a: float | Tensor = self.a
        if self.gate is not None:
            a = self.gate(gate_features(scores, tokens, valid, weights, self.temperature, best_log_prob.cpu()))
        return weights, share_of_neighbours(a, weights)

    def save(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> "Mixing":
        """Read what ``save`` wrote.

        Raises:
            DataError: missing or something else.
            ConfigError: a value out of range.
        """
        cure = "Make it with: realm knn tune"
        try:
            values: dict[str, Any] = json_value(path.read_text("utf-8"))
            gate = None if values["gate"] is None else Gate.from_dict(values["gate"])
            k, a, temperature = int(values["k"]), float(values["a"]), float(values["temperature"])
            return cls(k, a, temperature, values["metric"], gate)
        except OSError as error:
            raise DataError(error.strerror or "cannot be read", path=path, cure=cure) from error
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("no settings of kNN", path=path, cure=cure) from error
