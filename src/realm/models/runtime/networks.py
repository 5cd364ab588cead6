"""Embedder and reader without torch: the vectors and span scores of ``models.embedder`` and ``models.reader`` where nothing learns."""

from collections.abc import Callable, Sequence as SequenceOf
from typing import Any

import numpy as np

from realm.models.featurize import length_buckets
from realm.models.runtime.body import Inputs, RuntimeBody, layer_norm, padded
from realm.models.runtime.weights import SafetensorWeights
from realm.models.types import Sequence

TOKENS_AT_A_TIME = 4096
"""Padded tokens of one run of a body: large products that stay in the caches."""
TOKENS_OF_A_CUT = 64
"""Cost of another run, in tokens: less than that is padded rather than cut."""


class RuntimeEmbedder:
    """Embed queries and blocks.

    Args:
        weights: of the embedder.
        spec: of the embedder, as a dictionary of ``config.json``.
    """

    def __init__(self, weights: SafetensorWeights, spec: dict[str, Any], *, eight_bit: bool, threads: int = 0):
        self.spec, self._weights = spec, weights
        self.body = runtime_body(weights, spec["body"], eight_bit=eight_bit, threads=threads)
        self.dim = int(spec["projection"])

    def __call__(self, sequences: SequenceOf[Sequence]) -> np.ndarray:
        """Return embeddings float32 [n, d] in the order given."""
        return in_buckets(sequences, lambda inputs, _: self._head(self._pooled(inputs)))

    def embed_queries(self, sequences: SequenceOf[Sequence]) -> np.ndarray:
        """Return embeddings of queries whose inner product with a block's is its relevance: scaled, float32 [n, d]."""
        vectors = self(sequences)
        return vectors * np.exp(self._weights.array("log_scale")) if self.spec["scale"] is not None else vectors

    @property
    def null_offset(self) -> float:
        """The learned addition to the relevance of the null document; 0 where none is learned."""
        return float(self._weights.array("null_offset")) if self.spec["null_offset"] else 0.0

    def _pooled(self, inputs: Inputs) -> np.ndarray:
        states, pooling = self.body.states(inputs), self.spec["body"]["pooling"]
        if pooling == "mean":
            inside = np.arange(states.shape[1]) < inputs.lengths[:, None]
            summed: np.ndarray = np.einsum("bth,bt->bh", states, inside.astype(np.float32))
            return summed / inputs.lengths[:, None].astype(np.float32)
        first = states[:, 0]
        if pooling != "pooler":
            return first
        pooler = self._weights.below("body.model.pooler.dense.")
        return np.tanh(first @ pooler.array("weight").T + pooler.array("bias"))

    def _head(self, pooled: np.ndarray) -> np.ndarray:
        unit, weights = self.spec["head"] == "unit", self._weights
        if weights.has("dense.weight"):
            pooled = (_normalised(pooled) if unit else pooled) @ weights.array("dense.weight").T + weights.array("dense.bias")
        if weights.has("norm.weight"):
            pooled = layer_norm(pooled, weights.array("norm.weight"), weights.array("norm.bias"), self.spec["layer_norm_eps"])
        return (_normalised(pooled) if unit else pooled).astype(np.float32)


class RuntimeReader:
    """Score the spans of joint inputs.

    Args:
        weights: of the reader.
        spec: of the reader, as a dictionary of ``config.json``.
    """

    def __init__(self, weights: SafetensorWeights, spec: dict[str, Any], *, eight_bit: bool, threads: int = 0):
        self.spec, self._weights = spec, weights
        self.body = runtime_body(weights, spec["body"], eight_bit=eight_bit, threads=threads)
        self.max_span, self.span_hidden = int(spec["max_span"]), int(spec["span_hidden"])

    def __call__(self, sequences: SequenceOf[Sequence], body_starts: SequenceOf[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Score the spans of n joint inputs.

        Returns:
            logits float32 [n, t, w] of the span that starts at body wordpiece t and has w + 1 wordpieces, valid bool [n, t, w], and
            not_here float32 [n], in the frame of the longest body.
        """
        lengths = np.array([len(one) - start - 1 for one, start in zip(sequences, body_starts, strict=True)])
        longest = max(1, int(lengths.max(initial=0)))
        places = np.asarray(body_starts)[:, None] + np.arange(longest)
        first_and_body = np.concatenate([np.zeros((len(places), 1), np.int64), places], 1)

        def projected(inputs: Inputs, chosen: np.ndarray) -> np.ndarray:
            states = self.body.states(inputs)
            at = np.minimum(first_and_body[chosen], states.shape[1] - 1)
            return self._dense(np.take_along_axis(states, at[:, :, None], 1))

        ends = in_buckets(sequences, projected)
        first, body = ends[:, :1], ends[:, 1:]
        last = np.arange(longest)[:, None] + np.arange(self.max_span)
        valid = last[None] < lengths[:, None, None]
        return self._spans(body, last), valid, self._spans(first, np.arange(self.max_span)[None])[:, 0, 0]

    def _dense(self, states: np.ndarray) -> np.ndarray:
        return states @ self._weights.array("dense.weight").T + self._weights.array("dense.bias")

    def _spans(self, ends: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Return the score of every span [n, t, w] from projections of its first and last wordpiece [n, t, 2 s]."""
        start, end = np.split(ends, 2, -1)
        pairs = start[:, :, None] + end[:, np.minimum(last, ends.shape[1] - 1)]
        if not self.span_hidden:
            return pairs[..., 0].astype(np.float32)
        weights = self._weights
        normed = layer_norm(np.maximum(pairs, 0), weights.array("norm.weight"), weights.array("norm.bias"), self.spec["layer_norm_eps"])
        return (normed @ weights.array("score.weight")[0] + weights.array("score.bias")).astype(np.float32)


def runtime_body(weights: SafetensorWeights, spec: dict[str, Any], *, eight_bit: bool, threads: int) -> RuntimeBody:
    """Build the body of a network. Raises ConfigError: its family needs torch."""
    return RuntimeBody(weights.below("body.model."), spec["config"], segments=spec["segments"], eight_bit=eight_bit, threads=threads)


def in_buckets(sequences: SequenceOf[Sequence], run: Callable[[Inputs, np.ndarray], np.ndarray]) -> np.ndarray:
    """Run ragged inputs in buckets of similar length, each with the places of its inputs, and put the rows [n, ...] back in order."""
    groups = list(length_buckets([len(one) for one in sequences], TOKENS_AT_A_TIME, TOKENS_OF_A_CUT))
    inputs = (padded([sequences[i].ids for i in group], [sequences[i].segments for i in group]) for group in groups)
    found = np.concatenate([run(bucket, np.array(group)) for bucket, group in zip(inputs, groups, strict=True)])
    return found[np.argsort([i for group in groups for i in group])]


def _normalised(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
