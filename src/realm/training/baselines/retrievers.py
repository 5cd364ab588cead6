"""Retrievers to compare REALM with: BM25, TF-IDF, two fused by rank, and any sentence-transformers directory. None of them learns."""

import contextlib
import itertools
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from realm.documents.store.blocks import BlockStore
from realm.errors import DataError, MissingExtra
from realm.models.featurize import Featurizer
from realm.models.model import RealmModel
from realm.models.published.models import load_published
from realm.search.blocks import NO_ROW, BlockInputs
from realm.search.candidates import Candidates, DenseCandidates, Source
from realm.search.index.choice import LiveIndex
from realm.search.retriever import Retriever
from realm.storage.arrays import load_array, write_array
from realm.storage.files import publish_file, sha256_file

BUCKETS = (1 << 24) - 1
RRF_CONSTANT = 60
LONGEST = 256
"""Wordpieces of a block as a sentence embedder reads it, or its own limit where that is lower."""
EMBED_BATCH = 64

Progress = Callable[[int, int], None]


class ScaledSource(Source):
    """A retriever that does not learn: its score enters the reader through one learned scale, since scores of
    different retrievers are of different sizes.

    Args:
        inputs: the corpus.
    """

    def __init__(self, inputs: BlockInputs):
        super().__init__()
        self.inputs = inputs
        self.scale = nn.Parameter(torch.tensor(1.0))

    def ranked(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows [b, k], NO_ROW where there is none, best first, and their scores [b, k]; arguments as for ``forward``."""
        raise NotImplementedError

    def index_bytes(self) -> int:
        """Memory that the searches go through."""
        raise NotImplementedError

    def forward(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> Candidates:
        rows, scores = self.ranked(texts, questions, k)
        rows = rows.copy()
        rows[~self.inputs.store.newest().is_live(self.inputs.store.block_ids[rows])] = NO_ROW  # removed since
        return Candidates(rows, torch.from_numpy(np.where(rows == NO_ROW, 0.0, scores)).to(self.scale) * self.scale)


class Bm25Candidates(ScaledSource):
    """BM25 over titles and bodies by bm25s; blocks with a score above 0."""

    def __init__(self, inputs: BlockInputs, rows: np.ndarray):
        super().__init__(inputs)
        try:
            import bm25s
        except ImportError:
            raise MissingExtra("the BM25 baseline", "bm25") from None
        self.rows = rows
        self._bm25s = bm25s
        self._index = bm25s.BM25(k1=0.9, b=0.4)
        blocks = (inputs.store.block(int(row)) for row in rows)
        self._index.index(self._tokens([f"{block.title} {block.text}" for block in blocks]), show_progress=False)

    def _tokens(self, texts: list[str]) -> list[list[str]]:
        return self._bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)

    def ranked(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> tuple[np.ndarray, np.ndarray]:
        found, scores = self._index.retrieve(self._tokens(list(texts)), k=min(k, len(self.rows)), show_progress=False)
        return np.where(scores > 0, self.rows[found.astype(np.int64)], NO_ROW), scores

    def index_bytes(self) -> int:
        return sum(part.nbytes for part in self._index.scores.values() if isinstance(part, np.ndarray))


class TfIdfCandidates(ScaledSource):
    """TF-IDF over words and pairs of words of titles and bodies, as DrQA has it (Chen et al. 2017, section 3.1).

    log(1 + tf) of the question times log(1 + tf) of the block times the squared idf log((n - df + .5) / (df + .5)), at least 0; terms are
    hashed into 2^24 buckets.

    Args:
        inputs: the corpus.
        rows: its rows that are searched.
    """

    def __init__(self, inputs: BlockInputs, rows: np.ndarray):
        super().__init__(inputs)
        try:
            import bm25s
        except ImportError:
            raise MissingExtra("the TF-IDF baseline", "bm25") from None
        self._bm25s = bm25s
        self.rows = rows
        blocks = (inputs.store.block(int(row)) for row in rows)
        counts = [Counter(terms) for terms in self._terms([f"{block.title} {block.text}" for block in blocks])]
        place = np.repeat(np.arange(len(counts), dtype=np.int32), [len(c) for c in counts])
        term = np.fromiter((t for c in counts for t in c), np.int32, len(place))
        often = np.fromiter((n for c in counts for n in c.values()), np.float32, len(place))
        order = np.argsort(term, kind="stable")
        self._places, self._weights = place[order], np.log1p(often[order])
        self._known, begins = np.unique(term[order], return_index=True)
        self._begins = np.append(begins, len(order))

    def _terms(self, texts: list[str]) -> Iterable[list[int]]:
        words = self._bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)
        for found in words:
            pairs = (f"{a} {b}" for a, b in itertools.pairwise(found))
            yield [zlib.crc32(term.encode()) & BUCKETS for term in (*found, *pairs)]

    def scores(self, text: str) -> np.ndarray:
        """The score of every searched row. float32 [n]"""
        scores = np.zeros(len(self.rows), np.float32)
        for term, often in sorted(Counter(next(iter(self._terms([text])))).items()):
            at = int(np.searchsorted(self._known, term))
            if at == len(self._known) or self._known[at] != term:
                continue
            begin, end = int(self._begins[at]), int(self._begins[at + 1])
            idf = max(0.0, math.log((len(self.rows) - (end - begin) + 0.5) / (end - begin + 0.5)))
            scores[self._places[begin:end]] += self._weights[begin:end] * (math.log1p(often) * idf * idf)
        return scores

    def ranked(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> tuple[np.ndarray, np.ndarray]:
        k = min(k, len(self.rows))
        rows, best = np.full((len(texts), k), NO_ROW, np.int64), np.zeros((len(texts), k), np.float32)
        for i, text in enumerate(texts):
            scores = self.scores(text)
            order = np.argsort(-scores, kind="stable")[:k]
            rows[i], best[i] = np.where(scores[order] > 0, self.rows[order], NO_ROW), scores[order]
        return rows, best

    def index_bytes(self) -> int:
        return sum(part.nbytes for part in (self._places, self._weights, self._known, self._begins))


class FusedCandidates(ScaledSource):
    """A dense retriever as it is and BM25, fused by reciprocal rank (Cormack et al. 2009): the sum of 60 / (60 + rank), ranks from 1.

    Args:
        dense: the dense one; it stays as it is.
        lexical: BM25.
    """

    def __init__(self, dense: DenseCandidates, lexical: Bm25Candidates):
        super().__init__(dense.inputs)
        self.dense = dense.requires_grad_(False)
        self.lexical = lexical.requires_grad_(False)

    @torch.no_grad()
    def ranked(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> tuple[np.ndarray, np.ndarray]:
        self.dense.eval()  # dropout would make other ranks of the same retriever
        lists = [source(texts, questions, k).rows for source in (self.dense, self.lexical)]
        rows, best = np.full((len(texts), k), NO_ROW, np.int64), np.zeros((len(texts), k), np.float32)
        for i in range(len(texts)):
            scores = fused_scores([found[i] for found in lists])
            order = sorted(scores, key=lambda row: (-scores[row], row))[:k]
            rows[i, : len(order)], best[i, : len(order)] = order, [scores[row] for row in order]
        return rows, best

    def index_bytes(self) -> int:
        return int(self.dense.index.info()["bytes"]) + self.lexical.index_bytes()


def fused_scores(lists: Sequence[np.ndarray]) -> dict[int, float]:
    """Row -> reciprocal-rank score over several rankings (rows best first, NO_ROW where there is none)."""
    scores: dict[int, float] = {}
    for ranking in lists:
        for rank, row in enumerate(ranking.tolist(), 1):
            if row != NO_ROW:
                scores[row] = scores.get(row, 0.0) + RRF_CONSTANT / (RRF_CONSTANT + rank)
    return scores


class SentenceEmbedder:
    """A sentence-transformers directory with its own tokenizer.

    Args:
        directory: holds modules.json.

    Raises:
        DataError, ConfigError: as for :func:`realm.models.published.models.load_published`, or another kind of model.
    """

    def __init__(self, directory: Path):
        published = load_published(directory)
        if published.kind != "sentence-transformers":
            cure = "Name a directory with modules.json."
            raise DataError(f"a model of the kind '{published.kind}', not of sentence-transformers", path=directory, cure=cure)
        self.directory = Path(directory)
        self.embedder = RealmModel.from_published(published).embedder.requires_grad_(False)
        self.tokenizer = published.tokenizer
        special = published.tokenizer.special
        positions = int(self.embedder.body.spec.config.get("max_position_embeddings", LONGEST))
        length = min(LONGEST, positions - 2)
        self.featurizer = Featurizer(
            special.cls, special.sep, special.mask, special.pad, query_length=length, block_length=length
        )  # fmt: skip

    @property
    def dim(self) -> int:
        return self.embedder.body.spec.hidden

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> torch.Tensor:
        """float32 [b, d] of texts, cut to what the body takes."""
        return self.embedder([self.featurizer.query(ids) for ids in self.tokenizer.encode(texts)]).float()

    def embed_rows(self, store: BlockStore, rows: np.ndarray, progress: Progress | None = None) -> np.ndarray:
        """float32 [n, d] of "title. text" of the rows."""
        vectors = np.empty((len(rows), self.dim), np.float32)
        for at in range(0, len(rows), EMBED_BATCH):
            blocks = [store.block(int(row)) for row in rows[at : at + EMBED_BATCH]]
            texts = [f"{block.title}. {block.text}" if block.title else block.text for block in blocks]
            vectors[at : at + EMBED_BATCH] = self.embed(texts).numpy()
            if progress is not None:
                progress(at + len(blocks), len(rows))
        return vectors

    def key(self) -> str:
        """What its vectors depend on: weights and tokenizer."""
        weights = next(iter(sorted(self.directory.glob("*.safetensors"))), self.directory / "config.json")
        return sha256_file(weights)[:12] + self.tokenizer.sha256[:12]


class SentenceCandidates(ScaledSource):
    """A frozen sentence embedder over vectors of its own.

    Args:
        inputs: the corpus.
        embedder: embeds questions.
        vectors: [n, d] of the rows.
        rows: the rows that are searched.
    """

    def __init__(self, inputs: BlockInputs, embedder: SentenceEmbedder, vectors: np.ndarray, rows: np.ndarray):
        super().__init__(inputs)
        self.network = embedder.embedder
        self._embedder = embedder
        self.index = LiveIndex(vectors, np.asarray(inputs.store.block_ids)[rows], inputs.store)

    def ranked(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> tuple[np.ndarray, np.ndarray]:
        self.network.eval()
        found = Retriever(self._embedder.embed, self.index).retrieve(list(texts), min(k, len(self.index)), null=False)
        rows = np.full(found.block_ids.shape, NO_ROW, np.int64)
        rows[found.valid] = self.inputs.store.rows_of(found.block_ids[found.valid])
        return rows, np.where(found.valid, found.scores, 0.0)

    def index_bytes(self) -> int:
        return int(self.index.info()["bytes"])


def sentence_candidates(inputs: BlockInputs, directory: Path, vectors: Path, progress: Progress | None = None) -> SentenceCandidates:
    """Every live block under a sentence embedder; its vectors are kept at ``vectors`` and renewed if they are not of these blocks."""
    embedder = SentenceEmbedder(directory)
    rows = np.flatnonzero(inputs.store.live)
    known = None
    with contextlib.suppress(OSError, ValueError, EOFError):
        known = load_array(vectors)
    if known is None or known.shape != (len(rows), embedder.dim):
        known = embedder.embed_rows(inputs.store, rows, progress)
        with publish_file(vectors) as file:
            write_array(file, known)
    return SentenceCandidates(inputs, embedder, known, rows)
