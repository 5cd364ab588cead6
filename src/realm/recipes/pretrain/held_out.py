"""What the retriever and the encoder, or the reader that points, make of masked sentences that are never trained on
(``data/held_out.py`` says which)."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realm import losses
from realm.data.blocks import NO_ROW, NULL_ROW
from realm.data.featurize import mask_slots
from realm.data.types import MaskedQuery
from realm.nn.precision import multiplying
from realm.pointer import best_strings, point_at
from realm.recipes.pretrain.filling import weigh_candidates
from realm.recipes.pretrain.view import PretrainView
from realm.train.distributed import rank, total, world
from realm.train.loop import Metrics


@torch.no_grad()
def evaluate_held_out(view: PretrainView, queries: list[MaskedQuery], size: int) -> Metrics:
    """Fill the masks of held-out sentences with what is retrieved for them and with the null document; the ranks share the work.

    In the numbers in which steps multiply.

    Args:
        view: the live networks and the index in use.
        queries: the sentences.
        size: how many at a time.

    Returns:
        held_out_loss, held_out_utility (marginal, in nats), held_out_accuracy and held_out_accuracy_null (the most probable wordpiece is
        the hidden one, with retrieval and without), each a mean over the masked wordpieces of sentences that have a candidate; over the
        sentences, of which the whole span is wanted, where the reader points.
    """
    view.model.eval()
    mine = queries[rank() :: world()]
    sums = torch.zeros(5, dtype=torch.float64)
    sums_of = _sums_pointed if view.section.fill == "pointer" else _sums
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
    rows, log_p_z = weighed.rows, weighed.log_p_z
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
    rows, log_p_z = np.where(retrieved.valid, weighed.rows, NO_ROW), weighed.log_p_z
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


def _summed(target_log_probs: Tensor, log_p_z: Tensor, slots: Tensor, alone: Tensor, right: Tensor, right_null: Tensor) -> Tensor:
    """Loss, utility, right with retrieval and without it, and how many: over the slots [b, m] of b sentences with k candidates."""
    nll = -losses.marginal_token_log_probs(target_log_probs, log_p_z, slots)
    utility = -nll - alone
    values = (nll[slots].sum(), utility[slots].sum(), (right & slots).sum(), (right_null & slots).sum(), slots.sum())
    return torch.stack([value.double().cpu() for value in values])


def utility_gain(rows: Iterable[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Marginal utility on held-out sentences when pre-training ended, and how much more that is than before its first step.

    None where none was measured. What pre-training does is the gain. The level tells of the masks and of the start, too: what is hidden may
    be easy to find untrained.

    Args:
        rows: of the run's metrics, in order.
    """
    found = [row["held_out_utility"] for row in rows if row.get("held_out_utility") is not None]
    return (found[-1], found[-1] - found[0]) if found else None
