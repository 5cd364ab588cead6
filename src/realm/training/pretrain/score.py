"""Masked sentences from text to loss: p(z|x) of each candidate, p(y|z,x) of the masks, and the marginal likelihood.

Held-out sentences (``training/order.py``) are scored by the same functions."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from realm.answering.generative import passages_of
from realm.answering.pointing import Pointed, best_strings, point_at, pointing_loss
from realm.models import losses
from realm.models.bodies.body import multiplying
from realm.models.continuing import language_model
from realm.models.encoder import mask_slots
from realm.models.model import RealmModel
from realm.models.types import MaskedQuery, Sequence
from realm.recipe import PretrainConfig
from realm.search.blocks import NO_ROW, NULL_ROW, BlockInputs
from realm.search.publishing.snapshot import Snapshot
from realm.search.relevance import Weighed, weigh
from realm.search.retriever import Retrieved
from realm.training.context import StageContext
from realm.training.loop.distributed import rank, total, world
from realm.training.loop.task import Metrics
from realm.training.masking.kinds import RecurringSpans
from realm.training.order import Share
from realm.training.pretrain.questions import Queries
from realm.training.pretrain.retrieve import PretrainView, asked_inputs, with_evidence

LIKELIHOODS = {"token": losses.marginal_nll_per_token, "joint": losses.marginal_nll_joint}


@dataclass(frozen=True)
class ScoredCandidates:
    """Live scores and target log-probabilities of one batch through both networks.

    ``log_p_z`` [b, k]; ``target_log_probs`` [b, k, m]; ``slots`` [b, m]; ``tokens`` read, ``encoded`` of them by the encoder; ``pointed``:
    a pointing reader's own result, by whose loss it learns alone."""

    log_p_z: Tensor
    target_log_probs: Tensor
    slots: Tensor
    tokens: int
    encoded: int = 0
    pointed: Pointed | None = None


@dataclass(frozen=True)
class ScoredStep:
    """One share of a step: b queries, their candidates, both scored, and the loss [b] with where it is valid [b]."""

    queries: list[MaskedQuery]
    retrieved: Retrieved
    scored: ScoredCandidates
    loss: Tensor
    valid: Tensor


def score_step(view: PretrainView, queries: Queries, step: int, share: Share) -> ScoredStep:
    """A share of a step from text to loss: sentences are drawn and asked, searched with, and read with what is found."""
    section = view.section
    reader_only = not section.retriever_learns(step)
    asked = queries.asked(view, step, share, reader_only=reader_only)
    alone = {"reader_only": reader_only, "retriever_only": section.reader_stays(step)}
    free = section.exclude == "reading" and alone["retriever_only"]
    retrieved = view.retrieve([replace(query, excluded=query.excluded[:0]) if free and query.positions else query for query in asked])
    if reader_only and isinstance(queries.sentences.kind, RecurringSpans):
        retrieved = with_evidence(view, asked, retrieved, queries.sentences.kind.evidence)
    scored = score_candidates(view.model, view.context, asked, retrieved, known=view.known, **alone)
    loss, valid = pointing_loss(scored.pointed) if reader_only and scored.pointed else pretraining_loss(scored, section)
    return ScoredStep(asked, retrieved, scored, loss, valid)


def pretraining_loss(scored: ScoredCandidates, section: PretrainConfig) -> losses.Loss:
    """-log of the marginal likelihood of each example, summed over its masked wordpieces, and whether it is valid: [b] each."""
    return LIKELIHOODS[section.marginal](scored.target_log_probs, scored.log_p_z, scored.slots)


def weigh_candidates(
    model: RealmModel,
    context: StageContext,
    queries: list[MaskedQuery],
    retrieved: Retrieved,
    *,
    known: Snapshot | None = None,
    as_found: bool = False,
) -> Weighed:
    """log p(z|x) of the candidates of b masked sentences; ``known``: stored embeddings; ``as_found``: by the scores of the search."""
    rows, asked = context.inputs.rows(retrieved.block_ids), asked_inputs(context, queries)
    found = retrieved.scores if as_found else None
    return weigh(model, context.inputs, asked, rows, retrieved.valid, known=known, found=found)


def score_candidates(
    model: RealmModel,
    context: StageContext,
    queries: list[MaskedQuery],
    retrieved: Retrieved,
    *,
    reader_only: bool = False,
    retriever_only: bool = False,
    known: Snapshot | None = None,
) -> ScoredCandidates:
    """Embed b queries and their k candidates afresh and fill the masks with each.

    ``reader_only``: candidates weigh what the search found; ``retriever_only``: no gradient reaches what fills the masks. Returns log
    p(z|x) [b, k], log p(y_j|z,x) [b, k, m] (0 at invalid candidates), slots [b, m]."""
    weighed = weigh_candidates(model, context, queries, retrieved, known=known, as_found=reader_only)
    fill = {"mlm": _fill_masks, "pointer": _point, "lm": _continue}[context.recipe.pretrain.fill]
    rows = context.inputs.rows(retrieved.block_ids)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not retriever_only):
        target_log_probs, slots, encoded, pointed = fill(model, context, queries, rows, retrieved.valid)
    return ScoredCandidates(weighed.log_p_z, target_log_probs, slots, weighed.tokens + encoded, encoded, pointed)


