"""What each document does for one masked sentence: how relevant it is, how likely it makes the hidden words, whether it helps.

Everything here is the joint form, p(y|x) = sum over z of p(z|x) p(y|z,x) with whole spans (REALM, equation 1), whatever training used.
"""

import numpy as np
import torch
from torch import Tensor

from realm.answering.records import DocumentEffect
from realm.documents.store.blocks import NULL_BLOCK, BlockStore
from realm.models import losses
from realm.search.retriever import NULL_INDEX


def document_effects(store: BlockStore, block_ids: np.ndarray, log_p_z: Tensor, target_log_probs: Tensor) -> tuple[DocumentEffect, ...]:
    """The candidates of one sentence with their numbers, in order.

    Args:
        store: the knowledge corpus.
        block_ids: int64 [k], valid candidates only, there may be none; NULL_BLOCK is the null document, which stands first if it was read.
        log_p_z: [k] log p(z|x).
        target_log_probs: [k, m] log p(y_j|z,x), all slots real.
    """
    if not len(block_ids):
        return ()
    log_p_z, log_probs = log_p_z.double().unsqueeze(0), target_log_probs.double().unsqueeze(0)
    slots = torch.ones(1, log_probs.shape[2], dtype=torch.bool, device=log_probs.device)
    given = losses.span_log_probs(log_probs, slots)[0].exp().tolist()
    r = losses.retriever_gradient(log_probs, log_p_z, slots)[0].tolist()
    utility: list[float | None] = [None] * len(given)
    if block_ids[NULL_INDEX] == NULL_BLOCK:
        utility = losses.retrieval_utility(log_probs, slots)[0].tolist()
    p_z = log_p_z[0].exp().tolist()
    found = []
    for i, block_id in enumerate(block_ids.tolist()):
        null = block_id == NULL_BLOCK
        block = None if null else store.block(int(store.rows_of(block_ids[i : i + 1])[0]))
        title, text = ("", "") if block is None else (block.title, block.text)
        found.append(DocumentEffect(block_id, title, text, null, p_z[i], given[i], r[i], utility[i]))
    return tuple(found)


def likelihood(candidates: tuple[DocumentEffect, ...]) -> float:
    """p(y|x): the sum over candidates of p_z * p_y_given_z."""
    return sum(candidate.p_z * candidate.p_y_given_z for candidate in candidates)
