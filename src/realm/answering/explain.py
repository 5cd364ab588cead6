"""Which documents a masked sentence profits from: p(z|x), p(y|z,x), r(z) and the retrieval utility of each candidate.

Shapes: k candidates (null at 0), m mask slots, v vocabulary, n spans kept by a search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from realm.answering.cloze import ClozeText, special_ids
from realm.answering.pointer import best_strings, point_at
from realm.answering.records import Explanation, Prediction
from realm.answering.utility import document_effects, likelihood
from realm.documents.ingest.packing import hash64
from realm.errors import ConfigError, DataError, RunError
from realm.models.embedder import Embedder
from realm.models.encoder import KnowledgeAugmentedEncoder
from realm.models.model import RealmModel
from realm.models.types import TokenIds
from realm.search.blocks import BlockInputs
from realm.search.hybrid import HybridSearch
from realm.search.index.mips import MipsIndex
from realm.search.relevance import weigh
from realm.search.retriever import NULL_INDEX, Retriever

LONGEST_SPAN = 6
BEAM = 24
BETWEEN_SPANS = " | "


class Searchable(Protocol):
    """What is used of a generation (``refresh.Generation``): the published embedder of queries, and the index."""

    @property
    def queries(self) -> Embedder: ...

    @property
    def index(self) -> MipsIndex: ...


@dataclass(frozen=True)
class _Filled:
    """One filling of the masks: wordpieces and string of each span, the joint probability, whether the strings give these wordpieces."""

    spans: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]
    p: float
    sound: bool

    @property
    def rank(self) -> tuple[bool, float]:
        return self.sound, self.p


@dataclass(frozen=True)
class _Read:
    """One masked input with its candidates: rows [k], block ids [k], log p(z|x) [1, k], log p over the vocabulary [k, m, v]."""

    rows: np.ndarray
    block_ids: np.ndarray
    log_p_z: Tensor
    log_probs: Tensor


@torch.inference_mode()
def explain(
    model: RealmModel,
    generation: Searchable,
    inputs: BlockInputs,
    text: str,
    *,
    targets: Sequence[str] = (),
    k: int = 8,
    exclude_documents: Sequence[str] = (),
    top: int = 5,
    hybrid: HybridSearch | None = None,
) -> Explanation:
    """Explain one masked sentence. Puts ``model`` into evaluation mode.

    Args:
        model: of the pre-training stage: ``embedder`` scores p(z|x), ``encoder`` gives p(y|z,x).
        generation: a published generation of the same corpus; its embedder and index find the candidates.
        inputs: corpus and featuriser of the run.
        text: a sentence in which each ``[MASK]`` stands for a whole span.
        targets: one span for each [MASK], or none: then the most probable spans of 1 to 6 wordpieces are explained (several masks
            are tried one after the other, not in all combinations).
        k: candidates, the null document included.
        exclude_documents: ids of documents whose blocks must not be retrieved. With targets, blocks that hold a filled sentence verbatim
            are excluded too, as in training.
        top: predictions to list.
        hybrid: proposes candidates by the sentence's words too; None: the published embedder alone does. p(z|x) is the live embedder's.

    Raises:
        DataError: no [MASK], not one target for each, a target the vocabulary cannot spell, a text longer than a query, or a document id
            that is not in the corpus.
        ConfigError: k or top below 1.
        RunError: the model has no embedder or no encoder.
    """
    if min(k, top) < 1:
        raise ConfigError(f"k = {k} and top = {top}: both must be at least 1", cure="Raise them.")
    sentence = ClozeText(inputs, text)
    if not model.has("encoder") and model.has("reader"):
        retriever = Retriever(generation.queries.embed_queries, generation.index, hybrid)
        excluded = _excluded_blocks(inputs, sentence, targets, exclude_documents)
        return _explain_pointed(model, retriever, sentence, text, targets, k, excluded, top)
    spans = sentence.spell(targets) if targets else None
    excluded = _excluded_blocks(inputs, sentence, targets, exclude_documents)
    looker = _Looker(model, generation, inputs, sentence, k, excluded, hybrid)
    if spans is None:
        read, found = looker.search_lengths(top)
        spans, targets = found[0].spans, found[0].texts
    else:
        read = looker.read([len(span) for span in spans])
        found = looker.fill(read, [len(span) for span in spans], top)
    predictions = tuple(Prediction(BETWEEN_SPANS.join(f.texts), f.p) for f in found[:top])
    return _assemble(inputs, text, tuple(targets), [i for span in spans for i in span], read, excluded, predictions)


class _Looker:
    """Retrieves for masked inputs and reads them with their candidates."""

    def __init__(
        self,
        model: RealmModel,
        generation: Searchable,
        inputs: BlockInputs,
        sentence: ClozeText,
        k: int,
        excluded: np.ndarray,
        hybrid: HybridSearch | None,
    ):
        self.encoder = _encoder(model)
        self.model, self.retriever = model, Retriever(generation.queries.embed_queries, generation.index, hybrid)
        self.inputs, self.sentence, self.k, self.excluded = inputs, sentence, k, excluded

    def read(self, lengths: Sequence[int]) -> _Read:
        """The published embedder searches, with the words where the run does, the live one scores, the encoder reads: as in training."""
        ids, positions = self.sentence.masked(lengths)
        rows, block_ids, log_p_z = _weighed(self.model, self.retriever, self.sentence, ids, self.k, self.excluded)
        where = torch.tensor([positions], device=log_p_z.device).expand(len(rows), -1) + 1  # [CLS] stands before the query
        log_probs = self.encoder.log_probs([self.inputs.joint(ids, int(row)) for row in rows], where)
        return _Read(rows, block_ids, log_p_z, log_probs.double())

    def fill(self, read: _Read, lengths: Sequence[int], top: int) -> list[_Filled]:
        """The best fillings of one masked input, best first."""
        special = special_ids(self.inputs)
        spelled = [self._spelled(ids, p, lengths) for ids, p in best_spans(read.log_p_z[0], read.log_probs, max(BEAM, 2 * top), special)]
        return _distinct(spelled)

    def search_lengths(self, top: int) -> tuple[_Read, list[_Filled]]:
        """Without targets: lengths are tried mask by mask; the winner's input, and all fillings seen, best first."""
        trial = (1,) * self.sentence.masks  # fits: ClozeText has seen to it
        read = self.read(trial)
        seen = {trial: self.fill(read, trial, top)}
        winner = read, seen[trial][0]
        for mask in range(self.sentence.masks):
            lengths = [len(span) for span in winner[1].spans]
            for length in range(1, LONGEST_SPAN + 1):
                trial = (*lengths[:mask], length, *lengths[mask + 1 :])
                if trial in seen or not self.sentence.fits(trial):
                    continue
                read = self.read(trial)
                seen[trial] = self.fill(read, trial, top)
                if seen[trial][0].rank > winner[1].rank:
                    winner = read, seen[trial][0]
        return winner[0], _distinct([filled for fillings in seen.values() for filled in fillings])

    def _spelled(self, ids: TokenIds, p: float, lengths: Sequence[int]) -> _Filled:
        """A filling as strings. Sound: each string is spelled by these very wordpieces ("##ing" alone is not a word)."""
        edges = np.cumsum([0, *lengths])
        spans = tuple(tuple(ids[a:b]) for a, b in pairwise(edges.tolist()))
        tokenizer = self.inputs.store.tokenizer
        decoded = [tokenizer.decode(span) for span in spans]
        sound = [tuple(again) for again in tokenizer.encode(decoded)] == list(spans)
        return _Filled(spans, tuple(text.strip() for text in decoded), p, sound)


