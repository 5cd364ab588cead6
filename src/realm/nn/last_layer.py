"""The last layer of a BERT body only where its states are read: at [CLS] in an embedder, at the masks in an encoder.

Every position is needed below, because each is attended to; of the last layer's output only what is read counts. So its queries, its
attention and its feed-forward net run over a few positions instead of all: the same numbers for a share of the work that is large in
small bodies (with two layers nearly half of the step).
"""

from typing import Any

import torch
from torch import Tensor, nn

from realm.data.types import TokenInputs
from realm.nn.attention import NAME, attend

BERT_LIKE = ("bert", "roberta", "xlm-roberta")
"""Model types whose layers are made of the modules that :func:`states_at` calls."""


def has_bert_layers(model: nn.Module) -> bool:
    """Whether the body is a BERT with the attention of :func:`realm.nn.attention.attend`, so that :func:`states_at` can run it."""
    config: Any = model.config
    return config.model_type in BERT_LIKE and config._attn_implementation == NAME


def states_at(model: Any, inputs: TokenInputs, segments: Tensor | None, positions: Tensor) -> Tensor:
    """Final hidden states at a few positions of each row.

    Args:
        model: a body with :func:`has_bert_layers`.
        inputs: b padded rows.
        segments: segment ids, or None for a body that is not fed any.
        positions: [b, m].

    Returns:
        [b, m, h].
    """
    # torch's attention takes its faster path where there is nothing to mask.
    keep = None if inputs.unpadded else inputs.mask[:, None, None, :]
    words = {"input_ids": inputs.ids} if inputs.words is None else {"inputs_embeds": inputs.words}
    hidden = model.embeddings(**words, token_type_ids=segments)
    for layer in model.encoder.layer[:-1]:
        hidden = layer(hidden, keep)
    return _layer_at(model.encoder.layer[-1], hidden, keep, positions)


def _layer_at(layer: Any, hidden: Tensor, keep: Tensor | None, positions: Tensor) -> Tensor:
    """One layer's output at ``positions`` [b, m]: every position is looked at, only these look."""
    read = hidden.gather(1, positions.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
    attention = layer.attention.self

    def heads(values: Tensor) -> Tensor:
        return values.unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)

    query, key, value = heads(attention.query(read)), heads(attention.key(hidden)), heads(attention.value(hidden))
    dropout = attention.dropout.p if attention.training else 0.0
    found = attend(query, key, value, keep, dropout)
    attended = layer.attention.output(found.transpose(1, 2).flatten(2), read)
    output: Tensor = layer.feed_forward_chunk(attended)
    return output


def first_positions(inputs: TokenInputs) -> Tensor:
    """Position 0 of each row, [b, 1]."""
    return torch.zeros_like(inputs.ids[:, :1], dtype=torch.long)
