"""The knowledge-augmented encoder p(y|z,x) of pre-training: a body over "[CLS] x [SEP] z [SEP]" with BERT's MLM head."""

from collections.abc import Sequence as SequenceOf
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from realm.models.bodies.body import Body, TokenInputs, at_least_float32, in_buckets
from realm.models.spec import EncoderSpec
from realm.models.types import Sequence, TokenIds


class MlmHead(nn.Module):
    """BERT's masked-language-model head with its own output bias; the decoder is tied to the word embeddings."""

    def __init__(self, hidden: int, vocab_size: int, *, layer_norm_eps: float, activation: str):
        super().__init__()
        # The exact GELU only where the body has it; "gelu_new" is another name of the approximation.
        self.approximate = "none" if activation == "gelu" else "tanh"
        self.dense = nn.Linear(hidden, hidden)
        # What the body copied from the document must reach the decoder unturned from the first step on.
        nn.init.eye_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)
        self.norm = nn.LayerNorm(hidden, eps=layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """Logits [..., v] of hidden states [..., h]."""
        return F.linear(self.norm(F.gelu(self.dense(hidden), approximate=self.approximate)), word_embeddings, self.bias)


class KnowledgeAugmentedEncoder(nn.Module):
    """Scores of the hidden wordpieces of a masked span given a candidate document (REALM, section 3.2).

    >>> from realm.models.bodies.body import BodySpec, build_body
    >>> config = {"model_type": "bert", "vocab_size": 99, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> encoder = KnowledgeAugmentedEncoder(build_body(BodySpec(config), pooler=False))
    >>> encoder.log_probs([Sequence([2, 4, 3, 9, 3], [0, 0, 0, 1, 1])], torch.tensor([[1]])).shape
    torch.Size([1, 1, 99])
    """

    def __init__(self, body: Body):
        super().__init__()
        self.body = body
        self.spec = EncoderSpec(body.spec)
        config = body.spec.config
        self.head = MlmHead(
            body.spec.hidden,
            body.spec.vocabulary,
            layer_norm_eps=float(config.get("layer_norm_eps", 1e-12)),
            activation=str(config.get("hidden_act", "gelu_pytorch_tanh")),
        )

    def mask_states(self, sequences: SequenceOf[Sequence], positions: Tensor) -> Tensor:
        """Hidden states [n, m, h] of n ragged inputs at their mask positions [n, m]."""

        def at_masks(inputs: TokenInputs, places: list[int]) -> Tensor:
            return self.body.states_at(inputs, positions[torch.tensor(places, device=positions.device)])

        return in_buckets(self.body, sequences, at_masks)

    def logits(self, states: Tensor) -> Tensor:
        """Vocabulary scores [..., v] of hidden states [..., h], in float32 or better."""
        model: Any = self.body.model
        return at_least_float32(self.head(states, model.get_input_embeddings().weight))

    def log_probs(self, sequences: SequenceOf[Sequence], positions: Tensor) -> Tensor:
        """log p over the vocabulary at each mask position. -> [n, m, v] in float32."""
        return torch.log_softmax(self.logits(self.mask_states(sequences, positions)), dim=-1)

    def forward(self, sequences: SequenceOf[Sequence], positions: Tensor, targets: Tensor, slots: Tensor | None = None) -> Tensor:
        """log p(y_j|z,x) float32 [n, m] of the targets at positions [n, m] of n joint inputs; 0 outside ``slots``, on the CPU."""
        device = targets.device
        there = torch.ones(targets.shape) if slots is None else slots
        where = tuple(places.to(device) for places in torch.nonzero(there, as_tuple=True))
        logits = self.logits(self.mask_states(sequences, positions)[where])
        found = -F.cross_entropy(logits, targets[where], reduction="none")
        return found.new_zeros(targets.shape).index_put(where, found)


def mask_slots(positions: SequenceOf[TokenIds], targets: SequenceOf[TokenIds]) -> tuple[Tensor, Tensor, Tensor]:
    """Mask positions (shifted by one for [CLS]) and targets padded to [b, m], and True at real slots."""
    where = pad_sequence([torch.tensor(p, dtype=torch.long) + 1 for p in positions], batch_first=True)
    what = pad_sequence([torch.tensor(t, dtype=torch.long) for t in targets], batch_first=True)
    return where, what, where > 0
