"""Masked sentences and their candidates through both networks: how relevant each candidate is, and how well it fills the masks."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from realm import losses
from realm.data.blocks import NO_ROW, NULL_ROW, BlockInputs
from realm.data.featurize import mask_slots, searched_ids
from realm.data.types import MaskedQuery, Sequence
from realm.index.snapshot import Snapshot
from realm.nn.model import RealmModel
from realm.pointer import Pointed, point_at
from realm.recipes.context import StageContext
from realm.recipes.pretrain.objectives import ScoredCandidates
from realm.retrieval import Retrieved
from realm.timing import charged


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
    """Embed queries and candidates afresh and let the encoder fill the masks with each candidate.

    Args:
        queries: b masked sentences.
        retrieved: their k candidates.
        reader_only: whether the retriever has not learnt yet, and is not to: candidates weigh what the search found of them.
        retriever_only: whether no gradient is to reach what fills the masks.
        known: as for :func:`weigh_candidates`.

    Returns:
        log p(z|x) [b, k], log p(y_j|z,x) [b, k, m] (0 at invalid candidates), slots [b, m].
    """
    if reader_only:
        weighed = weigh_as_found(model, context, queries, retrieved)
    else:
        weighed = weigh_candidates(model, context, queries, retrieved, known=known)
    fill = _point if context.recipe.pretrain.fill == "pointer" else _fill_masks
    with torch.set_grad_enabled(torch.is_grad_enabled() and not retriever_only):
        target_log_probs, slots, encoded, pointed = fill(model, context, queries, weighed.rows, retrieved.valid)
    return ScoredCandidates(weighed.log_p_z, target_log_probs, slots, weighed.tokens + encoded, encoded, pointed)


Filled = tuple[Tensor, Tensor, int, Pointed | None]
"""log p(y_j|z,x) [b, k, m] (0 at invalid candidates), slots [b, m], wordpieces read, and what a pointer made of the candidates."""


def _fill_masks(model: RealmModel, context: StageContext, queries: list[MaskedQuery], rows: np.ndarray, valid: np.ndarray) -> Filled:
    """The paper's encoder: each hidden wordpiece from the whole vocabulary."""
    with charged("data"):
        example, candidate, sequences = joint_inputs(context.inputs, queries, rows, valid, context.device)
    where, what, known = mask_slots([q.positions for q in queries], [q.targets for q in queries])
    asked, slots = known[torch.from_numpy(np.nonzero(valid)[0])], known.to(context.device)
    where, what = where.to(context.device), what.to(context.device)
    # Without a null document every candidate of a batch may be excluded.
    filled = (
        model.encoder(sequences, where[example], what[example], asked)
        if sequences
        else torch.zeros(0, where.shape[1], device=context.device)
    )
    target_log_probs = filled.new_zeros(*rows.shape, where.shape[1]).index_put((example, candidate), filled)
    return target_log_probs, slots, sum(map(len, sequences)), None


def _point(model: RealmModel, context: StageContext, queries: list[MaskedQuery], rows: np.ndarray, valid: np.ndarray) -> Filled:
    """The reader that points: the whole span at once, so m = 1."""
    asked, targets = [query.pointed for query in queries], [query.targets for query in queries]
    pointed = point_at(model.reader, context.inputs, asked, targets, np.where(valid, rows, NO_ROW))
    slots = torch.ones(len(queries), 1, dtype=torch.bool, device=context.device)
    there = torch.from_numpy(valid).to(context.device)
    return pointed.log_probs.masked_fill(~there, 0.0).unsqueeze(-1), slots, pointed.tokens, pointed


def joint_inputs(
    inputs: BlockInputs, queries: SequenceOf[MaskedQuery], rows: np.ndarray, valid: np.ndarray, device: torch.device
) -> tuple[Tensor, Tensor, list[Sequence]]:
    """What the encoder reads: each query with each of its valid candidates.

    Args:
        queries: b masked sentences.
        rows, valid: [b, k] rows of the corpus and which of them are candidates.

    Returns:
        Query and candidate of each of n pairs, [n] each on ``device``; the n joint inputs.
    """
    example, candidate = np.nonzero(valid)
    sequences = [inputs.joint(queries[i].ids, int(rows[i, j])) for i, j in zip(example.tolist(), candidate.tolist(), strict=True)]
    return torch.from_numpy(example).to(device), torch.from_numpy(candidate).to(device), sequences


