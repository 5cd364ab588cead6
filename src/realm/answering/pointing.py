"""Span scores with gradients, jointly with relevance (ORQA, section 4.1) or by a reader that points; ``reading.py`` answers without.

A reader that points gives p(y|z,x) as a span of the document, or "not here": y is then as likely as in the whole corpus."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from realm.answering.reading import joint_inputs
from realm.models import losses
from realm.models.losses import not_here_log_posterior, span_log_posterior
from realm.models.reader import Reader, SpanScores
from realm.models.types import TokenIds
from realm.search.blocks import BlockInputs


def score_spans(
    reader: Reader,
    inputs: BlockInputs,
    questions: SequenceOf[SequenceOf[int]],
    rows: np.ndarray,
    *,
    renamings: SequenceOf[np.ndarray | None] | None = None,
) -> SpanScores:
    """Score every span of every candidate, each document alone.

    Arguments as for :func:`realm.answering.reading.joint_inputs`.

    Returns logits and valid [b, k, t, w], not_here [b, k]; nothing is valid, and all scores are 0, in rows that are not read."""
    device = reader.dense.weight.device
    (example, candidate), sequences, starts = joint_inputs(reader.spec, inputs, questions, rows, renamings)
    if not sequences:
        nothing = torch.zeros((*rows.shape, 1, reader.max_span), device=device)
        return SpanScores(nothing, torch.zeros_like(nothing, dtype=torch.bool), nothing[:, :, 0, 0])
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

    The span score of a reader that points is log p(s|z,x), so that a block without an answer may abstain; of others it is f(s) itself.
    ``relevance`` [b, k] gets a gradient; other arguments as for :func:`score_spans`. Returns logits and valid [b, k, t, w], False in a
    missing candidate; not_here [b, k] of a reader that points is log p(none|z,x)."""
    spans = score_spans(reader, inputs, questions, rows, renamings=renamings)
    logits, not_here = spans.logits, spans.not_here
    if reader.spec.pointer:
        own = (logits.flatten(2), not_here, spans.valid.flatten(2))
        logits = span_log_posterior(*own).view_as(logits).masked_fill(~spans.valid, 0.0)
        not_here = not_here_log_posterior(*own)
    there = torch.from_numpy(rows >= 0).to(relevance.device)
    return replace(spans, logits=logits + torch.where(there, relevance, 0.0)[:, :, None, None], not_here=not_here)


SPANS_PER_QUESTION = 64  # best spans added up by their string; the rest of the mass cannot change the best one


@dataclass(frozen=True)
class Pointed:
    """Candidates of b sentences, read."""

    spans: SpanScores  # scores [b, k, t, w] and "not here" [b, k]; nothing is valid in rows that are not read
    equal: Tensor  # [b, k, t, w] True at spans equal to the hidden one
    log_prior: Tensor  # [b] log pi(y)
    tokens: int  # wordpieces read

    @property
    def log_probs(self) -> Tensor:
        """log p(y|z,x), [b, k]; log pi(y) in rows that are not read, such as the null document's."""
        spans, valid = self.spans, self.spans.valid.flatten(2)
        return losses.pointer_log_probs(spans.logits.flatten(2), spans.not_here, self.equal.flatten(2), valid, self.log_prior)


def point_at(
    reader: Reader, inputs: BlockInputs, queries: SequenceOf[TokenIds], targets: SequenceOf[SequenceOf[int]], rows: np.ndarray
) -> Pointed:
    """Score the spans of every candidate of every sentence, and find the hidden span among them.

    ``queries`` are b sentences with one [MASK] each, or questions; ``targets`` their hidden spans or answers; ``rows`` [b, k] are below 0
    for missing candidates and the null document."""
    spans, places = score_spans(reader, inputs, queries, rows), inputs.span_places
    equal = torch.zeros(spans.valid.shape, dtype=torch.bool)
    _, _, longest, widest = equal.shape
    read = rows >= 0
    for i, j in zip(*(found.tolist() for found in np.nonzero(read)), strict=True):
        for start, end in places.places(int(rows[i, j]), targets[i]):
            if end <= longest and end - start <= widest:
                equal[i, j, start, end - start - 1] = True
    device = spans.logits.device
    log_prior = torch.tensor([places.log_prior(target) for target in targets], dtype=spans.logits.dtype, device=device)
    asked = [len(inputs.featurizer.with_mask(query)) + 3 for query in queries]
    lengths = (inputs.store.lengths[np.maximum(rows, 0)] + np.array(asked)[:, None]) * read
    return Pointed(spans, equal.to(device), log_prior, int(lengths.sum()))


def pointing_loss(pointed: Pointed) -> losses.Loss:
    """:func:`realm.models.losses.pointing_nll` of b sentences: loss [b] and valid [b]."""
    spans = pointed.spans
    return losses.pointing_nll(spans.logits.flatten(2), spans.not_here, pointed.equal.flatten(2), spans.valid.flatten(2))


@dataclass(frozen=True)
class PointedString:
    """A predicted string: its normalised form, p(y|x) without the prior's part, and its likeliest place: (row, start, end)."""

    key: str
    p: float
    place: tuple[int, int, int]


@torch.no_grad()
def best_strings(spans: SpanScores, log_p_z: Tensor, inputs: BlockInputs, rows: np.ndarray) -> list[PointedString]:
    """Strings pointed at by k candidates, spans [k, t, w], likeliest first: sum over z of p(z|x) p(s|z,x), over equal strings."""
    log_p = losses.span_log_posterior(spans.logits.flatten(1), spans.not_here, spans.valid.flatten(1)).view_as(spans.logits)
    weighed = (log_p + log_p_z.to(log_p.dtype).view(-1, 1, 1)).flatten()
    values, found = weighed.topk(min(SPANS_PER_QUESTION, weighed.numel()))
    mass: dict[str, float] = {}
    likeliest: dict[str, tuple[int, int, int]] = {}
    for value, place in zip(values.exp().tolist(), found.tolist(), strict=True):
        if value == 0.0:
            break
        j, start, width = (int(at) for at in np.unravel_index(place, tuple(spans.logits.shape)))
        row, end = int(rows[j]), start + width + 1
        if key := inputs.span_places.key(inputs.store.token_ids(row)[start:end].tolist()):
            mass[key] = mass.get(key, 0.0) + value
            likeliest.setdefault(key, (row, start, end))
    return sorted((PointedString(key, p, likeliest[key]) for key, p in mass.items()), key=lambda string: -string.p)
