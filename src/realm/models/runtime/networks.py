"""Embedder and reader without torch: the vectors and span scores of ``models.embedder`` and ``models.reader`` where nothing learns."""

from collections.abc import Callable, Sequence as SequenceOf
from functools import cache

import numpy as np

from realm.models.featurize import length_buckets
from realm.models.runtime.body import Inputs, RuntimeBody, layer_norm
from realm.models.runtime.weights import SafetensorWeights
from realm.models.spec import BodySpec, EmbedderSpec, ReaderSpec
from realm.models.types import Sequence, Spans

TOKENS_AT_A_TIME = 1024  # of one run of a body: large products whose inputs and outputs stay in the caches


class RuntimeEmbedder:
    """Embed queries and blocks."""

    def __init__(self, weights: SafetensorWeights, spec: EmbedderSpec, *, eight_bit: bool, threads: int = 0):
        self.spec, self._weights, self.unit = spec, weights, spec.head == "unit"
        self._array = cache(weights.array)
        self.body = runtime_body(weights, spec.body, eight_bit=eight_bit, threads=threads)

    def embed_blocks(self, sequences: SequenceOf[Sequence], *, bf16: bool = False) -> np.ndarray:
        """Return embeddings float32 [n, d] in the order given; nothing here multiplies in bfloat16."""
        return in_buckets(self.body, sequences, lambda inputs, _: self._head(self._pooled(inputs)))

    def embed_questions(self, sequences: SequenceOf[Sequence]) -> np.ndarray:
        """Return embeddings of queries whose inner product with a block's is its relevance: scaled, float32 [n, d]."""
        vectors = self.embed_blocks(sequences)
        return vectors * np.exp(self._array("log_scale")) if self.spec.scale is not None else vectors

    def _pooled(self, inputs: Inputs) -> np.ndarray:
        states, pooling = self.body.states(inputs), self.spec.body.pooling
        if pooling == "mean":
            return np.asarray(states.mean(1))
        first = states[:, 0]
        if pooling != "pooler":
            return first
        pooler = "body.model.pooler.dense"
        return np.tanh(first @ self._array(f"{pooler}.weight").T + self._array(f"{pooler}.bias"))

    def _head(self, pooled: np.ndarray) -> np.ndarray:
        unit, weights, array = self.unit, self._weights, self._array
        if weights.has("dense.weight"):
            pooled = (_normalised(pooled) if unit else pooled) @ array("dense.weight").T + array("dense.bias")
        if weights.has("norm.weight"):
            pooled = layer_norm(pooled, array("norm.weight"), array("norm.bias"), self.spec.layer_norm_eps)
        return (_normalised(pooled) if unit else pooled).astype(np.float32)


class RuntimeReader:
    """Score the spans of joint inputs."""

    def __init__(self, weights: SafetensorWeights, spec: ReaderSpec, *, eight_bit: bool, threads: int = 0):
        self.spec, self._array = spec, cache(weights.array)
        self.body = runtime_body(weights, spec.body, eight_bit=eight_bit, threads=threads)

    def read(self, sequences: SequenceOf[Sequence], body_starts: SequenceOf[int]) -> Spans:
        """Score the spans of n joint inputs, in the frame of the longest body."""
        lengths = np.array([len(one) - start - 1 for one, start in zip(sequences, body_starts, strict=True)])
        longest = max(1, int(lengths.max(initial=0)))
        places = np.asarray(body_starts)[:, None] + np.arange(longest)
        first_and_body = np.concatenate([np.zeros((len(places), 1), np.int64), places], 1)

        def projected(inputs: Inputs, chosen: np.ndarray) -> np.ndarray:
            states = self.body.states(inputs)
            at = np.minimum(first_and_body[chosen], states.shape[1] - 1)
            return states[np.arange(len(at))[:, None], at] @ self._array("dense.weight").T + self._array("dense.bias")

        ends = in_buckets(self.body, sequences, projected)
        first, body = ends[:, :1], ends[:, 1:]
        last = np.arange(longest)[:, None] + np.arange(self.spec.max_span)
        valid = last[None] < lengths[:, None, None]
        return Spans(self._spans(body, last), self._spans(first, np.arange(self.spec.max_span)[None])[:, 0, 0], valid)

    def _spans(self, ends: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Return the score of every span [n, t, w] from projections of its first and last wordpiece [n, t, 2 s]."""
        start, end = np.split(ends, 2, -1)
        last = np.minimum(last, ends.shape[1] - 1)
        # One input at a time: what the caches hold, and no array of every span's components.
        return np.stack([self._scored(first[:, None] + other[last]) for first, other in zip(start, end, strict=True)])

    def _scored(self, pairs: np.ndarray) -> np.ndarray:
        """Return scores [t, w] of the sums of two ends [t, w, s]."""
        if not self.spec.span_hidden:
            return pairs[..., 0].astype(np.float32)
        array = self._array
        normed = layer_norm(np.maximum(pairs, 0), array("norm.weight"), array("norm.bias"), self.spec.layer_norm_eps)
        return (normed @ array("score.weight")[0] + array("score.bias")).astype(np.float32)


def runtime_body(weights: SafetensorWeights, spec: BodySpec, *, eight_bit: bool, threads: int) -> RuntimeBody:
    """Build the body of a network. Raises MissingExtra: its family needs torch."""
    return RuntimeBody(weights.below("body.model."), spec.config, segments=spec.segments, eight_bit=eight_bit, threads=threads)


def in_buckets(body: RuntimeBody, sequences: SequenceOf[Sequence], run: Callable[[Inputs, np.ndarray], np.ndarray]) -> np.ndarray:
    """Run inputs in buckets of one length, each with the places of its inputs, and put the rows [n, ...] back in order. Several buckets run
    at once, the largest first: threads that share one product wait for each other at each of them."""

    def found_of(group: list[int]) -> np.ndarray:
        return run(Inputs(*(np.array([getattr(sequences[i], part) for i in group]) for part in Inputs._fields)), np.array(group))

    groups = list(length_buckets([len(one) for one in sequences], TOKENS_AT_A_TIME, 0))
    groups.sort(key=lambda group: -sum(len(sequences[i]) for i in group))
    found = np.concatenate(list(body.opened().map(found_of, groups)))
    return found[np.argsort([i for group in groups for i in group])]


def _normalised(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
