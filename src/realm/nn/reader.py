"""The span reader of fine-tuning (ORQA, section 4.1): every span of at most ten wordpieces inside a candidate's body gets a score."""

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from realm.data.blocks import BlockInputs
from realm.data.renaming import rename
from realm.data.types import Sequence, TokenInputs
from realm.nn.bodies import Body, at_least_float32, in_buckets
from realm.nn.spec import ReaderSpec


@dataclass(frozen=True)
class SpanScores:
    """Span scores of n joint inputs in a padded body frame.

    ``logits`` [n, t, w]: score of the span that starts at body wordpiece t and has w + 1 wordpieces; ``valid`` [n, t, w]: inside the
    body.
    """

    logits: Tensor
    valid: Tensor


class Reader(nn.Module):
    """Start and end projections, ReLU, LayerNorm, one score; in that order, as in the released code.

    Args:
        body: reads "[CLS] question [SEP] body [SEP]".
        spec: of the span head; its body's place is taken by ``body``.
    """

    def __init__(self, body: Body, spec: ReaderSpec):
        super().__init__()
        self.body = body
        self.spec = replace(spec, body=body.spec)
        self.max_span = spec.max_span
        self.span_hidden = spec.span_hidden
        self.dense = nn.Linear(body.spec.hidden, 2 * spec.span_hidden)
        self.norm = nn.LayerNorm(spec.span_hidden, eps=spec.layer_norm_eps)
        self.score = nn.Linear(spec.span_hidden, 1)
        std = 0.02 * math.sqrt(768 / body.spec.hidden)
        for layer in (self.dense, self.score):
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
            nn.init.zeros_(layer.bias)

    def forward(self, sequences: SequenceOf[Sequence], body_starts: SequenceOf[int]) -> SpanScores:
        """Score the spans of n ragged joint inputs.

        Args:
            sequences: joint inputs.
            body_starts: position of the first body wordpiece in each.

        Returns:
            Scores in the body's own frame: [n, t, w] with t the longest body and w the widest span.
        """
        device = self.dense.weight.device
        body_lengths = [len(s) - start - 1 for s, start in zip(sequences, body_starts, strict=True)]
        longest = max(1, *body_lengths)

        def body_states(inputs: TokenInputs, places: list[int]) -> Tensor:
            states = self.body(inputs)
            starts = torch.tensor([body_starts[i] for i in places], device=device)
            at = (starts.unsqueeze(1) + torch.arange(longest, device=device)).clamp(max=states.shape[1] - 1)
            return states.gather(1, at.unsqueeze(-1).expand(-1, -1, states.shape[-1]))

        return self._spans(in_buckets(self.body, sequences, body_states), torch.tensor(body_lengths, device=device))

    def _spans(self, states: Tensor, lengths: Tensor) -> SpanScores:
        """Body states [n, t, h] and body lengths [n] -> scores of all spans."""
        valid = self._ends(states).unsqueeze(0) < lengths.view(-1, 1, 1)
        return SpanScores(self.span_logits(states), valid)

    def span_logits(self, states: Tensor) -> Tensor:
        """States [n, t, h] -> score of every span [n, t, w], whatever it covers."""
        start, end = at_least_float32(self.dense(states)).split(self.span_hidden, dim=-1)
        # [n, t, w, span_hidden]: the state of the last wordpiece of each span, clamped where the span would leave the frame.
        last = end[:, self._ends(states).clamp(max=states.shape[1] - 1)]
        return at_least_float32(self.score(self.norm(torch.relu(start.unsqueeze(2) + last))).squeeze(-1))

    def _ends(self, states: Tensor) -> Tensor:
        """Position of the last wordpiece of each span, [t, w]."""
        starts = torch.arange(states.shape[1], device=states.device)
        return starts.unsqueeze(1) + torch.arange(self.max_span, device=states.device)


def read_candidates(
    reader: Reader,
    inputs: BlockInputs,
    questions: SequenceOf[SequenceOf[int]],
    rows: np.ndarray,
    relevance: Tensor,
    *,
    renamings: SequenceOf[np.ndarray | None] | None = None,
) -> SpanScores:
    """Score every span of every candidate jointly: span score plus relevance score of its block (ORQA, section 4.1).

    Args:
        questions: wordpieces of b questions.
        rows: [b, k] rows of the store, -1 where there is no candidate.
        relevance: [b, k] scores of the candidates; a gradient reaches them.
        renamings: for each question what stands for each wordpiece, in it and in its candidates alike; None for itself.

    Returns:
        logits and valid [b, k, t, w]; nothing is valid in a missing candidate.
    """
    example, candidate = np.nonzero(rows >= 0)
    if not len(example):
        nothing = relevance.new_zeros((*rows.shape, 1, reader.max_span))
        return SpanScores(nothing, torch.zeros_like(nothing, dtype=torch.bool))
    names = renamings or [None] * len(questions)
    pairs = zip(example.tolist(), candidate.tolist(), strict=True)
    sequences = [rename(inputs.joint(questions[i], int(rows[i, j])), names[i]) for i, j in pairs]
    starts = [inputs.featurizer.body_start(questions[i]) for i in example.tolist()]
    scores = reader(sequences, starts)
    place = (torch.from_numpy(example).to(relevance.device), torch.from_numpy(candidate).to(relevance.device))
    shape = (*rows.shape, *scores.logits.shape[1:])
    logits = scores.logits.new_zeros(shape).index_put(place, scores.logits + relevance[place].view(-1, 1, 1))
    valid = torch.zeros(shape, dtype=torch.bool, device=relevance.device).index_put(place, scores.valid)
    return SpanScores(logits, valid)
