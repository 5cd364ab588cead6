"""The span reader: a score for every span of a candidate's body, by ORQA's head (section 4.1) or BERT's for SQuAD.

The latter, a start score plus an end score, learns sooner (3.2 nats against 4.4 after 2,400 questions)."""

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from realm.models.bodies.body import Body, TokenInputs, answering, at_least_float32, in_buckets, multiplying, rounded_once
from realm.models.spec import ReaderSpec
from realm.models.types import Sequence, Spans

CPU_SPAN_COMPONENTS = 1 << 21  # span components that a CPU scores at once without gradients: 8 MiB


@dataclass(frozen=True)
class SpanScores:
    """Span scores of n joint inputs in a padded body frame."""

    logits: Tensor  # [n, t, w]: the span from body wordpiece t with w + 1 wordpieces
    valid: Tensor  # [n, t, w]: inside the body
    not_here: Tensor  # [n]: score of an absent span, which is that of [CLS] as a span

    def of(self, example: int) -> "SpanScores":
        """Scores of one of b examples."""
        return SpanScores(self.logits[example], self.valid[example], self.not_here[example])


class Reader(nn.Module):
    """Start and end projections, ReLU, LayerNorm, one score, in that order, as in the released code; or a start plus an end score.

    >>> from realm.models.bodies.body import BodySpec, build_body
    >>> config = {"model_type": "bert", "vocab_size": 99, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> body = build_body(BodySpec(config), pooler=False)
    >>> Reader(body, ReaderSpec(body.spec, max_span=4))([Sequence([2, 7, 3, 8, 9, 3], [0, 0, 0, 1, 1, 1])], [3]).logits.shape
    torch.Size([1, 2, 4])

    ``body`` reads "[CLS] question [SEP] body [SEP]" and takes the place of the specification's."""

    def __init__(self, body: Body, spec: ReaderSpec):
        super().__init__()
        self.body = body
        self.spec = replace(spec, body=body.spec)
        self.max_span = spec.max_span
        self.span_hidden = spec.span_hidden
        self.dense = nn.Linear(body.spec.hidden, 2 * max(1, spec.span_hidden))
        linear = [self.dense]
        if spec.span_hidden:
            self.norm = nn.LayerNorm(spec.span_hidden, eps=spec.layer_norm_eps)
            self.score = nn.Linear(spec.span_hidden, 1)
            linear.append(self.score)
        std = 0.02 * math.sqrt(768 / body.spec.hidden)
        for layer in linear:
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
            nn.init.zeros_(layer.bias)

    def forward(self, sequences: SequenceOf[Sequence], body_starts: SequenceOf[int]) -> SpanScores:
        """Scores of the spans of n ragged joint inputs, whose bodies start at ``body_starts``.

        Returns them in the body's own frame: [n, t, w], t the longest body and w the widest span."""
        device = self.dense.weight.device
        body_lengths = [len(s) - start - 1 for s, start in zip(sequences, body_starts, strict=True)]
        longest = max(1, *body_lengths)

        def body_states(inputs: TokenInputs, places: list[int]) -> Tensor:
            states = self.body(inputs)
            starts = torch.tensor([body_starts[i] for i in places], device=device)
            at = (starts.unsqueeze(1) + torch.arange(longest, device=device)).clamp(max=states.shape[1] - 1)
            body = states.gather(1, at.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
            return torch.cat([states[:, :1], body], 1)

        return self._spans(in_buckets(self.body, sequences, body_states), torch.tensor(body_lengths, device=device))

    def _spans(self, states: Tensor, lengths: Tensor) -> SpanScores:
        """Scores of all spans from states [n, 1 + t, h] of [CLS] and the body, and body lengths [n]."""
        first, body = states[:, :1], states[:, 1:]
        valid = self._ends(body).unsqueeze(0) < lengths.view(-1, 1, 1)
        return SpanScores(self.span_logits(body), valid, self.span_logits(first)[:, 0, 0])

    def span_logits(self, states: Tensor) -> Tensor:
        """Score of every span [n, t, w] of states [n, t, h], inside the body or not."""
        if not torch.is_grad_enabled() and states.device.type == "cpu":
            # A CPU works on what its caches hold; a gradient would keep all of it anyway.
            some = max(1, CPU_SPAN_COMPONENTS // (states.shape[1] * self.max_span * max(1, self.span_hidden)))
            return torch.cat([self._span_logits(part) for part in states.split(some)])
        return self._span_logits(states)

    def _span_logits(self, states: Tensor) -> Tensor:
        start, end = at_least_float32(self.dense(states)).chunk(2, dim=-1)
        # [n, t, w, span_hidden]: the state of the last wordpiece of each span, clamped where the span would leave the frame.
        last = end[:, self._ends(states).clamp(max=states.shape[1] - 1)]
        if not self.span_hidden:
            return (start.unsqueeze(2) + last).squeeze(-1)
        return at_least_float32(self.score(self.norm(torch.relu(start.unsqueeze(2) + last))).squeeze(-1))

    def _ends(self, states: Tensor) -> Tensor:
        """Position of the last wordpiece of each span, [t, w]."""
        starts = torch.arange(states.shape[1], device=states.device)
        return starts.unsqueeze(1) + torch.arange(self.max_span, device=states.device)


class ReadingNetwork:
    """A reader as an answerer calls it, without gradients; ``bf16``: in bfloat16 if the hardware multiplies it.

    Scores are float32 in any case. ``rounded``: its weights stay as they are now, so that they are rounded once."""

    def __init__(self, reader: Reader, *, bf16: bool = False, rounded: bool = False):
        self.reader, self._bf16 = reader, bf16
        self._device = reader.dense.weight.device.type
        self._network = rounded_once(reader, self._device) if bf16 and rounded else reader

    @property
    def spec(self) -> ReaderSpec:
        return self.reader.spec

    def read(self, sequences: SequenceOf[Sequence], body_starts: SequenceOf[int]) -> Spans:
        with answering(self._network), multiplying(self._device, bf16=self._bf16):
            found = self._network(sequences, body_starts)
        return Spans(*(part.cpu().numpy() for part in (found.logits.float(), found.not_here.float(), found.valid)))
