"""The best k, a and temperature on held-out text: a grid over what was scored once, so that the model and the search run one time only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from realm.errors import ConfigError, DataError
from realm.knn.gate import gate_features, train_gate
from realm.knn.scoring import ScoredTokens
from realm.knn.settings import Mixing, neighbour_weights, wanted_probs

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
NEIGHBOURS = (4, 8, 16, 32, 64)
TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""In units of the mean distance between the nearest neighbour and the last: what is even for one model is sharp for another."""


@dataclass(frozen=True)
class Tuned:
    """What a grid gave.

    Attributes:
        rows: {"k", "a", "temperature", "loss"} of every point of the grid; the loss is the mean negative log-probability.
    """

    best: Mixing
    rows: list[dict[str, float]]
    model_loss: float

    @property
    def loss(self) -> float:
        return min(row["loss"] for row in self.rows)


def tune(
    scored: ScoredTokens, metric: Any, *, neighbours: Sequence[int] = (), shares: Sequence[float] = (), temperatures: Sequence[float] = ()
) -> Tuned:
    """Search the grid for the lowest mean negative log-probability of the wanted tokens.

    Args:
        neighbours, shares, temperatures: the grid; empty: NEIGHBOURS that there are, SHARES, and TEMPERATURES times the mean distance
            from the nearest neighbour to the last.

    Raises:
        ConfigError: a value out of range.
        DataError: nothing was scored.
    """
    if not len(scored) or not scored.neighbours.valid.any():
        raise DataError("nothing to tune on: no prediction has a neighbour", cure="Give more text, or a larger datastore.")
    most = scored.neighbours.scores.shape[1]
    sizes = list(neighbours) or sorted({min(k, most) for k in NEIGHBOURS})
    if max(sizes) > most:
        raise ConfigError(f"k = {max(sizes)}, and {most} neighbours were looked up")
    scale = distance_scale(scored)
    rows: list[dict[str, float]] = []
    log_model = torch.from_numpy(scored.log_probs).double()
    for k in sizes:
        for temperature in list(temperatures) or [scale * factor for factor in TEMPERATURES]:
            p_knn, _ = scored.knn_probs(Mixing(k, 1.0, temperature, metric))
            for a in list(shares) or SHARES:
                Mixing(k, a, temperature, metric)  # refuses what is out of range
                mixed = torch.logaddexp(log_model + torch.log1p(torch.tensor(-a).double()), p_knn.log() + torch.tensor(a).double().log())
                loss = -float(mixed.mean())
                rows.append({"k": k, "a": a, "temperature": temperature, "loss": min(loss, 1e9)})
    best = min(rows, key=lambda row: row["loss"])
    return Tuned(Mixing(int(best["k"]), best["a"], best["temperature"], metric), rows, -float(log_model.mean()))


def with_gate(scored: ScoredTokens, mixing: Mixing, seed: int = 0) -> Mixing:
    """The same k and temperature with a gate trained on ``scored``."""
    part = scored.of(slice(None), mixing.k)
    scores, tokens, valid, counts = part.neighbours.tensors()
    some = valid.any(-1)
    weights = neighbour_weights(scores, valid, counts, mixing.temperature)
    features = gate_features(scores, tokens, valid, weights, mixing.temperature, torch.from_numpy(part.best))
    p_knn = wanted_probs(weights, tokens, torch.from_numpy(part.wanted))
    return replace(mixing, gate=train_gate(features[some], torch.from_numpy(part.log_probs)[some], p_knn[some], seed=seed))


def distance_scale(scored: ScoredTokens) -> float:
    """The mean score difference between the nearest neighbour and the last one found; 1 where all are equally near."""
    near = scored.neighbours
    count = near.valid.sum(1)
    some = count > 0
    last = near.scores[some, count[some] - 1]
    mean = float((near.scores[some, 0].astype(float) - last).mean())
    return mean if mean > 0 else 1.0
