"""Effect of documents on a masked sentence: p(z|x), p(y|z,x), r(z) and the retrieval utility of each candidate.

Shapes: k candidates (null at 0), m mask slots, v vocabulary, n spans kept by a search. All is in the joint form, p(y|x) = sum over z of
p(z|x) p(y|z,x) with whole spans (REALM, equation 1), whatever training used."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from realm.answering.answerer import ReadBlocks
from realm.answering.cloze import ClozeText, special_ids
from realm.answering.pointing import PointedString, best_strings, point_at
from realm.answering.records import DocumentEffect, Explanation, Prediction
from realm.documents.ingest.packing import hash64
from realm.documents.store.blocks import NULL_BLOCK, BlockStore
from realm.errors import ConfigError, DataError, RunError
from realm.models import losses
from realm.models.model import RealmModel
from realm.models.types import TokenIds
from realm.search.blocks import BlockInputs
from realm.search.publishing.generation import Generation
from realm.search.relevance import weigh
from realm.search.retriever import NULL_INDEX, HybridSearch, Retriever
from realm.text.matching.answers import is_whole


def document_effects(store: BlockStore, block_ids: np.ndarray, log_p_z: Tensor, target_log_probs: Tensor) -> tuple[DocumentEffect, ...]:
    """Candidates of one sentence with their numbers, in order.

    ``block_ids`` int64 [k] are valid candidates, NULL_BLOCK first if the null document was read; log_p_z is [k], target_log_probs [k, m]
    over real slots."""
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


MAX_SPAN_WORDPIECES = 6  # wordpieces of a predicted span
NAMED = 0.5  # least probability of a name, of that of its part, which then counts for the name
BEAM_WIDTH = 24  # spans kept at each slot, at least
SPAN_SEPARATOR = " | "  # between the spans of several masks


@dataclass(frozen=True)
class _Filled:
    """A filling of the masks: wordpieces and string of each span, joint probability, and True if the strings spell the wordpieces."""

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
    generation: Generation,
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
        model: ``embedder`` scores p(z|x), ``encoder`` (or a pointing reader) gives p(y|z,x).
        generation: published, of the same corpus; its embedder and index find the candidates.
        text: a sentence in which each ``[MASK]`` stands for a whole span.
        targets: one span for each [MASK], or none: then the most probable spans of 1 to 6 wordpieces, one mask after the other.
        k: candidates, the null document included.
        exclude_documents: ids of documents never retrieved. With targets, blocks with a filled sentence are excluded too, as in training.
        top: predictions to list.
        hybrid: proposes candidates by the sentence's words too.

    Raises DataError: no [MASK], not one target for each, a target that cannot be spelled, too long a text, or an unknown document id.
    Raises ConfigError: k or top below 1. Raises RunError: the model has no embedder or no encoder."""
    if min(k, top) < 1:
        raise ConfigError(f"k = {k} and top = {top}: both must be at least 1", cure="Raise them.")
    sentence = ClozeText(inputs, text)
    if not model.has("encoder") and model.has("reader"):
        retriever = Retriever(generation.queries.embed_questions, generation.index, hybrid)
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
    predictions = tuple(Prediction(SPAN_SEPARATOR.join(f.texts), f.p) for f in found[:top])
    ids = torch.tensor([i for span in spans for i in span], device=read.log_probs.device)
    chosen = read.log_probs.gather(2, ids.view(1, -1, 1).expand(len(read.rows), -1, 1)).squeeze(2)  # [k, m]
    return _explanation(text, targets, excluded, predictions, document_effects(inputs.store, read.block_ids, read.log_p_z[0], chosen))


