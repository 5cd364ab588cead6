"""Candidates of masked sentences by the published embedder, without the documents that hold the sentence; the index's source."""

from collections.abc import Callable, Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import torch

from realm.answering.cloze import words_left
from realm.documents.store.blocks import BlockStore
from realm.errors import TrainingError
from realm.models.featurize import searched_ids
from realm.models.model import RealmModel
from realm.models.types import MaskedQuery, Sequence
from realm.recipe import PretrainConfig
from realm.search.blocks import BlockInputs
from realm.search.publishing.embedding import EmbedOptions
from realm.search.publishing.generation import Generation
from realm.search.publishing.snapshot import Snapshot
from realm.search.retriever import HybridSearch, Retrieved, Retriever
from realm.training.context import StageContext, untrained_options
from realm.training.masking.evidence import Evidence
from realm.training.refresh.index_source import STALE_REFRESHES, AsyncRefresh, IndexSource, Inline, RefreshContext, Schedule, for_all_ranks
from realm.training.refresh.refresher_process import RefresherProcess


def asked_inputs(context: StageContext, queries: SequenceOf[MaskedQuery]) -> list[Sequence]:
    """The embedder's inputs of masked sentences."""
    pointer = context.recipe.pretrain.fill == "pointer"
    return [context.inputs.featurizer.query(searched_ids(query, pointer=pointer)) for query in queries]


@dataclass(frozen=True)
class PretrainView:
    """One moment of pre-training: the live networks and the index that is searched.

    ``sentences``: their corpus; ``hybrid``: dense and sparse search of the generation, if the recipe wants both."""

    context: StageContext
    model: RealmModel
    generation: Generation
    sentences: BlockStore
    hybrid: HybridSearch | None = None

    @property
    def inputs(self) -> BlockInputs:
        return self.context.inputs

    @property
    def section(self) -> PretrainConfig:
        return self.context.recipe.pretrain

    @property
    def known(self) -> Snapshot | None:
        """The embeddings of the documents, where these stay as they are; None where they learn."""
        return self.generation.snapshot if self.section.queries_alone else None

    @torch.inference_mode()
    def retrieve(self, queries: SequenceOf[MaskedQuery], k: int = 0) -> Retrieved:
        """k candidates (0: the recipe's number) by the generation's embedder, null first, without those that hold a query's sentence.

        Raises TrainingError: the embedder has damaged weights."""
        section, k = self.section, k or self.section.candidates
        embedder = self.generation.queries
        query_emb = embedder.embed_questions(asked_inputs(self.context, queries))
        if not np.isfinite(query_emb).all():
            problem = f"the query embedder of index generation {self.generation.number} gives values that are not finite"
            raise TrainingError(problem, cure="Its weights are damaged: lower the learning rate and train the stage again.")
        retriever = Retriever(lambda emb: emb, self.generation.index, self.hybrid)
        texts = words_left(self.sentences, queries) if self.hybrid is not None else [""] * len(queries)
        exclude = [query.excluded for query in queries]
        return retriever.retrieve(query_emb, k, null=section.null, exclude=exclude, texts=texts, proposals=section.proposals)


def holding(view: PretrainView, queries: SequenceOf[MaskedQuery], retrieved: Retrieved) -> np.ndarray:
    """bool [b, k]: which candidates are documents that hold the hidden span, compared as answers are."""
    places, rows = view.inputs.span_places, view.inputs.rows(retrieved.block_ids)
    held = np.zeros(rows.shape, bool)
    for i, j in np.argwhere(retrieved.real).tolist():
        held[i, j] = bool(places.places(int(rows[i, j]), queries[i].targets))
    return held


@torch.inference_mode()
def with_evidence(view: PretrainView, queries: SequenceOf[MaskedQuery], retrieved: Retrieved, evidence: Evidence) -> Retrieved:
    """The candidates, the last one replaced by a block that states what is hidden if none of them does.

    Of several it is the one nearest to the sentence; a sentence without evidence keeps its candidates."""
    ids, valid, scores = retrieved.block_ids.copy(), retrieved.valid.copy(), retrieved.scores.copy()
    for i in np.flatnonzero(~holding(view, queries, retrieved).any(1)).tolist():
        found = _evidence(view, queries[i], evidence)
        if len(found):
            snapshot = view.generation.snapshot
            vectors = np.asarray(snapshot.vectors[np.searchsorted(snapshot.block_ids, found)], np.float32)
            near = vectors @ view.generation.queries.embed_questions(asked_inputs(view.context, [queries[i]]))[0]
            ids[i, -1], valid[i, -1], scores[i, -1] = found[near.argmax()], True, near.max()
    return Retrieved(ids, valid, scores)


def _evidence(view: PretrainView, query: MaskedQuery, evidence: Evidence) -> np.ndarray:
    """int64 [n]: ids of the blocks in the index that state what is hidden of a sentence and may be retrieved for it."""
    store = view.inputs.store
    rows = [row for row in _stating(view, query, evidence) if view.inputs.span_places.places(row, query.targets)]
    found = np.asarray(store.block_ids)[np.array(rows, np.int64)]
    return found[np.isin(found, view.generation.snapshot.block_ids) & ~np.isin(found, query.excluded)]


def _stating(view: PretrainView, query: MaskedQuery, evidence: Evidence) -> list[int]:
    """Rows that are evidence for a sentence; for a question, the block of the sentence that it was made for."""
    if query.positions:
        return evidence.rows(query)
    store = view.inputs.store
    return store.rows_of(np.array([query.origin])).tolist() if view.sentences is store else []


def index_source(context: StageContext, protect: Callable[[], frozenset[int]]) -> IndexSource:
    """The source of indexes that ``pretrain.refresh`` names; on several ranks the first one's for all."""
    section, refresher = context.recipe.pretrain, context.recipe.refresher
    every = 0 if section.refresh == "frozen" else section.refresh_every
    schedule = Schedule(section.steps, every, STALE_REFRESHES * section.refresh_every)
    options = untrained_options(context) if refresher.int8 and section.queries_alone else EmbedOptions(bf16=context.recipe.run.bf16)
    refresh = RefreshContext(context.paths, context.inputs, context.device, schedule, protect, options, context.embedded)
    if section.refresh not in ("process", "external"):
        return for_all_ranks(Inline(refresh))
    child = RefresherProcess(context.paths, refresher.threads, context.device.type) if section.refresh == "process" else None
    return for_all_ranks(AsyncRefresh(refresh, child))
