"""Model and neighbours together: scores of wanted tokens, kept so that settings can be tried without the model; and generation."""

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor

from realm.knn.datastore import Neighbours, Progress, find_neighbours
from realm.knn.network import KeyTap, Network
from realm.knn.settings import Mixing, mixed_log_probs, token_probs, wanted_probs
from realm.knn.windows import WindowSet
from realm.search.index.base import RowIndex

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
