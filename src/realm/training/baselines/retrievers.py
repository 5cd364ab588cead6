"""Retrievers that do not learn, BM25 and TF-IDF, and readers trained on them with REALM's initial weights, steps and seed."""

import itertools
import math
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from realm.answering.answerer import Answerer, Confidence
from realm.errors import needing
from realm.models import losses
from realm.models.reader import ReadingNetwork
from realm.search.blocks import NO_ROW, BlockInputs
from realm.storage.layout import stage_facts
from realm.training.beams import Beam, LearningSource
from realm.training.context import StageContext, load_stage, publish_stage
from realm.training.finetune.task import ReadingTask, training_questions
from realm.training.finetune.training import train_reader
from realm.training.starting import with_new_reader

BUCKETS = (1 << 24) - 1


class ScaledSource(LearningSource):
    """A retriever that does not learn; one learned scale fits its scores to the reader's."""

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

    def forward(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> Beam:
        rows, scores = self.ranked(texts, questions, k)
        rows = rows.copy()
        rows[~self.inputs.store.newest().is_live(self.inputs.store.block_ids[rows])] = NO_ROW  # removed since
        return Beam(rows, torch.from_numpy(np.where(rows == NO_ROW, 0.0, scores)).to(self.scale) * self.scale)


class WordCandidates(ScaledSource):
    """A retriever by the words of titles and bodies of ``rows`` or all live ones, as bm25s cuts them. Raises MissingExtra: without it."""

    def __init__(self, inputs: BlockInputs, rows: np.ndarray | None = None):
        super().__init__(inputs)
        with needing("a baseline that searches by words", "bm25"):
            import bm25s
        self.rows = np.flatnonzero(inputs.store.live) if rows is None else rows
        self._bm25s = bm25s

    def _words(self, texts: Sequence[str]) -> list[list[str]]:
        return self._bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)

    def _words_of_blocks(self) -> list[list[str]]:
        return self._words([f"{block.full_title} {block.text}" for block in map(self.inputs.store.block, self.rows.tolist())])


class Bm25Candidates(WordCandidates):
    """BM25 by bm25s; blocks with a score above 0."""

    def __init__(self, inputs: BlockInputs, rows: np.ndarray | None = None):
        super().__init__(inputs, rows)
        self._index = self._bm25s.BM25(k1=0.9, b=0.4)
        self._index.index(self._words_of_blocks(), show_progress=False)

    def ranked(self, texts: Sequence[str], questions: Sequence[Sequence[int]], k: int) -> tuple[np.ndarray, np.ndarray]:
        found, scores = self._index.retrieve(self._words(texts), k=min(k, len(self.rows)), show_progress=False)
        return np.where(scores > 0, self.rows[found.astype(np.int64)], NO_ROW), scores

    def index_bytes(self) -> int:
        return sum(part.nbytes for part in self._index.scores.values() if isinstance(part, np.ndarray))


class TfIdfCandidates(WordCandidates):
    """TF-IDF over words and pairs of words, as DrQA has it (Chen et al. 2017, section 3.1).

    log(1 + tf) of question and block times the squared idf log((n - df + .5) / (df + .5)), at least 0; terms are hashed into 2^24 buckets.
    """

    def __init__(self, inputs: BlockInputs, rows: np.ndarray | None = None):
        super().__init__(inputs, rows)
        counts = [Counter(_terms(words)) for words in self._words_of_blocks()]
        place = np.repeat(np.arange(len(counts), dtype=np.int32), [len(c) for c in counts])
        term = np.fromiter((t for c in counts for t in c), np.int32, len(place))
        often = np.fromiter((n for c in counts for n in c.values()), np.float32, len(place))
        order = np.argsort(term, kind="stable")
        self._places, self._weights = place[order], np.log1p(often[order])
        self._known, begins = np.unique(term[order], return_index=True)
        self._begins = np.append(begins, len(order))

    def scores(self, text: str) -> np.ndarray:
        """The score of every searched row. float32 [n]"""
        scores = np.zeros(len(self.rows), np.float32)
        for term, often in sorted(Counter(_terms(self._words([text])[0])).items()):
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


def _terms(words: list[str]) -> list[int]:
    """Buckets of the words and of their pairs."""
    return [zlib.crc32(term.encode()) & BUCKETS for term in (*words, *(f"{a} {b}" for a, b in itertools.pairwise(words)))]


SCALES = 2.0 ** (np.arange(-16, 17) / 2)
"""Candidates for the first scale of scores, half a doubling apart."""
SCALE_QUESTIONS = 64
"""Questions that decide where it starts."""
LOSS_TOLERANCE = 0.05
"""Nats for which no larger scale is taken: where every answer is found first, the loss falls forever."""


class HardTask(ReadingTask):
    """HardEM: the reader learns from the answer's likeliest place alone."""

    span_loss = staticmethod(losses.span_hard)


def train_scaled(context: StageContext, name: str, source: ScaledSource, mark: str, learning: type[ReadingTask] = ReadingTask) -> None:
    """Fine-tune a reader and the scale of the scores as the stage ``name``, unless that is done."""
    model = with_new_reader(context, load_stage(context, "pretrain")).to(context.device)
    questions, dev = training_questions(context)
    task = learning(name, context, source.to(context.device), model.reader, questions, dev)
    nn.init.constant_(source.scale, starting_scale(task))
    facts = train_reader(context, task, mark) | task.calibration() | {"scale": float(source.scale.detach())}
    publish_stage(context, name, model.with_parts(embedder=None, document_embedder=None), mark, facts)


@torch.inference_mode()
def starting_scale(task: ReadingTask) -> float:
    """The smallest of ``SCALES`` whose retriever loss on some questions is within ``LOSS_TOLERANCE`` of the least; 1 if nothing is found.

    A step moves the scale by little, and scores of one retriever are a hundred times as large as another's."""
    assert isinstance(task.source, ScaledSource)
    nn.init.ones_(task.source.scale)
    items = np.unique(np.linspace(0, len(task.questions) - 1, SCALE_QUESTIONS).astype(int)).tolist()
    wide, correct = task.wide(items, [task.tokens[i] for i in items])
    scores, valid = wide.scores.double().cpu(), wide.valid.cpu()
    some = losses.retriever_marginal(scores, correct, valid)[1]
    if not bool(some.any()):
        return 1.0
    loss = np.array([float(losses.retriever_marginal(scores * scale, correct, valid)[0][some].mean()) for scale in SCALES])
    return float(SCALES[int(np.argmax(loss <= loss.min() + LOSS_TOLERANCE))])


def scaled_answerer(context: StageContext, name: str, source: ScaledSource) -> Answerer:
    """Answerer with the published reader of stage ``name`` on its source."""
    facts, model = stage_facts(context.paths, name), load_stage(context, name)
    source.scale = nn.Parameter(torch.tensor(float(facts["scale"])))
    reader = ReadingNetwork(model.reader, bf16=context.recipe.run.bf16)
    return Answerer(context.inputs, source, reader, versions={}, confidence=Confidence.stated(facts))
