"""The embedder: a body, a projection to d dimensions and a LayerNorm (REALM, section 3.2; released code's ``projected``)."""

from collections.abc import Sequence as SequenceOf

from torch import Tensor, nn

from realm.data.types import Sequence
from realm.nn.bodies import Body, at_least_float32, in_buckets


class Embedder(nn.Module):
    """e = LayerNorm(W pooled + b), d = 128; the relevance score is the plain inner product of two embeddings.

    Args:
        body: pooled as its specification says.
        projection: d.
        layer_norm_eps: 1e-12 matches published weights.
        dropout: on the normalised projection, in training only, as in the released code.
    """

    def __init__(self, body: Body, *, projection: int, layer_norm_eps: float, dropout: float):
        super().__init__()
        self.body = body
        self.dense = nn.Linear(body.spec.hidden, projection)
        nn.init.xavier_uniform_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)
        self.norm = nn.LayerNorm(projection, eps=layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, sequences: SequenceOf[Sequence]) -> Tensor:
        """Embed ragged inputs, in length buckets so that little padding is computed. -> [b, d] in the order given."""
        pooled = in_buckets(sequences, self.dense.weight.device, lambda inputs, _: self.body.pooled(inputs))
        return self.dropout(self.norm(self.dense(at_least_float32(pooled))))