Filled = tuple[Tensor, Tensor, int, Pointed | None]
"""log p(y_j|z,x) [b, k, m] (0 at invalid candidates), slots [b, m], wordpieces read, and what a pointer made of the candidates."""


def _fill_masks(model: RealmModel, context: StageContext, queries: list[MaskedQuery], rows: np.ndarray, valid: np.ndarray) -> Filled:
    """The paper's encoder: each hidden wordpiece from the whole vocabulary."""
    example, candidate, sequences = joint_inputs(context.inputs, queries, rows, valid, context.device)
    where, what, known = mask_slots([q.positions for q in queries], [q.targets for q in queries])
    asked, slots = known[torch.from_numpy(np.nonzero(valid)[0])], known.to(context.device)
    where, what = where.to(context.device), what.to(context.device)
    # Without a null document every candidate of a batch may be excluded.
    nothing = torch.zeros(0, where.shape[1], device=context.device)
    filled = model.encoder(sequences, where[example], what[example], asked) if sequences else nothing
    target_log_probs = filled.new_zeros(*rows.shape, where.shape[1]).index_put((example, candidate), filled)
    return target_log_probs, slots, sum(map(len, sequences)), None


def _point(model: RealmModel, context: StageContext, queries: list[MaskedQuery], rows: np.ndarray, valid: np.ndarray) -> Filled:
    """The reader that points: the whole span at once, so m = 1."""
    asked, targets = [query.pointed for query in queries], [query.targets for query in queries]
    pointed = point_at(model.reader, context.inputs, asked, targets, np.where(valid, rows, NO_ROW))
    slots = torch.ones(len(queries), 1, dtype=torch.bool, device=context.device)
    there = torch.from_numpy(valid).to(context.device)
    return pointed.log_probs.masked_fill(~there, 0.0).unsqueeze(-1), slots, pointed.tokens, pointed


def _continue(model: RealmModel, context: StageContext, queries: list[MaskedQuery], rows: np.ndarray, valid: np.ndarray) -> Filled:
    """The language model that the recipe names: the rest of each sentence, token by token, after its beginning and a block."""
    log_probs, _, slots = continued(context, queries, rows, valid)
    return log_probs, slots, 0, None


