"""Ways to compute one step of pre-training, from the plain one to ours: each adds one thing to the one before it."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from realm import losses
from realm.config import Recipe
from realm.corpus.store.blocks import NULL_BLOCK
from realm.data.featurize import pad_batch
from realm.data.types import Sequence, TokenInputs
from realm.nn.bodies import Body, in_buckets
from realm.nn.model import RealmModel
from realm.recipes.pretrain.filling import score_candidates
from realm.train.optim import adamw, parameter_groups
from step_batch import Workload, padded


@dataclass(frozen=True)
class Way:
    """A way without our short cuts. Each field is one of them; ``longest`` pads to the longest of the batch and not to the maximum."""

    masks_only: bool = False
    sdpa: bool = False
    fused: bool = False
    longest: bool = False
    shared: bool = False
    buckets: bool = False


PLAIN, PADDED, OURS, OURS_BF16 = "plain", "padded", "realm", "realm bf16"
WAYS = {
    PLAIN: Way(),
    "+ logits at masks only": Way(masks_only=True),
    "+ SDPA": Way(masks_only=True, sdpa=True),
    "+ fused AdamW": Way(masks_only=True, sdpa=True, fused=True),
    PADDED: Way(masks_only=True, sdpa=True, fused=True, longest=True),
    "+ shared documents": Way(masks_only=True, sdpa=True, fused=True, longest=True, shared=True),
    "+ length buckets": Way(masks_only=True, sdpa=True, fused=True, longest=True, shared=True, buckets=True),
}
"""Cumulative; ``OURS`` adds the last layer only where it is read, and is what pre-training runs."""


def prepare(model: RealmModel, way: Way | None) -> torch.optim.Optimizer:
    """Set the way's attention; returns its optimiser."""
    if way is not None and not way.sdpa:
        for part in (model.embedder, model.encoder):
            part.body.model.set_attn_implementation("eager")  # type: ignore[operator]
    if way is None or way.fused:
        return adamw([model], lr=1e-5)
    return torch.optim.AdamW(parameter_groups([model], 0.01), lr=1e-5, eps=1e-6, foreach=False, fused=False)


def our_loss(model: RealmModel, work: Workload) -> Tensor:
    """The code that pre-training runs."""
    context: Any = SimpleNamespace(inputs=work.inputs, device=next(model.parameters()).device, recipe=Recipe())
    scored = score_candidates(model, context, work.queries, work.retrieved)
    loss, _ = losses.marginal_nll_per_token(scored.target_log_probs, scored.log_p_z, scored.slots)
    return loss.sum() / scored.slots.sum()


def way_loss(way: Way, model: RealmModel, work: Workload) -> Tensor:
    """The same loss without our networks' short cuts."""
    (b, k), featurizer = work.retrieved.block_ids.shape, work.inputs.featurizer
    embed = _embedding(way, model)
    query_emb = embed(work.query_inputs(), featurizer.query_length)
    if way.shared:
        blocks, place = work.different_blocks()
        block_emb = embed(blocks, featurizer.block_length)[place]
    else:
        block_emb = embed(work.blocks(), featurizer.block_length)
    null = torch.from_numpy(work.retrieved.block_ids == NULL_BLOCK).to(query_emb.device)
    scores = losses.relevance_scores(query_emb, block_emb.view(b, k, -1), null, model.embedder.null_offset)
    log_p_z = losses.candidate_log_probs(scores, torch.ones(b, k, dtype=torch.bool))
    where, what, slots = work.masks()
    filled = _filled(way, model, work.joint(), where.repeat_interleave(k, 0), what.repeat_interleave(k, 0), featurizer.joint_length)
    loss, _ = losses.marginal_nll_per_token(filled.view(b, k, -1), log_p_z, slots)
    return loss.sum() / slots.sum()


def _inputs(way: Way, sequences: list[Sequence], length: int) -> TokenInputs:
    return pad_batch(sequences, 0) if way.longest else padded(sequences, length)


def _embedding(way: Way, model: RealmModel) -> Callable[[list[Sequence], int], Tensor]:
    embedder = model.embedder
    assert embedder is not None
    body: Body = embedder.body

    def pooled(inputs: TokenInputs) -> Tensor:
        return body.model.pooler(body(inputs))  # type: ignore[operator]

    def embed(sequences: list[Sequence], length: int) -> Tensor:
        if way.buckets:
            return embedder.head(in_buckets(body, sequences, lambda inputs, _: pooled(inputs)))
        return embedder.head(pooled(_inputs(way, sequences, length)))

    return embed


def _filled(way: Way, model: RealmModel, joint: list[Sequence], where: Tensor, what: Tensor, length: int) -> Tensor:
    """log p of the targets [n, m] with the joint inputs."""
    encoder = model.encoder
    assert encoder is not None

    def at_masks(inputs: TokenInputs, rows: list[int]) -> Tensor:
        states = encoder.body(inputs)
        return states.gather(1, where[rows].unsqueeze(-1).expand(-1, -1, states.shape[-1]))

    if way.buckets:
        logits = encoder.logits(in_buckets(encoder.body, joint, at_masks))
    elif way.masks_only:
        logits = encoder.logits(at_masks(_inputs(way, joint, length), list(range(len(joint)))))
    else:
        everywhere = encoder.logits(encoder.body(_inputs(way, joint, length)))
        labels = torch.full(everywhere.shape[:2], -100).scatter(1, where, what)
        found = -F.cross_entropy(everywhere.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none")
        return found.view(labels.shape).gather(1, where)
    return -F.cross_entropy(logits.flatten(0, 1), what.flatten(), reduction="none").view_as(what)
