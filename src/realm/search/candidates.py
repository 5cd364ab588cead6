"""Blocks for a reader: dense candidates, alone or with sparse search, with a gradient in their scores.

Retrievers to compare with are in ``training/baselines/retrievers.py``.
"""

import time
from collections.abc import Mapping, Sequence as SequenceOf
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from realm.documents.store.blocks import NULL_BLOCK
from realm.models import losses
from realm.models.embedder import Embedder
from realm.recipe import Recipe
from realm.search.blocks import NO_ROW, BlockInputs
from realm.search.copies import groups, newest
from realm.search.hybrid import HybridSearch, Proposals
from realm.search.index.mips import MipsIndex
from realm.search.links import LINK_SOURCES, LinkedPages, merged
from realm.search.publishing.snapshot import Snapshot
from realm.search.retriever import Retriever
from realm.search.sparse import open_sparse
from realm.timing import charged

BM25_LOGIT_SCALE = 0.35  # natural logarithms per point of BM25, if BM25 gives the relevance: .3 and .4 suit Korean and Chinese questions
MAX_WIDENING = 8  # of a search in which copies of a text crowd others out
DEFAULT_BM25_WEIGHT = 1.0  # against the dense score


@dataclass(frozen=True)
class Candidates:
    """Rows of the store [b, k] (NO_ROW if missing), best first, and their scores [b, k] (0 if missing).

    k is the number asked for, or that of the documents if there are fewer. Hybrid search orders by its sum, so that ``scores``, the
    retriever's own, need not fall; ``proposals`` have both.

    >>> found = Candidates(np.array([[4, 2, NO_ROW]]), torch.tensor([[2.0, 1.0, 0.0]]))
    >>> found.valid
    tensor([[ True,  True, False]])
    """

    rows: np.ndarray
    scores: Tensor
    embed_seconds: float = 0.0  # 0 if nothing is embedded
    query_emb: Tensor | None = None  # [b, d] with their gradient; None from a source that embeds nothing
    proposals: Proposals | None = None
    via: np.ndarray | None = None  # int64 [b, k], row whose link led to a candidate, else NO_ROW; None if no links are followed
    asked: SequenceOf[SequenceOf[SequenceOf[int]]] = ()  # wordpieces with which each candidate is then read
    copies: SequenceOf[Mapping[int, SequenceOf[int]]] = ()  # for each question the rows that a row stands for, as copies of its text

    def best(self, k: int) -> "Candidates":
        via, asked = None if self.via is None else self.via[:, :k], [one[:k] for one in self.asked]
        return replace(self, rows=self.rows[:, :k], scores=self.scores[:, :k], via=via, asked=asked)

    def taken(self, places: SequenceOf[SequenceOf[int]], k: int) -> "Candidates":
        """Take the candidates at the first k places of each question, without links."""
        order = np.array([[*found[:k], *[-1] * (k - len(found))] for found in places], np.int64).reshape(len(places), k)
        there, at = torch.from_numpy(order >= 0).to(self.scores.device), np.maximum(order, 0)
        rows = np.where(order >= 0, np.take_along_axis(self.rows, at, 1), NO_ROW)
        scores = self.scores.gather(1, torch.from_numpy(at).to(self.scores.device)).masked_fill(~there, 0.0)
        known = self.proposals
        parts = {} if known is None else {name: np.take_along_axis(values, at, 1) for name, values in vars(known).items()}
        return replace(self, rows=rows, scores=scores, proposals=Proposals(**parts) if parts else None)

    def best_with(self, right: Tensor, k: int) -> "Candidates":
        """The k best; if none of them is right (bool [b, c], on the CPU), the best right one replaces the last."""
        count, width = self.rows.shape
        order = torch.arange(min(k, width)).repeat(count, 1)
        missed = right.any(1) & ~right[:, :k].any(1)
        order[missed, -1] = right.int().argmax(1)[missed]
        rows = np.take_along_axis(self.rows, order.numpy(), 1)
        return replace(self, rows=rows, scores=self.scores.gather(1, order.to(self.scores.device)))

    @property
    def valid(self) -> Tensor:
        return torch.from_numpy(self.rows != NO_ROW).to(self.scores.device)


@dataclass(frozen=True)
class Searching:
    """The way blocks are found, by [retrieval] of a recipe."""

    kind: str  # dense, sparse or hybrid proposals
    weight: float = DEFAULT_BM25_WEIGHT  # of BM25 against the embedder in hybrid search
    hops: int = 0  # links followed, 0 or 1; in training none
    relevance: str = "embedder"  # owner of the scores, embedder or sparse; nothing learns through the latter

    @classmethod
    def stated(cls, recipe: Recipe, weight: float, kind: str = "") -> "Searching":
        """The recipe's way, with this weight, and another kind of search if one is given."""
        asked = recipe.retrieval
        return cls(kind or recipe.retrieval_kind, weight, asked.hops, asked.relevance)