def _weighed(
    model: RealmModel, retriever: Retriever[Any], sentence: ClozeText, ids: TokenIds, k: int, excluded: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """The published embedder searches, with the words where the run does, the live one scores: rows and ids of the candidates of a masked
    input [k], log p(z|x) [1, k]."""
    inputs = sentence.inputs
    query = [inputs.featurizer.query(ids)]
    found = retriever.retrieve(query, k, null=True, exclude=[excluded], texts=[" ".join(sentence.pieces)])
    block_ids = found.block_ids[0][found.valid[0]]
    rows = inputs.rows(block_ids)
    return rows, block_ids, weigh(model, inputs, query, rows[None], np.ones((1, len(rows)), bool), double=True).log_p_z


def _explain_pointed(
    model: RealmModel,
    retriever: Retriever[Any],
    sentence: ClozeText,
    text: str,
    targets: Sequence[str],
    k: int,
    excluded: np.ndarray,
    top: int,
) -> Explanation:
    """The same by a reader that points: its predictions are spans of the candidates, and p(y|z,x) is that of the whole span."""
    if sentence.masks != 1:
        raise DataError(f"{sentence.masks} masks, and this run's reader points at one span", cure="Put [MASK] once into the sentence.")
    inputs = sentence.inputs
    model.eval()
    ids, _ = sentence.masked([1])
    rows, block_ids, log_p_z = _weighed(model, retriever, sentence, ids, k, excluded)
    (target,) = sentence.spell(targets) if targets else ((),)
    pointed = point_at(model.reader, inputs, [ids], [target], rows[None])
    found = best_strings(pointed.spans.of(0), log_p_z[0], inputs, rows)[:top]
    predictions = tuple(Prediction(inputs.store.tokenizer.decode(string.wordpieces).strip(), string.p) for string in found)
    if not targets and found:
        targets = (predictions[0].text,)
        pointed = point_at(model.reader, inputs, [ids], [found[0].wordpieces], rows[None])
    candidates = document_effects(inputs.store, block_ids, log_p_z[0], pointed.log_probs[0].unsqueeze(-1))
    p_y_null = candidates[NULL_INDEX].p_y_given_z
    return Explanation(text, tuple(targets), likelihood(candidates), p_y_null, tuple(excluded.tolist()), predictions, candidates)


def best_spans(log_p_z: Tensor, log_probs: Tensor, width: int, forbidden: Sequence[int]) -> list[tuple[TokenIds, float]]:
    """Beam search for the wordpieces with the largest joint probability sum over z of p(z|x) prod over j of p(y_j|z,x).

    Args:
        log_p_z: [k] float64.
        log_probs: [k, m, v] float64.
        width: spans kept at each slot.
        forbidden: ids that no span may hold (special tokens).

    Returns:
        At most ``width`` pairs (m ids, joint probability), best first.
    """
    weight = log_p_z.exp().unsqueeze(0)  # [n, k]: p(z|x) times the probability of the span so far
    spans: list[TokenIds] = [[]]
    for slot in range(log_probs.shape[1]):
        probs = log_probs[:, slot].exp()
        probs[:, list(forbidden)] = 0.0
        values, places = (weight @ probs).flatten().topk(min(width, len(spans) * probs.shape[1]))
        kept = places[values > 0] if bool((values > 0).any()) else places[:1]
        parent, token = kept // probs.shape[1], kept % probs.shape[1]
        spans = [[*spans[i], j] for i, j in zip(parent.tolist(), token.tolist(), strict=True)]
        weight = weight[parent] * probs[:, token].T
    return list(zip(spans, weight.sum(1).tolist(), strict=True))


def _encoder(model: RealmModel) -> KnowledgeAugmentedEncoder:
    if not model.has("embedder") or not model.has("encoder"):
        raise RunError(
            "this model cannot fill masks: it lacks an embedder or an encoder", cure="Explain with the model of the pretrain stage."
        )
    return model.eval().encoder


def _distinct(fillings: Sequence[_Filled]) -> list[_Filled]:
    """Best first, each string once."""
    best: dict[tuple[str, ...], _Filled] = {}
    for filled in sorted(fillings, key=lambda f: f.rank, reverse=True):
        best.setdefault(filled.texts, filled)
    return list(best.values())


def _excluded_blocks(inputs: BlockInputs, sentence: ClozeText, targets: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """int64, ascending: live blocks that must not be retrieved."""
    store, ids = inputs.store, inputs.blocks_of_documents(documents)
    if not targets:
        return ids
    holding = [store.rows_with_sentence(hash64(filled)) for filled in sentence.filled_sentences(targets)]
    rows = np.concatenate([np.empty(0, np.int64), *holding])
    return np.union1d(ids, np.asarray(store.block_ids)[rows[store.live[rows]]])


def _assemble(
    inputs: BlockInputs,
    text: str,
    targets: tuple[str, ...],
    ids: TokenIds,
    read: _Read,
    excluded: np.ndarray,
    predictions: tuple[Prediction, ...],
) -> Explanation:
    """Put the numbers of the target wordpieces beside the candidates."""
    what = torch.tensor(ids, device=read.log_probs.device).view(1, -1, 1).expand(len(read.rows), -1, 1)
    chosen = read.log_probs.gather(2, what).squeeze(2)  # [k, m]
    candidates = document_effects(inputs.store, read.block_ids, read.log_p_z[0], chosen)
    p_y_null = candidates[NULL_INDEX].p_y_given_z
    return Explanation(text, targets, likelihood(candidates), p_y_null, tuple(excluded.tolist()), predictions, candidates)
