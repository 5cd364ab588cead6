"""What pre-training shows of itself while it runs: what documents add, what is retrieved, where the time goes.

Cheap numbers are taken at every step from what the step has computed anyway. Those that need more work of the networks or of the index
are measured at every ``EVERY``-th step, on a few of its queries.
"""

from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realm import losses, timing
from realm.data.featurize import mask_slots, searched_ids
from realm.data.masked_text import words_left
from realm.data.types import MaskedQuery
from realm.recipes.pretrain.filling import joint_inputs
from realm.recipes.pretrain.objectives import ScoredCandidates
from realm.recipes.pretrain.view import PretrainView
from realm.retrieval import NULL_INDEX, Retrieved, Retriever
from realm.timing import KINDS, charged
from realm.train.loop import Measured, Metrics

EVERY = 20
READ = 8
"""At every 20th step 8 queries are read once more: the forward pass of half a batch in 20 steps, about 1 % of the time."""
RECENT = 1000
"""Queries over which distinct documents are counted."""


class Watcher:
    """Watches pre-training; what it looks at is not changed.

    Attributes:
        encoded: wordpieces that the encoder has read in this rank's shares of all steps.
    """

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._recent: deque[list[int]] = deque(maxlen=RECENT)
        self._steps: set[int] = set()
        self._tokens = 0
        self._oldest = 0
        self.encoded = 0

    def step(self, view: PretrainView, step: int, queries: list[MaskedQuery], retrieved: Retrieved, scored: ScoredCandidates) -> Measured:
        """Numbers of one step, or of a part of it, to be averaged over the window of a log row."""
        with charged("watching"):
            self._steps.add(step)
            self._tokens += scored.tokens
            self.encoded += scored.encoded
            self._oldest = max(self._oldest, step - view.generation.step)
            self._recent.extend(ids[real].tolist() for ids, real in zip(retrieved.block_ids, retrieved.real, strict=True))
            metrics = utility_by_rank(scored, retrieved)
            if step % EVERY == 0:
                metrics |= accuracy(view, queries[:READ], retrieved, scored) | excluded_share(view, queries)
        return metrics

    def row(self, step: int, steps: int) -> Metrics:
        """What a log row says besides those means: speed, time left, shares of the time, distinct documents, the oldest index."""
        seconds, metrics = timing.since(self._before), {**self._distinct(), "staleness_highest": float(self._oldest)}
        total = sum(seconds.values())
        if self._steps and total > 0:
            each = total / len(self._steps)
            metrics |= {"seconds_per_step": each, "seconds_left": each * (steps - step), "tokens_per_second": self._tokens / total}
            metrics |= {f"share_{kind}": seconds.get(kind, 0.0) / total for kind in KINDS}
        self.begin()
        self._steps = set()
        self._tokens = self._oldest = 0
        return metrics

    def begin(self) -> None:
        """Time counts from here: at the first step, what came before was preparation."""
        self._before = timing.seconds()

    def state(self) -> dict[str, Any]:
        """JSON that a checkpoint carries."""
        return {"recent": list(self._recent), "oldest": self._oldest, "encoded": self.encoded}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self._recent, self._oldest = deque(state.get("recent", []), maxlen=RECENT), state.get("oldest", 0)
        self.encoded = state.get("encoded", 0)

    def _distinct(self) -> Metrics:
        """Distinct documents among those that the last 1,000 queries retrieved, once there were so many."""
        if len(self._recent) < RECENT:
            return {}
        return {"distinct_per_1000": float(len({block_id for row in self._recent for block_id in row}))}


@torch.no_grad()
def accuracy(view: PretrainView, queries: list[MaskedQuery], retrieved: Retrieved, scored: ScoredCandidates) -> Metrics:
    """Share of masked wordpieces that the marginal over the candidates puts first, and that the null document alone does.

    Nothing of a reader that points: its held-out sentences say it.
    """
    if view.section.fill == "pointer":
        return {}
    encoder, inputs, device = view.model.encoder, view.inputs, view.context.device
    where, what, slots = (t.to(device) for t in mask_slots([q.positions for q in queries], [q.targets for q in queries]))
    rows = inputs.rows(retrieved.block_ids[: len(queries)])
    example, candidate, sequences = joint_inputs(inputs, queries, rows, retrieved.valid[: len(queries)], where.device)
    if not sequences:
        return {}
    training = encoder.training
    encoder.eval()
    probs = encoder.log_probs(sequences, where[example]).exp()
    encoder.train(training)
    weight = scored.log_p_z.detach()[example, candidate].exp()
    metrics = {"token_accuracy": _right(marginal_probs(probs, weight, example, len(queries)), what, slots)}
    if retrieved.has_null:
        metrics["token_accuracy_null"] = _right(probs[candidate == NULL_INDEX], what, slots)
    return metrics


def excluded_share(view: PretrainView, queries: list[MaskedQuery]) -> Metrics:
    """Share of the documents found without exclusion that exclusion forbids: the sentence's own block and its copies.

    Found as candidates are: in hybrid search by words, too.
    """
    sequences = [view.inputs.featurizer.query(searched_ids(q, pointer=view.section.fill == "pointer")) for q in queries]
    retriever = Retriever(view.generation.queries, view.generation.index, view.hybrid)
    texts = [] if view.hybrid is None else words_left(view.sentences, queries)
    found = retriever.retrieve(sequences, view.section.candidates - 1, null=False, texts=texts)
    forbidden = [np.isin(ids[valid], q.excluded) for ids, valid, q in zip(found.block_ids, found.valid, queries, strict=True)]
    return {"excluded_share": float(np.concatenate(forbidden).mean())} if found.valid.any() else {}


def marginal_probs(probs: Tensor, weight: Tensor, example: Tensor, examples: int) -> Tensor:
    """p(.|x) at each mask slot: the mixture of what the candidates of an example say.

    Args:
        probs: [n, m, v] p(.|z,x) of each (example, candidate) pair.
        weight: [n] p(z|x).
        example: [n] which example a pair belongs to.
        examples: b.

    Returns:
        [b, m, v].
    """
    mixed = probs.new_zeros(examples, *probs.shape[1:])
    return mixed.index_add_(0, example, probs * weight.to(probs.dtype).view(-1, 1, 1))


def utility_by_rank(scored: ScoredCandidates, retrieved: Retrieved) -> Measured:
    """Mean retrieval utility, log p(y|z,x) - log p(y|null,x), of the documents at each rank: ``utility_rank_1`` is of the nearest.

    Nothing where there is no null document to compare with.
    """
    if not retrieved.has_null:
        return {}
    utility = losses.retrieval_utility(scored.target_log_probs.detach(), scored.slots).float()
    having = {rank: np.flatnonzero(retrieved.real[:, rank]) for rank in range(1, utility.shape[1])}
    return {f"utility_rank_{rank}": utility[torch.from_numpy(rows), rank].mean() for rank, rows in having.items() if len(rows)}


def _right(probs: Tensor, what: Tensor, slots: Tensor) -> float:
    """Share of real slots whose most probable wordpiece is the hidden one. probs [b, m, v], what and slots [b, m]."""
    return float((probs.argmax(-1) == what)[slots].float().mean())
