"""How neighbours are mixed in: k, a (fixed, or by a gate), temperature, metric; what ``realm knn tune`` finds and the others read."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from realm.errors import ConfigError, DataError
from realm.index.mips import Metric
from realm.knn.datastore import Neighbours
from realm.knn.gate import Gate, gate_features
from realm.knn.mix import neighbour_weights, share_of_neighbours
from realm.storage.files import write_json


@dataclass(frozen=True)
class Mixing:
    """How much the neighbours say.

    Args:
        k: neighbours of each prediction.
        a: the share of p_kNN, 0 to 1; not used where there is a gate.
        temperature: of the softmax over scores.
        metric: l2, squared distances; or ip, inner products.
        gate: says a for each prediction.

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
            values: dict[str, Any] = json.loads(path.read_text("utf-8"))
            gate = None if values["gate"] is None else Gate.from_dict(values["gate"])
            k, a, temperature = int(values["k"]), float(values["a"]), float(values["temperature"])
            return cls(k, a, temperature, values["metric"], gate)
        except OSError as error:
            raise DataError(error.strerror or "cannot be read", path=path, cure=cure) from error
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("no settings of kNN", path=path, cure=cure) from error
