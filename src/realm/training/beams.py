"""Wide beams of candidates with a gradient in their scores, and the sources that learn to find them."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from realm.models import losses
from realm.models.embedder import Embedder
from realm.search.blocks import NO_ROW
from realm.search.candidates import Candidates, DenseCandidates


@dataclass(frozen=True)
class Beam:
    """Rows of the store [b, k] (NO_ROW if missing), best first, and their scores [b, k] (0 if missing) with the source's gradient."""

    rows: np.ndarray
    scores: Tensor

    def best_with(self, right: Tensor, k: int) -> "Beam":
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


class LearningSource(nn.Module):
    """A source that learns."""

    def forward(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Beam:
        """The k best live blocks, or fewer, for b questions, as texts and wordpieces."""
        raise NotImplementedError

    def find(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        """The same for an answerer or a measure."""
        with torch.inference_mode():
            beam = self(texts, questions, k)
        return Candidates(beam.rows, beam.scores.float().cpu().numpy())


class LiveSource(LearningSource):
    """The live question embedder over the frozen document side of a source, whose embedder it becomes."""

    def __init__(self, over: DenseCandidates, embedder: Embedder):
        super().__init__()
        self.over, self.embedder = over, embedder
        over.embedder = embedder

    def forward(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Beam:
        query_emb = self.embedder.embed_queries([self.over.inputs.featurizer.query(ids) for ids in questions])
        # The vector that searches is the vector that scores, dropout included, as in the released code.
        found = self.over.different(texts, query_emb.detach().float().cpu().numpy(), k, learning=self.training)
        scores = self.over.bm25_relevance(found.proposals)
        if scores is None:
            relevance = losses.relevance_scores(query_emb, torch.from_numpy(self.over.vectors(found.rows)).to(query_emb))
        else:
            relevance = torch.from_numpy(scores).to(query_emb)
        return Beam(found.rows, relevance.masked_fill(torch.from_numpy(found.rows == NO_ROW).to(query_emb.device), 0.0))

    def find(self, texts: SequenceOf[str], questions: SequenceOf[SequenceOf[int]], k: int) -> Candidates:
        return self.over.find(texts, questions, k)
