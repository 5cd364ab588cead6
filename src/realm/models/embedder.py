"""The embedder: a body, a projection to d dimensions and a LayerNorm (REALM, section 3.2; released code's ``projected``)."""

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from realm.models.bodies.body import Body, at_least_float32, in_buckets
from realm.models.spec import EmbedderSpec
from realm.models.types import Sequence


class Embedder(nn.Module):
    """e = LayerNorm(W pooled + b), d = 128; the relevance score is the plain inner product of two embeddings.

    Args:
        body: pooled as its specification says.
        spec: of the head; its body's place is taken by ``body``. The head "projection" is the formula above; "none" and "unit" are what
            published sentence embedders have instead: the pooled vector as it is, or scaled to length 1, with d the body's width.
            Where d is below the width, that vector goes through a linear map, and "unit" scales the outcome to length 1 again.
            Dropout is on the finished embedding, in training only, as in the released code.

    Attributes:
        log_scale: logarithm of the factor on relevance scores; None where none is learned.
        null_offset: what is added to the relevance of the null document; None where nothing is.
    """

    def __init__(self, body: Body, spec: EmbedderSpec):
        super().__init__()
        self.body = body
        self.spec = replace(spec, body=body.spec)
        self.unit = spec.head == "unit"
        self.dense: nn.Module = nn.Identity()
        self.norm: nn.Module = nn.Identity()
        if spec.head == "projection":
            dense = nn.Linear(body.spec.hidden, spec.projection)
            nn.init.xavier_uniform_(dense.weight)
            nn.init.zeros_(dense.bias)
            self.dense, self.norm = dense, nn.LayerNorm(spec.projection, eps=spec.layer_norm_eps)
        elif spec.projection < body.spec.hidden:
            self.dense = nn.Linear(body.spec.hidden, spec.projection)
        self.dropout = nn.Dropout(spec.dropout)
        self.log_scale = None if spec.scale is None else nn.Parameter(torch.tensor(math.log(spec.scale)))
        self.null_offset = nn.Parameter(torch.tensor(0.0)) if spec.null_offset else None

    def forward(self, sequences: SequenceOf[Sequence]) -> Tensor:
        """Embed ragged inputs, in length buckets so that little padding is computed. -> [b, d] in the order given."""
        pooled = in_buckets(self.body, sequences, lambda inputs, _: self.body.pooled(inputs))
        return self.dropout(self.head(pooled))

    def embed_queries(self, sequences: SequenceOf[Sequence]) -> Tensor:
        """Embed ragged queries so that the inner product with a document's embedding is its relevance: scaled, in float32. -> [b, d]."""
        embedded = at_least_float32(self(sequences))
        return embedded if self.log_scale is None else embedded * self.log_scale.exp()

    def head(self, pooled: Tensor) -> Tensor:
        """Pooled vectors [b, h] -> embeddings [b, d], without dropout."""
        vectors = at_least_float32(pooled)
        if self.unit and isinstance(self.dense, nn.Linear):
            vectors = F.normalize(vectors, dim=-1)
        vectors = at_least_float32(self.norm(self.dense(vectors)))
        return F.normalize(vectors, dim=-1) if self.unit else vectors

    def narrowed(self, directions: Tensor, centre: Tensor) -> "Embedder":
        """The embedder of this body whose d dimensions are those of its present vectors along ``directions`` [d, h], from ``centre`` [h].

        For embedders with a published head, whose vectors have the body's width h. The body and the learned numbers are shared.
        """
        found = Embedder(self.body, replace(self.spec, projection=len(directions)))
        assert isinstance(found.dense, nn.Linear)
        with torch.no_grad():
            found.dense.weight.copy_(directions)
            found.dense.bias.copy_(-directions @ centre)
        found.log_scale, found.null_offset = self.log_scale, self.null_offset
        return found
