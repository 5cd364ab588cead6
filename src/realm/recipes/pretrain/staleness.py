"""What a stale index costs, measured on the probe set whenever a fresher one takes its place."""

from collections.abc import Sequence as SequenceOf

import numpy as np
import torch

from realm.corpus.store.blocks import NULL_BLOCK
from realm.data.blocks import NULL_ROW
from realm.data.featurize import searched_ids
from realm.data.loader import generator
from realm.data.types import MaskedQuery
from realm.recipes.pretrain.view import PretrainView
from realm.retrieval import Retrieved

QUERIES = 16
BLOCKS = 256
"""Sampled queries and blocks: about one training step's work at each swap. A corpus of no more blocks is measured exactly."""


def overlap(before: Retrieved, after: Retrieved) -> float:
    """Share of the documents retrieved under one generation that the next one retrieves for the same queries, 0..1; null not counted."""
    shared = total = 0
    for old, new in zip(before.documents, after.documents, strict=True):
        real = old[old != NULL_BLOCK]
        shared += int(np.isin(real, new).sum())
        total += len(real)
    return shared / max(1, total)


@torch.inference_mode()
def stale_share(view: PretrainView, queries: SequenceOf[MaskedQuery], retrieved: Retrieved, step: int) -> float:
    """Share of retrieved documents that an index of the live parameters would not have returned, 0..1, estimated.

    A candidate would not be returned if as many documents as are retrieved score higher under the live embedders. Those are counted
    among the other candidates and in a sample of the corpus, where each stands for as many as were not drawn.

    Args:
        view: the live networks and the corpus.
        queries: of the probe; the first few are enough.
        retrieved: what the index in use returned for them.
        step: which sample.
    """
    inputs, model = view.inputs, view.model
    queries = queries[:QUERIES]
    live = np.flatnonzero(inputs.store.live)
    sample = generator("staleness", view.context.seed, step).permutation(live)[:BLOCKS]
    found = inputs.rows(retrieved.documents[: len(queries)])
    rows = np.unique(np.concatenate([found[found != NULL_ROW], sample]))
    pointer = view.section.fill == "pointer"
    query_emb = model.embedder.eval()([inputs.featurizer.query(searched_ids(query, pointer=pointer)) for query in queries])
    block_emb = model.documents.eval()(inputs.blocks(rows.tolist()))
    scores = (query_emb @ block_emb.T).float().cpu().numpy()
    weight = len(live) / len(sample)
    stale = total = 0
    for score, query, candidates in zip(scores, queries, found, strict=True):
        real = candidates[candidates != NULL_ROW]
        own = score[np.searchsorted(rows, real)]
        excluded = inputs.rows(query.excluded[np.isin(query.excluded, inputs.store.block_ids)])
        others = score[np.searchsorted(rows, sample[~np.isin(sample, np.concatenate([real, excluded]))])]
        higher = (own[None, :] > own[:, None]).sum(1) + weight * (others[None, :] > own[:, None]).sum(1)
        stale += int((higher >= found.shape[1]).sum())
        total += len(real)
    return stale / max(1, total)
