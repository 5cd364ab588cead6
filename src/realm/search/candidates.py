"""The blocks that a reader reads: the dense retriever's, alone or with sparse search, with a gradient in their scores.

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
from realm.search.hybrid import HybridSearch, Proposals
from realm.search.index.mips import MipsIndex
from realm.search.links import FIRST, LinkedPages, merged
from realm.search.publishing.snapshot import Snapshot
from realm.search.retriever import Retriever
from realm.search.sparse import open_sparse
from realm.timing import charged

A_POINT = 0.35
"""What a point of BM25 adds to the logarithm of how likely a block is, where BM25 says it: .3 and .4 suit Korean and Chinese questions."""
WIDEST = 8
"""Times the candidates that are asked for, to which a search is widened where blocks have the same text."""
EVEN = 1.0
"""Weight of the sparse score where nothing says another."""


@dataclass(frozen=True)
class Candidates:
    """Rows of the store [b, k] (NO_ROW where there is none), best first, and their scores [b, k] (0 where there is none).

    Hybrid search orders by its sum, so that ``scores``, the retriever's own, need not fall; ``proposals`` say both.

    k is the number asked for, or that of the documents where there are fewer.
    ``embed_seconds`` is how long embedding the queries took: 0 for a source that embeds nothing. ``query_emb`` are the embeddings [b, d]
    with their gradient; None from such a source. ``via`` [b, k] is the row of the block whose link led to a candidate, NO_ROW where the
    question found it itself; None from a source that follows no links. ``asked`` are the wordpieces with which each candidate is then read.
    """

    rows: np.ndarray
    scores: Tensor
    embed_seconds: float = 0.0
    query_emb: Tensor | None = None
    proposals: Proposals | None = None
    via: np.ndarray | None = None
    asked: SequenceOf[SequenceOf[SequenceOf[int]]] = ()

    def best(self, k: int) -> "Candidates":
        via, asked = None if self.via is None else self.via[:, :k], [one[:k] for one in self.asked]
        return replace(self, rows=self.rows[:, :k], scores=self.scores[:, :k], via=via, asked=asked)

    def kept(self, keep: np.ndarray, k: int) -> "Candidates":
        """The first k candidates for which ``keep`` (bool [b, c]) is true; of what a search found itself."""
        order = np.argsort(~keep, axis=1, kind="stable")[:, :k]
        there = torch.from_numpy(np.take_along_axis(keep, order, 1)).to(self.scores.device)
        rows = np.where(there.cpu().numpy(), np.take_along_axis(self.rows, order, 1), NO_ROW)
        scores = self.scores.gather(1, torch.from_numpy(order).to(self.scores.device)).masked_fill(~there, 0.0)
        known = self.proposals
        parts = {} if known is None else {name: np.take_along_axis(values, order, 1) for name, values in vars(known).items()}
        return replace(self, rows=rows, scores=scores, proposals=Proposals(**parts) if parts else None)

    def best_with(self, right: Tensor, k: int) -> "Candidates":
        """The k best; where none of them is right, the best right one takes the last one's place.

        Args:
            right: bool [b, c], on the CPU.
        """
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
    """How blocks are found, as a recipe's [retrieval] says it.

    Args:
        kind: what proposes: dense, sparse or hybrid.
        weight: of BM25 against the embedder in hybrid search.
        hops: links that are followed from what a question finds, 0 or 1; in training none.
        relevance: whose the scores are, embedder or sparse; through the latter nothing learns. Dense search alone has the embedder's.
    """

    kind: str
    weight: float = EVEN
    hops: int = 0
    relevance: str = "embedder"

    @classmethod
    def stated(cls, recipe: Recipe, weight: float, kind: str = "") -> "Searching":
        """What the recipe says, at this weight; by another kind of search than its own where one is given."""
        asked = recipe.retrieval
        return cls(kind or recipe.retrieval_kind, weight, asked.hops, asked.relevance)


class Source(nn.Module):
    """Where candidates come from."""

    def forward(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """The k best live blocks for each question; the gradient of a score reaches what learns in the source.

        Args:
            texts: b questions as written.
            questions: their wordpieces in the corpus's vocabulary.
            k: candidates, no null document; fewer where there are fewer.
        """
        raise NotImplementedError


class DenseCandidates(Source):
    """The live question embedder over the frozen document side: its vectors and their index stay as they were published.

    Args:
        embedder: embeds questions; its gradient comes through the scores.
        snapshot: the published embeddings of the documents.
        index: the search over them.
        inputs: corpus and featuriser.
        exclude: int64 [m], ids of blocks that no question gets; None: every live block may be a candidate.

    Attributes:
        hops: links that are followed from what a question finds, 0 or 1; in training mode none.
    """

    hops = 0

    def __init__(self, embedder: Embedder, snapshot: Snapshot, index: MipsIndex, inputs: BlockInputs, exclude: np.ndarray | None = None):
        super().__init__()
        self.embedder = embedder
        self.snapshot = snapshot
        self.index = index
        self.inputs = inputs
        self.exclude = exclude
        self._linked: LinkedPages | None = None

    def forward(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """Find the k best blocks of different texts for each question and, with ``hops``, what links lead to from there (``links.py``).

        Arguments as for ``direct``.
        """
        if not self.hops or self.training:
            return self._different(texts, questions, k)
        k = min(k, len(self.index))
        found = self._different(texts, questions, max(k, FIRST))
        scores, rows = found.scores.detach().float().cpu().numpy(), found.rows
        pages = self._pages()
        reached = pages.follow(texts, questions, rows[:, :FIRST], scores[:, :FIRST], self.embedded)
        chosen = [merged(rows[i], scores[i], reached[i], k) for i in range(len(texts))]
        rows, values, via = (np.stack(part) for part in zip(*chosen, strict=True))
        asked = [[pages.extended(texts[i], questions[i], row) for row in via[i].tolist()] for i in range(len(texts))]
        return Candidates(rows, torch.from_numpy(values).to(found.scores), found.embed_seconds, found.query_emb, via=via, asked=asked)

    def _different(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """As ``direct``, of blocks that several documents hold word for word the best one; searched wider where they crowd others out."""
        width = k
        while True:
            found = self.direct(texts, questions, width)
            first = np.stack([self._first_of_each(rows) for rows in found.rows.tolist()])
            if width == k and first[found.rows != NO_ROW].all():
                return found
            width *= 2
            if (first.sum(1) >= k).all() or width > WIDEST * k or found.rows.shape[1] == len(self.index):
                return found.kept(first, k)

    def _first_of_each(self, rows: SequenceOf[int]) -> list[bool]:
        """Whether a row is there, and its title and text are those of none before."""
        store, seen = self.inputs.store, set()
        first = []
        for row in rows:
            text = (store.title_ids(row).tobytes(), store.token_ids(row).tobytes()) if row != NO_ROW else None
            first.append(text is not None and text not in seen)
            seen.add(text)
        return first

    def _pages(self) -> LinkedPages:
        """What follows links over the generation that is searched now; fine-tuning may put another in its place."""
        if self._linked is None or self._linked.snapshot is not self.snapshot:
            self._linked = LinkedPages(self.inputs, self.snapshot, self.exclude)
        return self._linked

    def direct(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """The k best live blocks for each question; the gradient of a score reaches the embedder through the question's side.

        Args:
            texts: b questions as written; not used here (BM25 reads them).
            questions: their wordpieces.
            k: candidates, no null document; fewer where the index has fewer.
        """
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
        """Embeddings [b, d] of questions, of their wordpieces."""
        return self.embedder.embed_queries([self.inputs.featurizer.query(ids) for ids in questions])

    def _found(
        self, query_emb: Tensor, texts: SequenceOf[str], k: int, exclude: list[np.ndarray] | None
    ) -> tuple[np.ndarray, Proposals | None]:
        """Block ids int64 [b, k], best first, NULL_BLOCK where there is none; and what hybrid search knows of them."""
        found = Retriever(lambda emb: emb, self.index).retrieve(query_emb.detach().float().cpu(), k, null=False, exclude=exclude)
        return found.block_ids, None


class HybridCandidates(DenseCandidates):
    """Blocks that sparse search, or dense and sparse search, propose, in the order of their sum; scored by the embedder
    alone, as dense ones are, or by BM25 alone.

    Args:
        embedder, snapshot, index, inputs, exclude: as for ``DenseCandidates``.
        directory: the run's ``index/``, with the sparse index beside the generation; what is missing there is made at the first search.
        how: blocks are found.
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
        """Both searches over the generation that is searched now; fine-tuning may put another in its place."""
        if self._search is None or self._search.snapshot is not self.snapshot:
            number, ids = self.snapshot.manifest.generation, np.asarray(self.snapshot.block_ids)
            sparse = open_sparse(self.directory, number, ids, self.inputs.store)
            self._search = HybridSearch(self.snapshot, self.index, sparse, weight=self.weight, dense=self.kind != "sparse")
        return self._search

    def _relevance(self, query_emb: Tensor, vectors: Tensor, proposals: Proposals | None) -> Tensor:
        if self.relevance == "embedder" or proposals is None:
            return super()._relevance(query_emb, vectors, proposals)
        return A_POINT * torch.from_numpy(proposals.sparse).to(query_emb)

    def reweigh(self, weight: float) -> None:
        """Give BM25 another weight from the next search on."""
        self.weight, self.search.weight = weight, weight

    @torch.inference_mode()
    def rows_by_weight(
        self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], weights: SequenceOf[float], k: int
    ) -> np.ndarray:
        """Rows int64 [w, b, k], NO_ROW where there is none, that would be found at each of w weights; arguments as for ``forward``."""
        left_out = None if self.exclude is None else [self.exclude] * len(texts)
        ids = self.search.search_by_weight(self.embedded(questions), texts, weights, k, left_out)
        rows = np.full(ids.shape, NO_ROW, np.int64)
        rows[ids != NULL_BLOCK] = self.inputs.store.rows_of(ids[ids != NULL_BLOCK])
        return rows

    def _found(
        self, query_emb: Tensor, texts: SequenceOf[str], k: int, exclude: list[np.ndarray] | None
    ) -> tuple[np.ndarray, Proposals | None]:
        proposals = self.search.search(query_emb, texts, k, exclude)
        return proposals.block_ids, proposals


def search_weight(stated: float | str, facts: Mapping[str, Any]) -> float:
    """The weight of BM25 that the recipe states, or else ("auto") what was fitted when a stage ended, or else ``EVEN``.

    Args:
        stated: [retrieval] weight.
        facts: of the stage.
    """
    return float(facts.get("retrieval_weight", EVEN)) if isinstance(stated, str) else stated


def make_source(
    embedder: Embedder,
    snapshot: Snapshot,
    index: MipsIndex,
    inputs: BlockInputs,
    directory: Path,
    how: Searching,
    exclude: np.ndarray | None = None,
) -> DenseCandidates:
    """The source that finds blocks in this way.

    Args:
        embedder, snapshot, index, inputs, exclude: as for ``DenseCandidates``.
        directory: the run's ``index/``.
        how: blocks are found.
    """
    parts = embedder, snapshot, index, inputs, exclude
    source = DenseCandidates(*parts) if how.kind == "dense" else HybridCandidates(*parts, directory=directory, how=how)
    source.hops = how.hops
    return source