@dataclass(frozen=True)
class Weighed:
    """log p(z|x) by the live embedders over a query's own candidates [b, k]; the candidates' rows [b, k], NULL_ROW for the null document;
    how many wordpieces were read for it."""

    rows: np.ndarray
    log_p_z: Tensor
    tokens: int


@torch.no_grad()
def weigh_as_found(model: RealmModel, context: StageContext, queries: list[MaskedQuery], retrieved: Retrieved) -> Weighed:
    """log p(z|x) by the scores of the search, of an embedder that is the live one still: only the null document is embedded."""
    inputs, device = context.inputs, context.device
    scores = torch.from_numpy(retrieved.scores).to(device)
    tokens = 0
    if retrieved.has_null:
        asked = [inputs.featurizer.query(searched_ids(q, pointer=context.recipe.pretrain.fill == "pointer")) for q in queries]
        null_emb = model.documents([inputs.block(NULL_ROW)])
        relevance = losses.relevance_scores(
            model.embedder.embed_queries(asked), null_emb, torch.ones(1, dtype=torch.bool, device=device), model.embedder.null_offset
        )
        scores = torch.cat([relevance, scores[:, 1:]], 1)
        tokens = sum(map(len, asked)) + len(inputs.block(NULL_ROW))
    log_p_z = losses.candidate_log_probs(scores, torch.from_numpy(retrieved.valid).to(device))
    return Weighed(inputs.rows(retrieved.block_ids), log_p_z, tokens)


def weigh_candidates(
    model: RealmModel,
    context: StageContext,
    queries: list[MaskedQuery],
    retrieved: Retrieved,
    *,
    known: Snapshot | None = None,
) -> Weighed:
    """Embed queries and candidates afresh.

    Args:
        model, context, queries, retrieved: as for :func:`score_candidates`.
        known: the embeddings of the documents, where these stay as they are: they are not computed again. None: they are.
    """
    inputs, section = context.inputs, context.recipe.pretrain
    with charged("data"):
        rows = inputs.rows(retrieved.block_ids)
        # A document that several queries retrieved is embedded once.
        unique, place = np.unique(rows, return_inverse=True)
        sentences = [inputs.featurizer.query(searched_ids(q, pointer=section.fill == "pointer")) for q in queries]
    query_emb = model.embedder.embed_queries(sentences)
    unique_emb, read = _embedded(model, inputs, unique) if known is None else _looked_up(model, inputs, unique, known)
    own = torch.from_numpy(place.reshape(rows.shape)).to(context.device)
    valid = torch.from_numpy(retrieved.valid).to(context.device)
    null, offset = torch.from_numpy(unique == NULL_ROW).to(context.device), model.embedder.null_offset
    log_p_z = losses.candidate_log_probs(losses.relevance_scores(query_emb, unique_emb[own], null[own], offset), valid)
    return Weighed(rows, log_p_z, sum(map(len, sentences)) + read)


def _embedded(model: RealmModel, inputs: BlockInputs, rows: np.ndarray) -> tuple[Tensor, int]:
    """Embeddings [u, d] of rows of the corpus by the live document side, and how many wordpieces were read for them."""
    with charged("data"):
        blocks = inputs.blocks(rows.tolist())
    return model.documents(blocks), sum(map(len, blocks))


@torch.no_grad()
def _looked_up(model: RealmModel, inputs: BlockInputs, rows: np.ndarray, known: Snapshot) -> tuple[Tensor, int]:
    """The same from an index, which has all but the null document's."""
    documents = rows[rows != NULL_ROW]
    places = np.searchsorted(known.block_ids, np.asarray(inputs.store.block_ids)[documents])
    found = torch.from_numpy(np.asarray(known.vectors[places], np.float32)).to(next(model.documents.parameters()).device)
    if len(documents) == len(rows):
        return found, 0
    null_emb, read = _embedded(model, inputs, np.array([NULL_ROW]))
    unique_emb = found.new_empty(len(rows), found.shape[1])
    unique_emb[torch.from_numpy(rows == NULL_ROW)] = null_emb.to(found.dtype)
    unique_emb[torch.from_numpy(rows != NULL_ROW)] = found
    return unique_emb, read
