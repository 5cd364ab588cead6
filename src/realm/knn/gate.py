"""An adaptive a: a small network that says from the distances how far the neighbours can be trusted for one prediction."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from realm.errors import DataError

FEATURES = ("nearest score", "mean drop", "entropy", "best p_kNN", "distinct tokens", "the model's best log-probability")
HIDDEN = 16
STEPS, RATE = 400, 0.02
SMALLEST = 1e-3


def gate_features(scores: Tensor, tokens: Tensor, valid: Tensor, weights: Tensor, temperature: float, best_log_prob: Tensor) -> Tensor:
    """What the gate looks at, one row a prediction; see FEATURES.

    Args:
        scores, tokens, valid: of the neighbours, [b,k].
        weights: of ``mix.neighbour_weights``, [b,k].
        best_log_prob: the model's largest, [b].

    Returns:
        float32 [b,6]; zeros where no neighbour is valid.
    """
    scaled = scores.double().masked_fill(~valid, 0.0) / temperature
    count = valid.sum(-1).clamp_min(1)
    nearest = scaled[:, 0]
    drop = nearest - scaled.sum(-1) / count
    entropy = -torch.special.xlogy(weights, weights).sum(-1)
    best, distinct = _grouped(tokens, weights, valid)
    columns = torch.stack([nearest, drop, entropy, best, distinct / count, best_log_prob.double().exp()], -1)
    return (columns * valid.any(-1, keepdim=True)).float()


def _grouped(tokens: Tensor, weights: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """The largest weight that one token gets, and how many tokens there are, of each row."""
    ordered, place = torch.where(valid, tokens.long(), -1).sort(-1)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    group = new.long().cumsum(-1) - 1
    sums = torch.zeros_like(weights).scatter_add_(1, group, weights.gather(1, place))
    return sums.max(-1).values, (new & (ordered >= 0)).sum(-1)


@dataclass(frozen=True)
class Gate:
    """The trained gate; plain numbers, so that it stands in a JSON file.

    mean, spread: of the features, [6]. inner [HIDDEN][6] and inner_bias, outer [HIDDEN] and outer_bias: its two layers.
    """

    mean: tuple[float, ...]
    spread: tuple[float, ...]
    inner: tuple[tuple[float, ...], ...]
    inner_bias: tuple[float, ...]
    outer: tuple[float, ...]
    outer_bias: float

    def __call__(self, features: Tensor) -> Tensor:
        """a of each prediction, float64 [b], of features [b,6]."""
        x = (features.double() - torch.tensor(self.mean, dtype=torch.float64)) / torch.tensor(self.spread, dtype=torch.float64)
        inner = torch.tanh(x @ torch.tensor(self.inner, dtype=torch.float64).T + torch.tensor(self.inner_bias, dtype=torch.float64))
        return torch.sigmoid(inner @ torch.tensor(self.outer, dtype=torch.float64) + self.outer_bias)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Gate":
        """The gate of its fields. Raises DataError: something else."""
        try:
            lists = {name: tuple(float(x) for x in values[name]) for name in ("mean", "spread", "inner_bias", "outer")}
            inner = tuple(tuple(float(x) for x in row) for row in values["inner"])
            gate = cls(inner=inner, outer_bias=float(values["outer_bias"]), **lists)
            if {len(row) for row in (gate.mean, gate.spread, *inner)} != {len(FEATURES)}:
                raise ValueError("numbers of features differ")
            if not len(inner) == len(gate.inner_bias) == len(gate.outer):
                raise ValueError("numbers of inner units differ")
            return gate
        except (KeyError, TypeError, ValueError) as error:
            raise DataError("the gate of these settings is damaged", cure="Make them again: realm knn tune") from error


def train_gate(features: Tensor, log_p_model: Tensor, p_knn: Tensor, *, seed: int = 0) -> Gate:
    """The gate that makes wanted tokens most probable.

    Args:
        features: [n,6].
        log_p_model: the model's log-probability of each wanted token, [n].
        p_knn: p_kNN of it, [n].

    Returns:
        The same gate for the same arguments and threads.
    """
    mean, spread = features.mean(0), features.std(0, correction=0).clamp_min(SMALLEST)
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
    return Gate(
        mean=tuple(mean.tolist()),
        spread=tuple(spread.tolist()),
        inner=tuple(tuple(row) for row in first.weight.tolist()),
        inner_bias=tuple(first.bias.tolist()),
        outer=tuple(last.weight[0].tolist()),
        outer_bias=last.bias.item(),
    )
