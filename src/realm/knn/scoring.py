"""Model and neighbours together: scores of wanted tokens, kept so that settings can be tried without the model; and generation.

Mixing: p = a * p_kNN + (1 - a) * p_model (Khandelwal et al. 2020), for b predictions, k neighbours, v words of the vocabulary. A score is
the negative squared distance; p_kNN(token) sums softmax(score / temperature) over the neighbours that hold it."""

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor

from realm.errors import ConfigError, DataError
from realm.knn.datastore import Neighbours, Progress, find_neighbours
from realm.knn.network import KeyTap, Network
from realm.knn.windows import WindowSet
from realm.search.index.base import RowIndex
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


ROWS_AT_ONCE = 1 << 15


@dataclass(frozen=True)
class ScoredTokens:
    """n wanted tokens, int32 [n], the model's log-probability of each, float32 [n], and the neighbours [n,k]."""

    wanted: np.ndarray
    log_probs: np.ndarray
    neighbours: Neighbours
    model_seconds: float = 0.0
    search_seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.wanted)

    def of(self, rows: np.ndarray | slice, k: int | None = None) -> "ScoredTokens":
        """Some of them, with the nearest k neighbours."""
        near = Neighbours(*(values[rows, :k] for values in vars(self.neighbours).values()))
        return replace(self, wanted=self.wanted[rows], log_probs=self.log_probs[rows], neighbours=near)

    def without(self, token: int | None) -> "ScoredTokens":
        """Those that want another token."""
        return self.of(self.wanted != token)

    def knn_probs(self, mixing: Mixing) -> tuple[Tensor, Tensor]:
        """p_kNN of each wanted token and its a, float64 [n] each."""
        probs, shares = [], []
        for start in range(0, len(self), ROWS_AT_ONCE):
            part = self.of(slice(start, start + ROWS_AT_ONCE), mixing.k)
            weights, a = mixing.weigh(part.neighbours)
            probs.append(wanted_probs(weights, torch.from_numpy(part.neighbours.tokens), torch.from_numpy(part.wanted)))
            shares.append(a)
        empty = torch.zeros(0, dtype=torch.float64)
        return torch.cat([empty, *probs]), torch.cat([empty, *shares])

    def mixed(self, mixing: Mixing) -> Tensor:
        """The mixture's log-probability of each wanted token, float32 [n]; the model's own bit for bit where a is 0."""
        log_probs = torch.from_numpy(self.log_probs)
        if mixing.only_model:
            return log_probs
        return mixed_log_probs(log_probs, *self.knn_probs(mixing))


@torch.inference_mode()
def score_windows(network: Network, windows: WindowSet, index: RowIndex, k: int, progress: Progress | None = None) -> ScoredTokens:
    """Score every wanted token of ``windows``, with its k neighbours in the index of a datastore."""
    n = windows.count
    log_probs, found = np.zeros(n, np.float32), Neighbours.empty(n, k)
    seconds = [0.0, 0.0]
    for first, stop in windows.parts():
        base = windows.rows(first, stop).start
        for at, batch in windows.batches(first, stop):
            rows, started = at + base, time.perf_counter()
            states = network.read(batch, log_probs=True)
            assert states.log_probs is not None
            wanted = torch.from_numpy(np.asarray(windows.targets[rows], np.int64)).to(states.log_probs.device)
            log_probs[rows] = states.log_probs.gather(1, wanted[:, None])[:, 0].cpu().numpy()
            searched = time.perf_counter()
            for name, values in vars(find_neighbours(index, states.keys, k)).items():
                getattr(found, name)[rows] = values
            seconds = [seconds[0] + searched - started, seconds[1] + time.perf_counter() - searched]
        if progress is not None:
            progress(windows.rows(first, stop).stop, n)
    return ScoredTokens(np.array(windows.targets), log_probs, found, *seconds)


class KnnLogitsProcessor(KeyTap, LogitsProcessor):  # type: ignore[misc]
    """Mixer of p_kNN into the model's scores of the next token, as a context manager around ``generate``:

        with KnnLogitsProcessor(network, datastore.index(), mixing) as knn:
            network.model.generate(**inputs, logits_processor=[knn])

    With a = 0 scores pass untouched, else log-probabilities come out. ``padding``: token of rows that have ended, not searched any more."""

    def __init__(self, network: Network, index: RowIndex, mixing: Mixing, padding: int | None = None):
        super().__init__(network.layer)
        self._index, self._mixing, self._padding = index, mixing, padding

    @torch.no_grad()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores [b,v] of the next token -> the mixture's. Raises ConfigError: see ``KeyTap.states``."""
        if self._mixing.only_model:
            return scores
        states = self.states(len(scores))  # [b,t,h]: the prompt at first, then one token at a time
        if self._padding is None or states.shape[1] > 1 or input_ids.shape[1] == 1:  # a prompt may end in padding and yet go on
            return self._mixed(states[:, -1], scores)
        going_on, mixed = input_ids[:, -1] != self._padding, scores.clone()
        mixed[going_on] = self._mixed(states[going_on, -1], scores[going_on])
        return mixed

    def _mixed(self, keys: Tensor, scores: Tensor) -> Tensor:
        log_probs = torch.log_softmax(scores.float(), -1)
        neighbours = find_neighbours(self._index, keys, self._mixing.k)
        weights, a = self._mixing.weigh(neighbours)
        p_knn = token_probs(weights, torch.from_numpy(neighbours.tokens), scores.shape[-1]).to(scores.device)
        a = a.to(scores.device)
        return torch.where(a.unsqueeze(-1) > 0, mixed_log_probs(log_probs, p_knn, a).to(scores.dtype), scores)
