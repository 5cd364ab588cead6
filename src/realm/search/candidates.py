"""Blocks for a reader: dense candidates, alone or with sparse search; copies of one text among them.

With a gradient in their scores, and retrievers to compare with: ``training/beams.py`` and ``training/baselines/retrievers.py``."""

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Sequence as SequenceOf
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from realm.documents.store.blocks import NULL_BLOCK, Block
from realm.models.types import Embedding
from realm.recipe import Recipe
from realm.search.blocks import NO_ROW, BlockInputs
from realm.search.index.mips import MipsIndex
from realm.search.links import LINK_SOURCES, LinkedPages, merged
from realm.search.publishing.snapshot import Snapshot
from realm.search.retriever import HybridSearch, Proposals, Retriever
from realm.search.sparse import open_sparse
from realm.text.words import words

SEQUENCE = 5  # wordpieces that follow one another
SHARED = 0.6  # of the shorter block's sequences: a larger share is one text


def groups(texts: Sequence[np.ndarray]) -> list[list[int]]:
    """Positions of texts (wordpieces, int [n] each) grouped by the first that each is a copy or a version of.

    >>> groups([np.arange(30), np.arange(50, 70), np.arange(2, 31)])
    [[0, 2], [1]]
    """
    found: list[list[int]] = []
    holders: dict[bytes, list[int]] = {}  # groups by the sequences of their first
    sizes: list[int] = []
    for position, text in enumerate(texts):
        data, size = text.tobytes(), text.itemsize * min(SEQUENCE, max(1, len(text)))
        sequences = {data[at : at + size] for at in range(0, max(1, len(data) - size + 1), text.itemsize)}
        shared = Counter(group for sequence in holders.keys() & sequences for group in holders[sequence])
        same = next((group for group, count in shared.most_common(1) if count >= SHARED * min(len(sequences), sizes[group])), None)
        if same is not None:
            found[same].append(position)
            continue
        for sequence in sequences:
            holders.setdefault(sequence, []).append(len(found))
        found.append([position])
        sizes.append(len(sequences))
    return found


def newest(question: str, blocks: Sequence[Block]) -> int:
    """Position of the block among copies whose file changed last, the first of those; but what the title of the best, which is the first,
    shares with the question, the title of the newest shares, too: who asks for a version gets it."""
    asked = set(words(question)) & set(words(blocks[0].full_title))
    meant = [at for at, block in enumerate(blocks) if asked <= set(words(block.full_title))]
    return max(meant, key=lambda at: _changed(blocks[at].source))


def _changed(source: str) -> float:
    """The time at which a source changed last; 0 where it is no file here."""
    try:
        return os.stat(source).st_mtime
    except (OSError, ValueError):
        return 0.0


BM25_LOGIT_SCALE = 0.35  # natural logarithms per point of BM25, if BM25 gives the relevance: .3 and .4 suit Korean and Chinese questions
MAX_WIDENING = 8  # of a search in which copies of a text crowd others out


@dataclass(frozen=True)
class Candidates:
    """Rows of the store [b, k] (NO_ROW if missing), best first, and their scores [b, k] (0 if missing).

    k is the number asked for, or that of the documents if there are fewer. Hybrid search orders by its sum, so that ``scores``, the
    retriever's own, need not fall; ``proposals`` have both.

    >>> found = Candidates(np.array([[4, 2, NO_ROW]]), np.array([[2.0, 1.0, 0.0]]))
    >>> found.valid
    array([[ True,  True, False]])
    """

    rows: np.ndarray
    scores: np.ndarray  # float32
    embed_seconds: float = 0.0  # 0 if nothing is embedded
    proposals: Proposals | None = None
    via: np.ndarray | None = None  # int64 [b, k], row whose link led to a candidate, else NO_ROW; None if no links are followed
    asked: SequenceOf[SequenceOf[SequenceOf[int]]] = ()  # wordpieces with which each candidate is then read
    copies: SequenceOf[Mapping[int, SequenceOf[int]]] = ()  # for each question the rows that a row stands for, as copies of its text

    def taken(self, places: SequenceOf[SequenceOf[int]], k: int) -> "Candidates":
        """Take the candidates at the first k places of each question, without links."""
        order = np.array([[*found[:k], *[-1] * (k - len(found))] for found in places], np.int64).reshape(len(places), k)
        there, at = order >= 0, np.maximum(order, 0)
        rows = np.where(there, np.take_along_axis(self.rows, at, 1), NO_ROW)
        scores = np.where(there, np.take_along_axis(self.scores, at, 1), np.float32(0))
        known = self.proposals
        parts = {} if known is None else {name: np.take_along_axis(values, at, 1) for name, values in vars(known).items()}
        return replace(self, rows=rows, scores=scores, proposals=Proposals(**parts) if parts else None)

    @property
    def valid(self) -> np.ndarray:
        return self.rows != NO_ROW


