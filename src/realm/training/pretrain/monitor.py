"""Numbers of pre-training while it runs: utility of documents, retrieval, age of the index, time.

Cheap ones come from every step. Those that need more work of the index are measured at every 20th step on a few queries."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence as SequenceOf
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from realm.answering.cloze import words_left
from realm.models import losses
from realm.models.embedder import Embedder
from realm.models.types import MaskedQuery
from realm.search.publishing.generation import Generation
from realm.search.retriever import NULL_INDEX, Retrieved, Retriever
from realm.training.loop.distributed import rank, total, world
from realm.training.loop.task import Measured, Metrics
from realm.training.pretrain.retrieve import PretrainView, asked_inputs, holding
from realm.training.pretrain.score import ScoredCandidates, ScoredStep

MEASURE_EVERY = 20
RECENT_QUERIES = 1000
"""Queries over which distinct documents are counted."""
RECALL_DEPTH = 5
"""Blocks in which the retriever alone is to find a hidden span."""
ASKED, AT_ONCE, DEPTH = 1000, 64, 100
"""Sentences asked for their own blocks (fewer than twice as many), those embedded together, and the blocks looked through."""


class Watcher:
    """Numbers of pre-training, which they do not change; ``encoded``: wordpieces that the encoder has read in this rank's shares."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._recent: deque[list[int]] = deque(maxlen=RECENT_QUERIES)
        self._steps: set[int] = set()
        self._tokens = 0
        self._oldest = 0
        self.encoded = 0

    def step(self, view: PretrainView, step: int, read: ScoredStep) -> Measured:
        """Numbers of one step, or of a part of it, to be averaged over the window of a log row."""
        retrieved, scored = read.retrieved, read.scored
        metrics = pretraining_metrics(scored, retrieved)
        # Where documents stay as they are, what is searched with is never old.
        metrics["staleness_steps"] = 0.0 if view.section.queries_alone else float(step - view.generation.step)
        self._steps.add(step)
        self._tokens += scored.tokens
        self.encoded += scored.encoded
        self._oldest = max(self._oldest, step - view.generation.step)
        self._recent.extend(ids[real].tolist() for ids, real in zip(retrieved.block_ids, retrieved.real, strict=True))
        metrics |= utility_by_rank(scored, retrieved)
        if step % MEASURE_EVERY == 0:
            metrics |= excluded_share(view, read.queries)
        return metrics

    def row(self, step: int, steps: int) -> Metrics:
        """Further numbers of a log row: speed, time left, distinct documents, the oldest index."""
        spent, metrics = time.perf_counter() - self._began, {"staleness_highest": float(self._oldest)}
        if len(self._recent) >= RECENT_QUERIES:
            metrics["distinct_per_1000"] = float(len({block_id for row in self._recent for block_id in row}))
        if self._steps and spent > 0:
            each = spent / len(self._steps)
            metrics |= {"seconds_per_step": each, "seconds_left": each * (steps - step), "tokens_per_second": self._tokens / spent}
        self.begin()
        self._steps = set()
        self._tokens = self._oldest = 0
        return metrics

    def begin(self) -> None:
        """Time counts from here: at the first step, what came before was preparation."""
        self._began = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """JSON that a checkpoint carries."""
        return {"recent": list(self._recent), "oldest": self._oldest, "encoded": self.encoded}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self._recent, self._oldest = deque(state.get("recent", []), maxlen=RECENT_QUERIES), state.get("oldest", 0)
        self.encoded = state.get("encoded", 0)


def pretraining_metrics(scored: ScoredCandidates, retrieved: Retrieved) -> Measured:
    """Entropy and distinct documents of a step; utility and p(null) if there is a null document."""
    log_p_z, probs, slots = scored.log_p_z.detach(), scored.target_log_probs.detach(), scored.slots
    p_z = log_p_z.exp()
    entropy = -(p_z * log_p_z.masked_fill(p_z == 0, 0.0)).sum(-1)
    real = retrieved.block_ids[retrieved.real]
    metrics: Measured = {"entropy": entropy.mean(), "distinct": len(np.unique(real)) / max(1, len(real))}
    if retrieved.has_null:
        utility = losses.marginal_utility(probs, log_p_z, slots)
        metrics |= {"marginal_utility": utility.sum() / slots.sum(), "p_null": p_z[:, NULL_INDEX].mean()}
    return metrics