def continued(context: StageContext, queries: list[MaskedQuery], rows: np.ndarray, valid: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """log p(y_j|z,x) of the m tokens of each rest [b, k, m], 0 at invalid candidates; which are greedy choices; slots [b, m]."""
    example, candidate = np.nonzero(valid)
    asked = [queries[i].begun for i in example.tolist()]
    found = iter(passages_of(context.inputs, rows[valid & (rows >= 0)].reshape(-1, 1)))
    blocks = ["\n".join(next(found)[0]) if rows[at] >= 0 else "" for at in zip(example, candidate, strict=True)]
    model = language_model(context.recipe.pretrain.language_model, context.device)
    scored, best, there = model.log_probs(blocks, [beginning for beginning, _ in asked], [rest for _, rest in asked])
    scored, best, there = (part.to(context.device) for part in (scored, best, there))
    at = tuple(torch.from_numpy(places).to(context.device) for places in (example, candidate))
    log_probs = scored.new_zeros(*rows.shape, scored.shape[1]).index_put(at, scored)
    greedy = torch.zeros_like(log_probs, dtype=torch.bool).index_put(at, best)
    return log_probs, greedy, torch.zeros_like(greedy[:, 0]).index_put(at[:1], there)


def joint_inputs(
    inputs: BlockInputs, queries: SequenceOf[MaskedQuery], rows: np.ndarray, valid: np.ndarray, device: torch.device
) -> tuple[Tensor, Tensor, list[Sequence]]:
    """The encoder's inputs: query and candidate of each of n valid pairs [n], by rows and valid [b, k], and the n joint sequences."""
    example, candidate = np.nonzero(valid)
    sequences = [inputs.joint(queries[i].ids, int(rows[i, j])) for i, j in zip(example.tolist(), candidate.tolist(), strict=True)]
    return torch.from_numpy(example).to(device), torch.from_numpy(candidate).to(device), sequences


@torch.no_grad()
def evaluate_held_out(view: PretrainView, queries: list[MaskedQuery], size: int) -> Metrics:
    """Fill the masks of held-out sentences, ``size`` at a time, with what is retrieved and with the null document.

    Returns held_out_loss, held_out_utility (nats), held_out_accuracy and held_out_accuracy_null, means over masked wordpieces, or over
    sentences if the reader points at whole spans. The ranks share the work, in the precision of the steps."""
    view.model.eval()
    mine = queries[rank() :: world()]
    sums = torch.zeros(5, dtype=torch.float64)
    sums_of = {"mlm": _sums, "pointer": _sums_pointed, "lm": _sums_continued}[view.section.fill]
    with multiplying(view.context.device.type, bf16=view.context.recipe.run.bf16):
        for at in range(0, len(mine), size):
            sums += sums_of(view, mine[at : at + size])
    loss, utility, right, right_null, tokens = total(sums).tolist()
    names = ("held_out_loss", "held_out_utility", "held_out_accuracy", "held_out_accuracy_null")
    return {name: value / max(1.0, tokens) for name, value in zip(names, (loss, utility, right, right_null), strict=True)}


def _sums(view: PretrainView, queries: list[MaskedQuery]) -> Tensor:
    """Over the masked wordpieces of b queries: loss, utility, right with retrieval, right with the null document, how many. float64 [5]."""
    inputs, device = view.inputs, view.context.device
    retrieved = view.retrieve(queries)
    weighed = weigh_candidates(view.model, view.context, queries, retrieved, known=view.known)
    rows, log_p_z = inputs.rows(retrieved.block_ids), weighed.log_p_z
    where, what, slots = (t.to(device) for t in mask_slots([q.positions for q in queries], [q.targets for q in queries]))
    target_log_probs = log_p_z.new_zeros(*rows.shape, where.shape[1])
    alone = log_p_z.new_zeros(where.shape)
    right, right_null = torch.zeros_like(slots), torch.zeros_like(slots)
    for i, query in enumerate(queries):
        places = np.flatnonzero(retrieved.valid[i])
        if not len(places):  # every document excluded and no null one: nobody fills these masks
            slots[i] = False
            continue
        candidates = torch.from_numpy(places).to(device)
        sequences = [inputs.joint(query.ids, int(rows[i, j])) for j in places.tolist()]
        filled = view.model.encoder.log_probs(sequences, where[i].expand(len(places), -1))  # [k, m, v]
        target_log_probs[i, candidates] = filled.gather(-1, what[i].expand(len(places), -1).unsqueeze(-1)).squeeze(-1).to(log_p_z.dtype)
        mixed = torch.logsumexp(filled + log_p_z[i, candidates].view(-1, 1, 1), 0)
        null = filled[0] if retrieved.has_null else view.model.encoder.log_probs([inputs.joint(query.ids, NULL_ROW)], where[i : i + 1])[0]
        alone[i] = null.gather(-1, what[i].unsqueeze(-1)).squeeze(-1)
        right[i], right_null[i] = (best.argmax(-1) == what[i] for best in (mixed, null))
    return _summed(target_log_probs, log_p_z, slots, alone, right, right_null)


def _sums_pointed(view: PretrainView, queries: list[MaskedQuery]) -> Tensor:
    """The same over b sentences of which a reader points at the whole span: one target each. float64 [5]."""
    inputs, device = view.inputs, view.context.device
    retrieved = view.retrieve(queries)
    weighed = weigh_candidates(view.model, view.context, queries, retrieved, known=view.known)
    rows, log_p_z = np.where(retrieved.valid, inputs.rows(retrieved.block_ids), NO_ROW), weighed.log_p_z
    asked, targets = [query.pointed for query in queries], [query.targets for query in queries]
    pointed = point_at(view.model.reader, inputs, asked, targets, rows)
    slots = torch.from_numpy(retrieved.valid.any(1, keepdims=True)).to(device)
    keys = [inputs.span_places.key(target) for target in targets]
    right, right_null = torch.zeros_like(slots), torch.zeros_like(slots)
    for i, key in enumerate(keys):
        found = best_strings(pointed.spans.of(i), log_p_z[i], inputs, rows[i])
        right[i, 0] = bool(found) and found[0].key == key
        right_null[i, 0] = inputs.span_places.likeliest == key
    return _summed(pointed.log_probs.unsqueeze(-1), log_p_z, slots, pointed.log_prior.unsqueeze(-1), right, right_null)


def _sums_continued(view: PretrainView, queries: list[MaskedQuery]) -> Tensor:
    """The same over the tokens that a language model adds to b sentences; right: greedily, beside the likeliest candidate. float64 [5]."""
    retrieved = view.retrieve(queries)
    log_p_z = weigh_candidates(view.model, view.context, queries, retrieved, known=view.known).log_p_z
    found, greedy, slots = continued(view.context, queries, view.inputs.rows(retrieved.block_ids), retrieved.valid)
    alone, right_null, _ = continued(view.context, queries, *(np.full((len(queries), 1), what) for what in (NULL_ROW, True)))
    best = log_p_z.argmax(-1)
    return _summed(found, log_p_z, slots, alone[:, 0], greedy[torch.arange(len(best)), best], right_null[:, 0])


def _summed(target_log_probs: Tensor, log_p_z: Tensor, slots: Tensor, alone: Tensor, right: Tensor, right_null: Tensor) -> Tensor:
    """Loss, utility, right with retrieval and without it, and how many: over the slots [b, m] of b sentences with k candidates."""
    nll = -losses.marginal_token_log_probs(target_log_probs, log_p_z, slots)
    utility = -nll - alone
    values = (nll[slots].sum(), utility[slots].sum(), (right & slots).sum(), (right_null & slots).sum(), slots.sum())
    return torch.stack([value.double().cpu() for value in values])