@dataclass(frozen=True)
class Searching:
    """The way blocks are found, by [retrieval] of a recipe."""

    kind: str  # dense, sparse or hybrid proposals
    weight: float = 1.0  # of BM25 against the embedder in hybrid search
    hops: int = 0  # links followed, 0 or 1; in training none
    relevance: str = "embedder"  # owner of the scores, embedder or sparse; nothing learns through the latter

    @classmethod
    def stated(cls, recipe: Recipe, kind: str = "") -> "Searching":
        """The recipe's way, with another kind of search if one is given."""
        asked = recipe.retrieval
        return cls(kind or recipe.retrieval_kind, asked.weight, asked.hops, asked.relevance)


class Source(Protocol):
    """Source of candidates."""

    def find(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """The k best live blocks, or fewer, for b questions, as texts and wordpieces."""
        ...


class DenseCandidates:
    """A question embedder over the frozen document side: vectors and index stay as they were published.

    Args:
        embedder: embeds questions.
        snapshot, index: published embeddings of the documents, and the search over them.
        inputs: corpus and featuriser.
        exclude: int64 [m], ids of blocks never returned; None: every live block may be a candidate."""

    hops = 0  # links followed from the found blocks, 0 or 1

    def __init__(self, embedder: Embedding, snapshot: Snapshot, index: MipsIndex, inputs: BlockInputs, exclude: np.ndarray | None = None):
        self.embedder = embedder
        self.snapshot = snapshot
        self.index = index
        self.inputs = inputs
        self.exclude = exclude
        self._linked: LinkedPages | None = None

    def find(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """The k best blocks of different texts for each question and, with ``hops``, those that links lead to (``links.py``)."""
        started = time.perf_counter()
        query_emb = self.embedded(questions)
        seconds = time.perf_counter() - started
        if not self.hops:
            return replace(self.different(texts, query_emb, k), embed_seconds=seconds)
        k = min(k, len(self.index))
        found = self.different(texts, query_emb, max(k, LINK_SOURCES))
        scores, rows = found.scores, found.rows
        pages = self._pages()
        reached = pages.follow(texts, questions, rows[:, :LINK_SOURCES], scores[:, :LINK_SOURCES], self.embedded)
        chosen = [merged(rows[i], scores[i], reached[i], k) for i in range(len(texts))]
        rows, values, via = (np.stack(part) for part in zip(*chosen, strict=True))
        asked = [[pages.extended(texts[i], questions[i], row) for row in via[i].tolist()] for i in range(len(texts))]
        return Candidates(rows, values, seconds, via=via, asked=asked)

    def different(self, texts: SequenceOf[str], query_emb: np.ndarray, k: int, *, learning: bool = False) -> Candidates:
        """``near`` with one block of each text alone; the search widens if copies crowd others out.

        Texts are one if they are copies or versions; for who learns, if they are alike."""
        width = k if learning else 2 * k
        while True:
            found = self.near(texts, query_emb, width)
            rows = [[row for row in one if row != NO_ROW] for one in found.rows.tolist()]
            apart = [self._apart(text, one, learning) for text, one in zip(texts, rows, strict=True)]
            width *= 2
            if min(map(len, apart)) >= k or width > MAX_WIDENING * k or found.rows.shape[1] == len(self.index):
                chosen = found.taken([[first for first, *_ in one] for one in apart], min(k, found.rows.shape[1]))
                named = [{one[at]: [one[other] for other in more] for at, *more in parts} for parts, one in zip(apart, rows, strict=True)]
                return replace(chosen, copies=named)

    def _apart(self, text: str, rows: SequenceOf[int], learning: bool) -> list[list[int]]:
        """Positions of rows grouped by text, the one to read first."""
        store = self.inputs.store
        if learning:
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
        """The k best live blocks without links, copies of a text included; arguments as for ``find``."""
        return self.near(texts, self.embedded(questions), k)

    def near(self, texts: SequenceOf[str], query_emb: np.ndarray, k: int) -> Candidates:
        """The k best live blocks for b questions with these embeddings [b, d], copies of a text included."""
        k = min(k, len(self.index))  # a beam wider than the corpus would score nothing but padding
        left_out = None if self.exclude is None else [self.exclude] * len(query_emb)
        block_ids, proposals = self._found(query_emb, texts, k, left_out)
        valid = block_ids != NULL_BLOCK
        rows = np.full(block_ids.shape, NO_ROW, np.int64)
        rows[valid] = self.inputs.store.rows_of(block_ids[valid])
        scores = self.bm25_relevance(proposals)
        if scores is None:
            scores = np.einsum("bd,bkd->bk", query_emb, self.vectors(rows))
        return Candidates(rows, np.where(valid, scores, np.float32(0)), proposals=proposals)

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Published embeddings of rows [b, k], float32 [b, k, d]; any for NO_ROW."""
        ids = np.asarray(self.inputs.store.block_ids)[np.maximum(rows, 0)]
        known = self.snapshot.block_ids
        return np.asarray(self.snapshot.vectors[np.minimum(np.searchsorted(known, ids), len(known) - 1)], np.float32)

    def bm25_relevance(self, proposals: Proposals | None) -> np.ndarray | None:
        """Scores [b, k] of candidates by their words, where these give the relevance; None: the embeddings do."""
        return None

    def embedded(self, questions: SequenceOf[SequenceOf[int]]) -> np.ndarray:
        """Embeddings float32 [b, d] of questions given as wordpieces."""
        return self.embedder.embed_questions([self.inputs.featurizer.query(ids) for ids in questions])

    def _found(
        self, query_emb: np.ndarray, texts: SequenceOf[str], k: int, exclude: list[np.ndarray] | None
    ) -> tuple[np.ndarray, Proposals | None]:
        """Block ids int64 [b, k], best first, NULL_BLOCK if missing, and the proposals of hybrid search."""
        found = Retriever(lambda emb: emb, self.index).retrieve(query_emb, k, null=False, exclude=exclude)
        return found.block_ids, None


class HybridCandidates(DenseCandidates):
    """Blocks proposed by sparse, or by dense and sparse search, ordered by their sum; scored by the embedder or by BM25 alone.

    ``directory`` is the run's ``index/``, with the sparse index in the generation; missing parts are built at the first search."""

    def __init__(self, *dense: Any, directory: Path, how: Searching):
        super().__init__(*dense)
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

    def bm25_relevance(self, proposals: Proposals | None) -> np.ndarray | None:
        return None if self.relevance == "embedder" or proposals is None else BM25_LOGIT_SCALE * proposals.sparse

    def _found(
        self, query_emb: np.ndarray, texts: SequenceOf[str], k: int, exclude: list[np.ndarray] | None
    ) -> tuple[np.ndarray, Proposals | None]:
        proposals = self.search.search(query_emb, texts, k, exclude)
        return proposals.block_ids, proposals


def make_source(
    embedder: Embedding,
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