class _Looker:
    """Retrieves for masked inputs and reads them with their candidates."""

    def __init__(
        self,
        model: RealmModel,
        generation: Generation,
        inputs: BlockInputs,
        sentence: ClozeText,
        k: int,
        excluded: np.ndarray,
        hybrid: HybridSearch | None,
    ):
        if not model.has("embedder") or not model.has("encoder"):
            cure = "Explain with the model of the pretrain stage."
            raise RunError("this model cannot fill masks: it lacks an embedder or an encoder", cure=cure)
        self.encoder = model.eval().encoder
        self.model, self.retriever = model, Retriever(generation.queries.embed_questions, generation.index, hybrid)
        self.inputs, self.sentence, self.k, self.excluded = inputs, sentence, k, excluded

    def read(self, lengths: Sequence[int]) -> _Read:
        """Search by the published embedder, score by the live one, read by the encoder, as in training."""
        ids, positions = self.sentence.masked(lengths)
        rows, block_ids, log_p_z = _weighed(self.model, self.retriever, self.sentence, ids, self.k, self.excluded)
        where = torch.tensor([positions], device=log_p_z.device).expand(len(rows), -1) + 1  # [CLS] stands before the query
        log_probs = self.encoder.log_probs([self.inputs.joint(ids, int(row)) for row in rows], where)
        return _Read(rows, block_ids, log_p_z, log_probs.double())

    def fill(self, read: _Read, lengths: Sequence[int], top: int) -> list[_Filled]:
        """The best fillings of one masked input, best first."""
        special = special_ids(self.inputs)
        spelled = [
            self._spelled(ids, p, lengths) for ids, p in best_spans(read.log_p_z[0], read.log_probs, max(BEAM_WIDTH, 2 * top), special)
        ]
        return _distinct(spelled)

    def search_lengths(self, top: int) -> tuple[_Read, list[_Filled]]:
        """Try lengths mask by mask, without targets: the winner's input, and all fillings seen, best first."""
        trial = (1,) * self.sentence.masks  # fits: ClozeText has seen to it
        read = self.read(trial)
        seen = {trial: self.fill(read, trial, top)}
        winner = read, seen[trial][0]
        for mask in range(self.sentence.masks):
            lengths = [len(span) for span in winner[1].spans]
            for length in range(1, MAX_SPAN_WORDPIECES + 1):
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
    """Search by the published embedder, score by the live one: rows and ids of a masked input's candidates [k], log p(z|x) [1, k]."""
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
    """Explain by a reader that points: predictions are spans of the candidates, and p(y|z,x) is that of the whole span."""
    if sentence.masks != 1:
        raise DataError(f"{sentence.masks} masks, and this run's reader points at one span", cure="Put [MASK] once into the sentence.")
    inputs = sentence.inputs
    model.eval()
    ids, _ = sentence.masked([1])
    rows, block_ids, log_p_z = _weighed(model, retriever, sentence, ids, k, excluded)
    (target,) = sentence.spell(targets) if targets else ((),)
    pointed = point_at(model.reader, inputs, [ids], [target], rows[None])
    read = ReadBlocks(inputs)
    strings = whole_names(best_strings(pointed.spans.of(0), log_p_z[0], inputs, rows), inputs)
    spelled = ((string, read.span(*string.place).words) for string in strings)
    found = list(islice((one for one in spelled if is_whole(one[1])), top))
    if not targets and found:
        targets, (row, start, end) = (found[0][1],), found[0][0].place
        pointed = point_at(model.reader, inputs, [ids], [inputs.store.token_ids(row)[start:end].tolist()], rows[None])
    candidates = document_effects(inputs.store, block_ids, log_p_z[0], pointed.log_probs[0].unsqueeze(-1))
    return _explanation(text, targets, excluded, tuple(Prediction(words, string.p) for string, words in found), candidates)


def whole_names(strings: Sequence[PointedString], inputs: BlockInputs) -> list[PointedString]:
    """Count a part of a tagged name for the name, if the name is pointed at ``NAMED`` times as often: "pound" for "pound sterling"."""
    alone = {string.key: string.p for string in strings}
    mass = dict(alone)
    for part in strings:
        row, start, end = part.place
        tagged, ids = inputs.store.spans(row).tokens, inputs.store.token_ids(row)
        for first, last in tagged[(tagged[:, 0] <= start) & (end <= tagged[:, 1])].tolist():
            name = inputs.span_places.key(ids[first:last].tolist())
            if name != part.key and name in mass and alone[name] >= NAMED * part.p:
                mass[name] += mass.pop(part.key)
    return sorted((replace(string, p=mass[string.key]) for string in strings if string.key in mass), key=lambda string: -string.p)


def _explanation(
    text: str, targets: Sequence[str], excluded: np.ndarray, predictions: tuple[Prediction, ...], candidates: tuple[DocumentEffect, ...]
) -> Explanation:
    p_y = sum(candidate.p_z * candidate.p_y_given_z for candidate in candidates)
    return Explanation(text, tuple(targets), p_y, candidates[NULL_INDEX].p_y_given_z, tuple(excluded.tolist()), predictions, candidates)


def best_spans(log_p_z: Tensor, log_probs: Tensor, width: int, forbidden: Sequence[int]) -> list[tuple[TokenIds, float]]:
    """Beam search for the m wordpieces with the largest joint probability sum over z of p(z|x) prod over j of p(y_j|z,x).

    Of float64 log_p_z [k] and log_probs [k, m, v], without ``forbidden`` ids: at most ``width`` pairs (m ids, probability), best first."""
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


def _distinct(fillings: Sequence[_Filled]) -> list[_Filled]:
    """Best first, each string once."""
    best: dict[tuple[str, ...], _Filled] = {}
    for filled in sorted(fillings, key=lambda f: f.rank, reverse=True):
        best.setdefault(filled.texts, filled)
    return list(best.values())


def _excluded_blocks(inputs: BlockInputs, sentence: ClozeText, targets: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """Ids of live blocks that must not be retrieved, int64, ascending."""
    store, ids = inputs.store, inputs.blocks_of_documents(documents)
    if not targets:
        return ids
    holding = [store.rows_with_sentence(hash64(filled)) for filled in sentence.filled_sentences(targets)]
    rows = np.concatenate([np.empty(0, np.int64), *holding])
    return np.union1d(ids, np.asarray(store.block_ids)[rows[store.live[rows]]])