def excluded_share(view: PretrainView, queries: list[MaskedQuery]) -> Metrics:
    """Share of the documents found without exclusion that exclusion forbids: the sentence's own block and its copies."""
    retriever = Retriever(view.generation.queries.embed_questions, view.generation.index, view.hybrid)
    texts = [] if view.hybrid is None else words_left(view.sentences, queries)
    found = retriever.retrieve(asked_inputs(view.context, queries), view.section.candidates - 1, null=False, texts=texts)
    forbidden = [np.isin(ids[valid], q.excluded) for ids, valid, q in zip(found.block_ids, found.valid, queries, strict=True)]
    return {"excluded_share": float(np.concatenate(forbidden).mean())} if found.valid.any() else {}


def utility_by_rank(scored: ScoredCandidates, retrieved: Retrieved) -> Measured:
    """Mean log p(y|z,x) - log p(y|null,x) of the documents at each rank; nothing without a null document."""
    if not retrieved.has_null:
        return {}
    utility = losses.retrieval_utility(scored.target_log_probs.detach(), scored.slots).float()
    having = {rank: np.flatnonzero(retrieved.real[:, rank]) for rank in range(1, utility.shape[1])}
    return {f"utility_rank_{rank}": utility[torch.from_numpy(rows), rank].mean() for rank, rows in having.items() if len(rows)}


def evidence_share(view: PretrainView, queries: SequenceOf[MaskedQuery], size: int) -> Metrics:
    """Share of sentences whose hidden span stands in a proposed, and in a read document; ``size`` at a time, shared by the ranks."""
    section = view.section
    widest = max(section.candidates, section.proposals + int(section.null))
    proposed, read = _shares_held(view, queries, size, partial(view.retrieve, k=widest), view.retrieve)
    return {"evidence_proposed": proposed, "evidence_read": read}


def held_out_recall(view: PretrainView, queries: SequenceOf[MaskedQuery], size: int) -> float:
    """Share of sentences for which the embedder alone finds a block with the hidden span among its ``RECALL_DEPTH`` best."""
    dense = replace(view, hybrid=None)
    return _shares_held(view, queries, size, partial(dense.retrieve, k=RECALL_DEPTH + int(view.section.null)))[0]


def own_block_rank(view: PretrainView, embedder: Embedder) -> float:
    """Mean reciprocal rank, among ``DEPTH``, of the block that a sentence is from; asked are the middle sentences of blocks evenly spread.

    A retriever that learns sentences by heart finds the spans hidden in them better, and their blocks worse."""
    store, featurizer = view.inputs.store, view.inputs.featurizer
    rows = np.flatnonzero(store.live)[:: max(1, int(store.live.sum()) // ASKED)]
    bodies = [(store.token_ids(row), store.sentences(row).tokens) for row in rows.tolist()]
    asked = [featurizer.query(ids[slice(*spans[len(spans) // 2])].tolist()) for ids, spans in bodies]
    vectors = [embedder.embed_questions(asked[at : at + AT_ONCE]) for at in range(0, len(asked), AT_ONCE)]
    found = view.generation.index.search(np.concatenate(vectors), DEPTH).ids == np.asarray(store.block_ids)[rows, None]
    return float((found / np.arange(1, DEPTH + 1)).sum(1).mean())


def _shares_held(
    view: PretrainView, queries: SequenceOf[MaskedQuery], size: int, *searches: Callable[[SequenceOf[MaskedQuery]], Retrieved]
) -> list[float]:
    """Share of the sentences for which each search finds a document with the hidden span; the ranks share the work."""
    mine = queries[rank() :: world()]
    sums = torch.zeros(len(searches) + 1, dtype=torch.float64)
    for at in range(0, len(mine), size):
        some = mine[at : at + size]
        held = [float(holding(view, some, search(some)).any(1).sum()) for search in searches]
        sums += torch.tensor([*held, len(some)], dtype=torch.float64)
    *shares, sentences = total(sums).tolist()
    return [share / max(1.0, sentences) for share in shares]


def utility_gain(rows: Iterable[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Held-out marginal utility when pre-training ended, and its gain since before the first step; None where none was measured.

    The gain is what pre-training does; the level depends on masks and start."""
    found = [row["held_out_utility"] for row in rows if row.get("held_out_utility") is not None]
    return (found[-1], found[-1] - found[0]) if found else None


def speed(found: Generation) -> dict[str, float]:
    """Speed of the refresh behind a generation, as the process that embedded it measured."""
    manifest = found.snapshot.manifest
    return {"refresh_seconds": manifest.seconds, "blocks_per_second": manifest.count / max(1e-3, manifest.seconds)}
