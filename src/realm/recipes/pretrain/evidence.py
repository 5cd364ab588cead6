"""Whether what is retrieved for a masked sentence says what is hidden, and how to see to it while the reader learns to read."""

from collections.abc import Callable, Sequence as SequenceOf
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from realm.data.featurize import searched_ids
from realm.data.masking.evidence import Evidence
from realm.data.masking.exclusion import overlapping
from realm.data.types import MaskedQuery
from realm.recipes.pretrain.view import PretrainView
from realm.retrieval import Retrieved
from realm.train.distributed import rank, total, world
from realm.train.loop import Metrics

DEPTH = 5
"""Blocks in which the retriever alone is to find a hidden span."""


def holding(view: PretrainView, queries: SequenceOf[MaskedQuery], retrieved: Retrieved) -> np.ndarray:
    """bool [b, k]: which candidates are documents that hold the hidden span, compared as answers are."""
    places, rows = view.inputs.span_places, view.inputs.rows(retrieved.block_ids)
    held = np.zeros(rows.shape, bool)
    for i, j in np.argwhere(retrieved.real).tolist():
        held[i, j] = bool(places.places(int(rows[i, j]), queries[i].targets))
    return held


def evidence_share(view: PretrainView, queries: SequenceOf[MaskedQuery], size: int) -> Metrics:
    """For how many sentences some document says what is hidden; the ranks share the work.

    Args:
        view: the index in use.
        queries: the sentences.
        size: how many at a time.

    Returns:
        evidence_proposed, the share among the blocks that are proposed, and evidence_read, among those that are read.
    """
    section = view.section
    widest = max(section.candidates, section.proposals + int(section.null))
    proposed, read = _shares_held(view, queries, size, partial(view.retrieve, k=widest), view.retrieve)
    return {"evidence_proposed": proposed, "evidence_read": read}


def held_out_recall(view: PretrainView, queries: SequenceOf[MaskedQuery], size: int) -> float:
    """For what share of sentences the embedder alone, without sparse search, finds a block with the hidden span among its ``DEPTH`` best;
    arguments as for :func:`evidence_share`."""
    dense = replace(view, hybrid=None)
    return _shares_held(view, queries, size, partial(dense.retrieve, k=DEPTH + int(view.section.null)))[0]


def _shares_held(
    view: PretrainView, queries: SequenceOf[MaskedQuery], size: int, *searches: Callable[[SequenceOf[MaskedQuery]], Retrieved]
) -> list[float]:
    """Of each search, for what share of the sentences it finds a document that holds the hidden span; the ranks share the work."""
    mine = queries[rank() :: world()]
    sums = torch.zeros(len(searches) + 1, dtype=torch.float64)
    for at in range(0, len(mine), size):
        some = mine[at : at + size]
        held = [float(holding(view, some, search(some)).any(1).sum()) for search in searches]
        sums += torch.tensor([*held, len(some)], dtype=torch.float64)
    *shares, sentences = total(sums).tolist()
    return [share / max(1.0, sentences) for share in shares]


@torch.inference_mode()
def with_evidence(view: PretrainView, queries: SequenceOf[MaskedQuery], retrieved: Retrieved, evidence: Evidence) -> Retrieved:
    """The candidates, the last one replaced by a block that states what is hidden where none of them does.

    Of several such blocks it is the one nearest to the sentence by the embedder of the generation in use. A sentence that has none keeps
    its candidates.

    Args:
        view: the index in use.
        queries: b masked sentences.
        retrieved: their k candidates, the null document or a block before the last one.
        evidence: of the sentences.
    """
    ids, valid, scores = retrieved.block_ids.copy(), retrieved.valid.copy(), retrieved.scores.copy()
    for i in np.flatnonzero(~holding(view, queries, retrieved).any(1)).tolist():
        found = _evidence(view, queries[i], evidence)
        if len(found):
            near = _relevance(view, queries[i], found)
            ids[i, -1], valid[i, -1], scores[i, -1] = found[near.argmax()], True, near.max()
    return Retrieved(ids, valid, scores)


def _evidence(view: PretrainView, query: MaskedQuery, evidence: Evidence) -> np.ndarray:
    """int64 [n]: ids of the blocks in the index that state what is hidden of a sentence and may be retrieved for it."""
    store, overlap = view.inputs.store, view.section.exclude_overlap
    rows = [row for row in _stating(view, query, evidence) if view.inputs.span_places.places(row, query.targets)]
    found = np.asarray(store.block_ids)[np.array(rows, np.int64)]
    found = found[np.isin(found, view.generation.snapshot.block_ids) & ~np.isin(found, query.excluded)]
    return np.setdiff1d(found, overlapping(query, found, store, overlap)) if overlap else found


def _stating(view: PretrainView, query: MaskedQuery, evidence: Evidence) -> list[int]:
    """Rows that are evidence for a sentence; for a question, the block of the sentence that it was made for."""
    if query.positions:
        return evidence.rows(query)
    store = view.inputs.store
    return store.rows_of(np.array([query.origin])).tolist() if view.sentences is store else []


def _relevance(view: PretrainView, query: MaskedQuery, block_ids: np.ndarray) -> np.ndarray:
    """float32 [n]: inner products of a sentence with blocks of the generation in use."""
    asked = view.inputs.featurizer.query(searched_ids(query, pointer=view.section.fill == "pointer"))
    snapshot = view.generation.snapshot
    vectors = np.asarray(snapshot.vectors[np.searchsorted(snapshot.block_ids, block_ids)], np.float32)
    return vectors @ view.generation.queries.embed_queries([asked])[0].float().cpu().numpy()
