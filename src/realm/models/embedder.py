"""The embedder: a body, a projection to d dimensions and a LayerNorm (REALM, section 3.2; ``projected`` in the released code)."""

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from realm.models.bodies.body import Body, answering, at_least_float32, in_buckets, multiplying
from realm.models.spec import EmbedderSpec
from realm.models.types import Sequence


class Embedder(nn.Module):
    """e = LayerNorm(W pooled + b), d = 128; relevance is the plain inner product of two embeddings.

    >>> from realm.models.bodies.body import BodySpec, build_body
    >>> config = {"model_type": "bert", "vocab_size": 99, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> body = build_body(BodySpec(config), pooler=True)
    >>> Embedder(body, EmbedderSpec(body.spec, projection=8)).embed_queries([Sequence([2, 7, 3], [0, 0, 0])]).shape
    torch.Size([1, 8])

    The head "projection" is that formula. Published sentence embedders have "none", the pooled vector, or "unit", the same at length 1; a
    ``spec.projection`` below the body's width adds a linear map, and "unit" then normalises before and after it. ``log_scale`` is the
    logarithm of the learned factor on relevance, ``null_offset`` the learned addition to the null document's; None without them."""

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
        """Embeddings [b, d] of ragged inputs, with dropout in training."""
        return self.dropout(self.head(in_buckets(self.body, sequences, lambda inputs, _: self.body.pooled(inputs))))

    def embed_queries(self, sequences: SequenceOf[Sequence]) -> Tensor:
        """Query embeddings [b, d] in float32 or better, scaled so that inner products with documents are relevance scores."""
        embedded = at_least_float32(self(sequences))
        return embedded if self.log_scale is None else embedded * self.log_scale.exp()

    def embed_questions(self, sequences: SequenceOf[Sequence]) -> np.ndarray:
        """:meth:`embed_queries` without gradient and dropout, for a search: float32 [b, d]."""
        with answering(self):
            return self.embed_queries(sequences).float().cpu().numpy()

    def embed_blocks(self, sequences: SequenceOf[Sequence], *, bf16: bool = False) -> np.ndarray:
        """The document side's embeddings without gradient and dropout, with products in bfloat16 if wanted: float32 [b, d]."""
        with answering(self), multiplying(next(self.parameters()).device.type, bf16=bf16):
            return self(sequences).float().cpu().numpy()

    def head(self, pooled: Tensor) -> Tensor:
        """Embeddings [b, d] of pooled vectors [b, h], without dropout."""
        vectors = at_least_float32(pooled)
        if self.unit and isinstance(self.dense, nn.Linear):
            vectors = F.normalize(vectors, dim=-1)
        vectors = at_least_float32(self.norm(self.dense(vectors)))
        return F.normalize(vectors, dim=-1) if self.unit else vectors
