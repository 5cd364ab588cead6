"""p(z|x) of candidates by the live networks: in training, in evaluation and in explanations (REALM, equation 2)."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from realm.models import losses
from realm.models.model import RealmModel
from realm.models.types import Sequence
from realm.search.blocks import NULL_ROW, BlockInputs
from realm.search.publishing.snapshot import Snapshot


@dataclass(frozen=True)
class Weighed:
    """log p(z|x) over each query's own candidates [b, k], -inf if missing, and the number of wordpieces read for it."""

    log_p_z: Tensor
    tokens: int


def weigh(
    model: RealmModel,
    inputs: BlockInputs,
    queries: SequenceOf[Sequence],
    rows: np.ndarray,
    valid: np.ndarray,
    *,
    known: Snapshot | None = None,
    found: np.ndarray | None = None,
    double: bool = False,
) -> Weighed:
    """Softmax over the relevance of each query's candidates.

    Args:
        model: its embedder reads the queries, ``documents`` the candidates.
        queries: b inputs of the query side.
        rows: int64 [b, k] rows of the candidates, NULL_ROW for the null document and for missing ones.
        valid: bool [b, k].
        known: fixed vectors of the documents: only the null document is embedded. None: each document is, once.
        found: float32 [b, k] scores of a search by this very embedder, for no gradient: only the null document is embedded.
        double: take the softmax in float64."""
    if found is None:
        query_emb, offset = model.embedder.embed_queries(queries), model.embedder.null_offset
        unique, place = np.unique(rows, return_inverse=True)
        documents, read = _embedded(model, inputs, unique) if known is None else _looked_up(model, inputs, unique, known)
        own = torch.from_numpy(place.reshape(rows.shape)).to(documents.device)
        null = torch.from_numpy(unique == NULL_ROW).to(documents.device)
        scores, tokens = losses.relevance_scores(query_emb, documents[own], null[own], offset), sum(map(len, queries)) + read
    else:
        scores, tokens = _as_found(model, inputs, queries, rows, valid, found)
    kept = torch.from_numpy(valid).to(scores.device)
    return Weighed(losses.candidate_log_probs(scores.double() if double else scores, kept), tokens)


@torch.no_grad()
def _as_found(
    model: RealmModel, inputs: BlockInputs, queries: SequenceOf[Sequence], rows: np.ndarray, valid: np.ndarray, found: np.ndarray
) -> tuple[Tensor, int]:
    """Relevance [b, k] from the search, recomputed for a null document as candidate 0; and the wordpieces read."""
    device = next(model.documents.parameters()).device
    scores = torch.from_numpy(found).to(device)
    if not (valid[:, 0] & (rows[:, 0] == NULL_ROW)).all():
        return scores, 0
    null_emb, read = _embedded(model, inputs, np.array([NULL_ROW]))
    query_emb, null = model.embedder.embed_queries(queries), torch.ones(1, dtype=torch.bool, device=device)
    of_null = losses.relevance_scores(query_emb, null_emb, null, model.embedder.null_offset)
    return torch.cat([of_null, scores[:, 1:]], 1), sum(map(len, queries)) + read


def _embedded(model: RealmModel, inputs: BlockInputs, rows: np.ndarray) -> tuple[Tensor, int]:
    """Embeddings [u, d] of rows of the corpus by the live document side, and the wordpieces read for them."""
    blocks = inputs.blocks(rows.tolist())
    return model.documents(blocks), sum(map(len, blocks))


@torch.no_grad()
def _looked_up(model: RealmModel, inputs: BlockInputs, rows: np.ndarray, known: Snapshot) -> tuple[Tensor, int]:
    """The same from known vectors, except for the null document."""
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
