"""Span scores of candidates: blocks read beside their question, one by one or jointly with their relevance (ORQA, section 4.1)."""

from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from realm.models.featurize import marked
from realm.models.losses import not_here_log_posterior, span_log_posterior
from realm.models.reader import Reader, SpanScores
from realm.models.types import Sequence
from realm.search.blocks import BlockInputs


def score_spans(
    reader: Reader,
    inputs: BlockInputs,
    questions: SequenceOf[SequenceOf[int]],
    rows: np.ndarray,
    *,
    renamings: SequenceOf[np.ndarray | None] | None = None,
) -> SpanScores:
    """Score every span of every candidate, each for itself.

    Args:
        questions: wordpieces of b questions, or of masked sentences; a reader that points sees a [MASK] behind a question.
        rows: [b, k] rows of the store, below 0 where nothing is read: no candidate, or the null document.
        renamings: for each question what stands for each wordpiece, in it and in its candidates alike; None for itself.

    Returns:
        logits and valid [b, k, t, w], not_here [b, k]; nothing is valid, and all scores are 0, where nothing is read.
    """
    device = reader.dense.weight.device
    example, candidate = np.nonzero(rows >= 0)
    if not len(example):
        nothing = torch.zeros((*rows.shape, 1, reader.max_span), device=device)
        return SpanScores(nothing, torch.zeros_like(nothing, dtype=torch.bool), nothing[:, :, 0, 0])
    if reader.spec.pointer:
        questions = [inputs.featurizer.with_mask(question) for question in questions]
    names = renamings or [None] * len(questions)
    pairs = zip(example.tolist(), candidate.tolist(), strict=True)
    if reader.spec.titles:
        placed = [inputs.titled(questions[i], int(rows[i, j])) for i, j in pairs]
    else:
        placed = [(inputs.joint(questions[i], int(rows[i, j])), inputs.featurizer.body_start(questions[i])) for i, j in pairs]
    sequences = [rename(sequence, names[i]) for (sequence, _), i in zip(placed, example.tolist(), strict=True)]
    starts = [start for _, start in placed]
    if reader.spec.marks:
        sequences = [marked(sequence, start) for sequence, start in zip(sequences, starts, strict=True)]
    scores = reader(sequences, starts)
    place = (torch.from_numpy(example).to(device), torch.from_numpy(candidate).to(device))
    shape = (*rows.shape, *scores.logits.shape[1:])
    logits = scores.logits.new_zeros(shape).index_put(place, scores.logits)
    valid = torch.zeros(shape, dtype=torch.bool, device=device).index_put(place, scores.valid)
    return SpanScores(logits, valid, scores.not_here.new_zeros(rows.shape).index_put(place, scores.not_here))


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

    The span score of a reader that points is log p(s|z,x), so that a block without an answer may say so; of others it is f(s) itself.

    Args:
        relevance: [b, k] scores of the candidates; a gradient reaches them.
        questions, rows, renamings: as for :func:`score_spans`.

    Returns:
        logits and valid [b, k, t, w]; nothing is valid in a missing candidate. not_here [b, k] of a reader that points is log p(none|z,x).
    """
    spans = score_spans(reader, inputs, questions, rows, renamings=renamings)
    logits, not_here = spans.logits, spans.not_here
    if reader.spec.pointer:
        own = (logits.flatten(2), not_here, spans.valid.flatten(2))
        logits = span_log_posterior(*own).view_as(logits).masked_fill(~spans.valid, 0.0)
        not_here = not_here_log_posterior(*own)
    there = torch.from_numpy(rows >= 0).to(relevance.device)
    return replace(spans, logits=logits + torch.where(there, relevance, 0.0)[:, :, None, None], not_here=not_here)


def rename(sequence: Sequence, renamed: np.ndarray | None) -> Sequence:
    """The sequence with every wordpiece replaced by what stands for it; None changes nothing."""
    return sequence if renamed is None else Sequence(renamed[sequence.ids].tolist(), sequence.segments)
