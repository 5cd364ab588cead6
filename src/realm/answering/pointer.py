"""p(y|z,x) of a reader that points: a span of the document, or "not here", in which case y is as likely as it is in the whole corpus."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from realm.answering.reading import score_spans
from realm.models import losses
from realm.models.reader import Reader, SpanScores
from realm.models.types import TokenIds
from realm.search.blocks import BlockInputs

SPANS_KEPT = 64
"""Best spans of a sentence whose strings are added up; the rest of the mass is too thin to change which string is the best."""


@dataclass(frozen=True)
class Pointed:
    """The candidates of b sentences, read.

    Attributes:
        spans: scores of their spans, [b, k, t, w], and of "not here", [b, k]; nothing is valid where nothing was read.
        equal: [b, k, t, w] True at the spans that equal the hidden one.
        log_prior: [b] log pi(y).
        tokens: wordpieces read.
    """

    spans: SpanScores
    equal: Tensor
    log_prior: Tensor
    tokens: int

    @property
    def log_probs(self) -> Tensor:
        """log p(y|z,x), [b, k]; log pi(y) where nothing was read, as of the null document."""
        spans, valid = self.spans, self.spans.valid.flatten(2)
        return losses.pointer_log_probs(spans.logits.flatten(2), spans.not_here, self.equal.flatten(2), valid, self.log_prior)


def point_at(
    reader: Reader, inputs: BlockInputs, queries: SequenceOf[TokenIds], targets: SequenceOf[SequenceOf[int]], rows: np.ndarray
) -> Pointed:
    """Score the spans of every candidate of every sentence, and find the hidden span among them.

    Args:
        reader: scores spans.
        queries: wordpieces of b sentences, each with one [MASK] for its hidden span; or of questions.
        targets: wordpieces of the hidden spans, or of the answers.
        rows: [b, k] rows of the corpus, below 0 where nothing is read: no candidate, or the null document.
    """
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
    """:func:`realm.models.losses.pointing_nll` of b sentences: loss [b] and where there was something to learn [b]."""
    spans = pointed.spans
    return losses.pointing_nll(spans.logits.flatten(2), spans.not_here, pointed.equal.flatten(2), spans.valid.flatten(2))


@dataclass(frozen=True)
class PointedString:
    """A string that was pointed at: its normalised form, its wordpieces where it is likeliest, and p(y|x) without the prior's part."""

    key: str
    wordpieces: tuple[int, ...]
    p: float


@torch.no_grad()
def best_strings(spans: SpanScores, log_p_z: Tensor, inputs: BlockInputs, rows: np.ndarray) -> list[PointedString]:
    """What one sentence's candidates point at, likeliest first: sum over z of p(z|x) p(s|z,x), over equal strings.

    Args:
        spans: scores of k candidates, [k, t, w] and [k].
        log_p_z: [k] log p(z|x).
        inputs: corpus and featuriser.
        rows: [k] rows of the candidates, below 0 where nothing was read.
    """
    log_p = losses.span_log_posterior(spans.logits.flatten(1), spans.not_here, spans.valid.flatten(1)).view_as(spans.logits)
    weighed = (log_p + log_p_z.to(log_p.dtype).view(-1, 1, 1)).flatten()
    values, found = weighed.topk(min(SPANS_KEPT, weighed.numel()))
    mass: dict[str, float] = {}
    written: dict[str, tuple[int, ...]] = {}
    for value, place in zip(values.exp().tolist(), found.tolist(), strict=True):
        if value == 0.0:
            break
        j, start, width = (int(at) for at in np.unravel_index(place, tuple(spans.logits.shape)))
        wordpieces = tuple(inputs.store.token_ids(int(rows[j]))[start : start + width + 1].tolist())
        if key := inputs.span_places.key(wordpieces):
            mass[key] = mass.get(key, 0.0) + value
            written.setdefault(key, wordpieces)
    return sorted((PointedString(key, written[key], p) for key, p in mass.items()), key=lambda string: -string.p)
