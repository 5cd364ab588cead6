"""kNN in ``model.generate``: a logits processor that asks the datastore at each step, for greedy search, beams and sampling alike."""

import torch
from torch import Tensor
from transformers import LogitsProcessor

from realm.errors import ConfigError
from realm.index.base import RowIndex
from realm.knn.datastore import find_neighbours
from realm.knn.network import KeyTap, Network
from realm.knn.settings import Mixing, mixed_log_probs, token_probs


class KnnLogitsProcessor(LogitsProcessor):  # type: ignore[misc]
    """Mixes p_kNN into what the model says of the next token. Open it as a context manager around ``generate``:

        with KnnLogitsProcessor(network, datastore.index(), mixing) as knn:
            network.model.generate(**inputs, logits_processor=[knn])

    With a = 0 the scores pass through untouched; else log-probabilities come out, which the warpers of sampling take as logits.

    Args:
        padding: the token that ``generate`` fills up rows with that have ended: they are not searched any more. None: all are.

    Raises:
        ConfigError: the index has another metric.
    """

    def __init__(self, network: Network, index: RowIndex, mixing: Mixing, padding: int | None = None):
        if index.metric != mixing.metric:
            raise ConfigError(f"the index searches by {index.metric}, the settings say {mixing.metric}", cure="Open it with that metric.")
        self._tap = KeyTap(network.layer)
        self._index, self._mixing, self._padding = index, mixing, padding

    def __enter__(self) -> "KnnLogitsProcessor":
        self._tap.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._tap.__exit__(*error)

    @torch.no_grad()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores [b,v] of the next token -> the mixture's.

        Raises:
            ConfigError: the state at the layer is not that of these rows: the model was not called step by step.
        """
        if self._mixing.only_model:
            return scores
        states = self._tap.states(len(scores))  # [b,t,h]: the prompt at first, then one token at a time
        if self._padding is None or states.shape[1] > 1 or input_ids.shape[1] == 1:  # a prompt may end in padding and yet go on
            return self._mixed(states[:, -1], scores)
        going_on, mixed = input_ids[:, -1] != self._padding, scores.clone()
        mixed[going_on] = self._mixed(states[going_on, -1], scores[going_on])
        return mixed

    def _mixed(self, keys: Tensor, scores: Tensor) -> Tensor:
        log_probs = torch.log_softmax(scores.float(), -1)
        neighbours = find_neighbours(self._index, keys, self._mixing.k)
        weights, a = self._mixing.weigh(neighbours, log_probs.amax(-1))
        p_knn = token_probs(weights, torch.from_numpy(neighbours.tokens), scores.shape[-1]).to(scores.device)
        a = a.to(scores.device)
        return torch.where(a.unsqueeze(-1) > 0, mixed_log_probs(log_probs, p_knn, a).to(scores.dtype), scores)
