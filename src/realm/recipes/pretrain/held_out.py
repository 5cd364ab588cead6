"""Masked sentences that are never trained on: which they are, and what the retriever and the encoder make of them."""

from __future__ import annotations

import hashlib
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from realm import losses
from realm.data.featurize import mask_slots
from realm.recipes.pretrain.filling import weigh_candidates
from realm.train.best import find_best, load_weights
from realm.train.distributed import on_first, rank, total, world
from realm.train.loop import Metrics

if TYPE_CHECKING:
    from realm.data.types import MaskedQuery
    from realm.recipes.context import StageContext
    from realm.recipes.pretrain.task import PretrainTask


def hold_out(number: int, held: int) -> tuple[list[int], list[int]]:
    """Which of so many items are held out, and which are trained on: by hash, so that every stage holds out the same first.

    Args:
        number: of items.
        held: how many to hold out; at most a tenth of them, and at least one unless it is 0.

    Returns:
        Held out, in the order of their hashes; trained on, ascending. A single item is both.
    """
    wanted = min(held, max(1, number // 10))
    chosen = nsmallest(wanted, range(number), key=lambda item: hashlib.sha256(f"held out {item}".encode()).digest())
    out = set(chosen)
    return chosen, [item for item in range(number) if item not in out] or chosen


@torch.no_grad()
def evaluate_held_out(task: PretrainTask, items: list[int], size: int) -> Metrics:
    """Fill the masks of held-out sentences with what is retrieved for them and with the null document; the ranks share the work.

    Args:
        task: gives queries, candidates under the index in use, and the live networks.
        items: the sentences.
        size: how many at a time.

    Returns:
        held_out_loss, held_out_utility (marginal, in nats), held_out_accuracy and held_out_accuracy_null (the most probable wordpiece is
        the hidden one, with retrieval and without), each a mean over the masked wordpieces of sentences that have a candidate.
    """
    task.model.eval()
    mine = items[rank() :: world()]
    sums = torch.zeros(5, dtype=torch.float64)
    for at in range(0, len(mine), size):
        # Training visits positions from 0: a negative one is drawn like them, the same at every evaluation, and by no step.
        sums += _sums(task, [task.query(-1 - item, item) for item in mine[at : at + size]])
    loss, utility, right, right_null, tokens = total(sums).tolist()
    names = ("held_out_loss", "held_out_utility", "held_out_accuracy", "held_out_accuracy_null")
    return {name: value / max(1.0, tokens) for name, value in zip(names, (loss, utility, right, right_null), strict=True)}


def _sums(task: PretrainTask, queries: list[MaskedQuery]) -> Tensor:
    """Over the masked wordpieces of b queries: loss, utility, right with retrieval, right with the null document, how many. float64 [5]."""
    inputs, device = task.context.inputs, task.context.device
    retrieved = task.retrieve(queries)
    weighed = weigh_candidates(task.model, task.context, queries, retrieved)
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
        filled = task.model.encoder.log_probs(sequences, where[i].expand(len(places), -1))  # [k, m, v]
        target_log_probs[i, candidates] = filled.gather(-1, what[i].expand(len(places), -1).unsqueeze(-1)).squeeze(-1).to(log_p_z.dtype)
        mixed = torch.logsumexp(filled + log_p_z[i, candidates].view(-1, 1, 1), 0)
        null = filled[0] if retrieved.has_null else task.model.encoder.log_probs([inputs.joint(query.ids, -1)], where[i : i + 1])[0]
        alone[i] = null.gather(-1, what[i].unsqueeze(-1)).squeeze(-1)
        right[i], right_null[i] = (best.argmax(-1) == what[i] for best in (mixed, null))
    nll = -losses.marginal_token_log_probs(target_log_probs, log_p_z, slots)
    utility = -nll - alone
    values = (nll[slots].sum(), utility[slots].sum(), (right & slots).sum(), (right_null & slots).sum(), slots.sum())
    return torch.stack([value.double().cpu() for value in values])


def choose_weights(context: StageContext, task: PretrainTask, steps: int) -> dict[str, Any]:
    """Load the weights that the recipe's ``pretrain.publish`` names into the task's model: the last are there already.

    Returns:
        Facts for the stage: published ("last" or "best"), published_step, and best_step with best_utility where anything was held out.
    """
    facts: dict[str, Any] = {"published": "last", "published_step": steps}
    found = on_first(lambda: _best(context.paths.checkpoints(task.name)))
    if found is None:
        return facts
    step, utility, weights = found
    facts |= {"best_step": step, "best_utility": utility}
    if context.recipe.pretrain.publish == "last":
        return facts
    load_weights(Path(weights), task.model)
    return facts | {"published": "best", "published_step": step}


def _best(checkpoints: Path) -> list[Any] | None:
    found = find_best(checkpoints)
    return None if found is None else [found[0], found[1], str(found[2])]