class Source(nn.Module):
    """Source of candidates."""

    def forward(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """The k best live blocks, or fewer, for b questions, as texts and wordpieces; scores have the source's gradient."""
        raise NotImplementedError


class DenseCandidates(Source):
    """The live question embedder over the frozen document side: vectors and index stay as they were published.

    Args:
        embedder: embeds questions; its gradient comes through the scores.
        snapshot, index: published embeddings of the documents, and the search over them.
        inputs: corpus and featuriser.
        exclude: int64 [m], ids of blocks never returned; None: every live block may be a candidate.
    """

    hops = 0  # links followed from the found blocks, 0 or 1; in training mode none

    def __init__(self, embedder: Embedder, snapshot: Snapshot, index: MipsIndex, inputs: BlockInputs, exclude: np.ndarray | None = None):
        super().__init__()
        self.embedder = embedder
        self.snapshot = snapshot
        self.index = index
        self.inputs = inputs
        self.exclude = exclude
        self._linked: LinkedPages | None = None

    def forward(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """The k best blocks of different texts for each question and, with ``hops``, those that links lead to (``links.py``)."""
        if not self.hops or self.training:
            return self._different(texts, questions, k)
        k = min(k, len(self.index))
        found = self._different(texts, questions, max(k, LINK_SOURCES))
        scores, rows = found.scores.detach().float().cpu().numpy(), found.rows
        pages = self._pages()
        reached = pages.follow(texts, questions, rows[:, :LINK_SOURCES], scores[:, :LINK_SOURCES], self.embedded)
        chosen = [merged(rows[i], scores[i], reached[i], k) for i in range(len(texts))]
        rows, values, via = (np.stack(part) for part in zip(*chosen, strict=True))
        asked = [[pages.extended(texts[i], questions[i], row) for row in via[i].tolist()] for i in range(len(texts))]
        return Candidates(rows, torch.from_numpy(values).to(found.scores), found.embed_seconds, found.query_emb, via=via, asked=asked)

    def _different(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """``direct`` with one block of each text alone; the search widens if copies crowd others out."""
        width = k if self.training else 2 * k
        while True:
            found = self.direct(texts, questions, width)
            rows = [[row for row in one if row != NO_ROW] for one in found.rows.tolist()]
            apart = [self._apart(text, one) for text, one in zip(texts, rows, strict=True)]
            width *= 2
            if min(map(len, apart)) >= k or width > MAX_WIDENING * k or found.rows.shape[1] == len(self.index):
                chosen = found.taken([[first for first, *_ in one] for one in apart], min(k, found.rows.shape[1]))
                named = [{one[at]: [one[other] for other in more] for at, *more in parts} for parts, one in zip(apart, rows, strict=True)]
                return replace(chosen, copies=named)

    def _apart(self, text: str, rows: SequenceOf[int]) -> list[list[int]]:
        """Positions of rows grouped by text, the one to read first: in training of blocks alike, else of copies and versions."""
        store = self.inputs.store
        if self.training:
            first: dict[tuple[bytes, bytes], list[int]] = {}
            for at, row in enumerate(rows):
                first.setdefault((store.title_ids(row).tobytes(), store.token_ids(row).tobytes()), []).append(at)
            return list(first.values())
        found = groups([store.token_ids(row) for row in rows])
        for group in found:
            if len(group) > 1:
                group.insert(0, group.pop(newest(text, [store.block(rows[at]) for at in group])))
        return found

    def _pages(self) -> LinkedPages:
        """Links over the current generation, which fine-tuning may replace."""
        if self._linked is None or self._linked.snapshot is not self.snapshot:
            self._linked = LinkedPages(self.inputs, self.snapshot, self.exclude)
        return self._linked

    def direct(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """The k best live blocks without links; arguments as for ``Source.forward``."""
        started = time.perf_counter()
        k = min(k, len(self.index))  # a beam wider than the corpus would score nothing but padding
        with charged("forward"):
            query_emb = self.embedded(questions)
        embedded = time.perf_counter() - started
        # The vector that searches is the vector that scores, dropout included, as in the released code.
        left_out = None if self.exclude is None else [self.exclude] * len(query_emb)
        with charged("search"):
            block_ids, proposals = self._found(query_emb, texts, k, left_out)
        valid = block_ids != NULL_BLOCK
        rows = np.full(block_ids.shape, NO_ROW, np.int64)
        rows[valid] = self.inputs.store.rows_of(block_ids[valid])
        places = np.searchsorted(self.snapshot.block_ids, np.maximum(block_ids, self.snapshot.block_ids[0]))
        vectors = torch.from_numpy(np.asarray(self.snapshot.vectors[places], np.float32)).to(query_emb)
        scores = self._relevance(query_emb, vectors, proposals)
        return Candidates(rows, scores.masked_fill(torch.from_numpy(rows == NO_ROW).to(scores.device), 0.0), embedded, query_emb, proposals)

    def _relevance(self, query_emb: Tensor, vectors: Tensor, proposals: Proposals | None) -> Tensor:
        """Scores [b, k] of candidates with these vectors [b, k, d]."""
        return losses.relevance_scores(query_emb, vectors)

    def embedded(self, questions: SequenceOf[SequenceOf[int]]) -> Tensor:
        """Embeddings [b, d] of questions given as wordpieces."""
        return self.embedder.embed_queries([self.inputs.featurizer.query(ids) for ids in questions])

    def _found(
        self, query_emb: Tensor, texts: SequenceOf[str], k: int, exclude: list[np.ndarray] | None
    ) -> tuple[np.ndarray, Proposals | None]:
        """Block ids int64 [b, k], best first, NULL_BLOCK if missing, and the proposals of hybrid search."""
        found = Retriever(lambda emb: emb, self.index).retrieve(_host(query_emb), k, null=False, exclude=exclude)
        return found.block_ids, None


class HybridCandidates(DenseCandidates):
    """Blocks proposed by sparse, or by dense and sparse search, ordered by their sum; scored by the embedder or by BM25 alone.

    ``directory`` is the run's ``index/``, with the sparse index in the generation; missing parts are built at the first search.
    """

    def __init__(
        self,
        embedder: Embedder,
        snapshot: Snapshot,
        index: MipsIndex,
        inputs: BlockInputs,
        exclude: np.ndarray | None = None,
        *,
        directory: Path,
        how: Searching,
    ):
        super().__init__(embedder, snapshot, index, inputs, exclude)
        self.directory = directory
        self.kind, self.weight, self.relevance = how.kind, how.weight, how.relevance
        self._search: HybridSearch | None = None

    @property
    def search(self) -> HybridSearch:
        """Both searches over the current generation, which fine-tuning may replace."""
        if self._search is None or self._search.snapshot is not self.snapshot:
            number, ids = self.snapshot.manifest.generation, np.asarray(self.snapshot.block_ids)
            sparse = open_sparse(self.directory, number, ids, self.inputs.store)
            self._search = HybridSearch(self.snapshot, self.index, sparse, weight=self.weight, dense=self.kind != "sparse")
        return self._search

    def _relevance(self, query_emb: Tensor, vectors: Tensor, proposals: Proposals | None) -> Tensor:
        if self.relevance == "embedder" or proposals is None:
            return super()._relevance(query_emb, vectors, proposals)
        return BM25_LOGIT_SCALE * torch.from_numpy(proposals.sparse).to(query_emb)

    def reweigh(self, weight: float) -> None:
        """Change BM25's weight from the next search on."""
        self.weight, self.search.weight = weight, weight

    @torch.inference_mode()
    def rows_by_weight(
        self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], weights: SequenceOf[float], k: int
    ) -> np.ndarray:
        """Rows int64 [w, b, k] found at each of w weights, NO_ROW if missing; arguments as for ``forward``."""
        left_out = None if self.exclude is None else [self.exclude] * len(texts)
        ids = self.search.search_by_weight(_host(self.embedded(questions)), texts, weights, k, left_out)
        rows = np.full(ids.shape, NO_ROW, np.int64)
        rows[ids != NULL_BLOCK] = self.inputs.store.rows_of(ids[ids != NULL_BLOCK])
        return rows

    def _found(
        self, query_emb: Tensor, texts: SequenceOf[str], k: int, exclude: list[np.ndarray] | None
    ) -> tuple[np.ndarray, Proposals | None]:
        proposals = self.search.search(_host(query_emb), texts, k, exclude)
        return proposals.block_ids, proposals


def _host(vectors: Tensor) -> np.ndarray:
    return vectors.detach().float().cpu().numpy()


def search_weight(stated: float | str, facts: Mapping[str, Any]) -> float:
    """BM25's weight: stated by the recipe, or ("auto") fitted at the end of the stage with these facts, or the default."""
    return float(facts.get("retrieval_weight", DEFAULT_BM25_WEIGHT)) if isinstance(stated, str) else stated


def make_source(
    embedder: Embedder,
    snapshot: Snapshot,
    index: MipsIndex,
    inputs: BlockInputs,
    directory: Path,
    how: Searching,
    exclude: np.ndarray | None = None,
) -> DenseCandidates:
    """Source for this way of searching; arguments as for the two classes."""
    parts = embedder, snapshot, index, inputs, exclude
    source = DenseCandidates(*parts) if how.kind == "dense" else HybridCandidates(*parts, directory=directory, how=how)
    source.hops = how.hops
    return source
