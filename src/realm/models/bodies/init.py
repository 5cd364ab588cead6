"""How a body from nothing starts: so that it can learn to copy from a document within minutes on a CPU.

The encoder is useful to the retriever only once it copies a name from where its context stands in the document. Random weights need
many thousands of steps to find that circuit. Structured starts are known to spare most of that time (sinusoids for learned positions,
query and key maps that agree, value and output maps that undo each other: Trockman and Kolter 2023, "Mimetic initialization of
self-attention layers"). Here the first layer starts by looking at the wordpieces before and after, the second by looking for wordpieces
with like neighbours and passing on what it finds. A third, if there is one, takes in the words around and, with a head of its own, the
question: without that head a reader learns what an answer looks like long before it heeds what was asked. Everything stays trainable;
weights that are loaded later overwrite it all.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

EMBEDDING_STD = 0.1
"""A tied decoder must be able to point at one wordpiece of thousands from the start; BERT's 0.02 takes long to grow to that."""
FASTEST, SLOWEST = 3.0, 0.03
"""Radians a position of the fastest and the slowest sinusoid: neighbours are told apart, positions of a block too."""
NEIGHBOUR_SHARPNESS = 1.5
MATCH_SHARPNESS = 0.4
AROUND_SHARPNESS = 1.5
QUESTION_LOGIT = 4.0
"""Before the softmax, by design; at the start a question of 16 wordpieces before a document of 84 gets 0.97 of the weight."""


class Undrawn(TorchFunctionMode):
    """Networks built under this get zeros where random numbers would be drawn: their weights are loaded next.

    Drawing took longer than loading: half of the seconds before a first answer. (Zeros and not what was in memory: torch draws
    truncated normal numbers again until all are within bounds.)
    """

    DRAWS = ("normal_", "uniform_", "kaiming_uniform_", "xavier_uniform_")
    """By name: transformers puts functions of its own in the place of torch's."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if getattr(function, "__name__", "") in self.DRAWS:
            tensor = arguments[0] if arguments else keywords["tensor"]
            with torch.no_grad():
                return tensor.zero_()
        return function(*arguments, **(keywords or {}))


@torch.no_grad()
def start_copying(model: Any) -> None:
    """Give a BERT model of at least two layers with heads of at least 32 dimensions a start from which it quickly learns to copy."""
    hidden = model.config.hidden_size
    heads = model.config.num_attention_heads
    layers = model.encoder.layer
    if len(layers) < 2 or heads < 2 or hidden // heads < 32:
        return
    frequencies = torch.logspace(math.log10(FASTEST), math.log10(SLOWEST), hidden // 2)
    nn.init.normal_(model.embeddings.word_embeddings.weight, std=EMBEDDING_STD)
    start_positions(model.embeddings.position_embeddings.weight, frequencies)
    segments = nn.init.normal_(model.embeddings.token_type_embeddings.weight, std=EMBEDDING_STD)
    segments[2:] += segments[1]  # marks within a document (``models/featurize.py``): parts of it first of all
    look_at_neighbours(layers[0].attention.self, frequencies, heads)
    pass_on(layers[0].attention, undo=False)
    match(layers[1].attention.self, hidden)
    pass_on(layers[1].attention, undo=True)
    if len(layers) > 2:
        look_around(layers[2].attention.self, frequencies, heads)
        pass_on(layers[2].attention, undo=True)
        look_at_question(layers[2].attention, model.embeddings.token_type_embeddings.weight, heads)


def start_positions(weight: Tensor, frequencies: Tensor) -> None:
    """Sinusoids of the word embeddings' spread in learned position embeddings [t, h]: an offset is then a rotation."""
    angle = torch.arange(weight.shape[0]).unsqueeze(1) * frequencies
    weight[:, 0::2] = angle.sin() * EMBEDDING_STD * math.sqrt(2)
    weight[:, 1::2] = angle.cos() * EMBEDDING_STD * math.sqrt(2)


def rotation(frequencies: Tensor, offset: int) -> Tensor:
    """The matrix [h, h] that turns the sinusoids of position t into those of position t + offset."""
    cos, sin = (frequencies * offset).cos(), (frequencies * offset).sin()
    even = torch.arange(0, 2 * len(frequencies), 2)
    matrix = torch.zeros(2 * len(frequencies), 2 * len(frequencies))
    matrix[even, even], matrix[even, even + 1] = cos, sin
    matrix[even + 1, even], matrix[even + 1, even + 1] = -sin, cos
    return matrix


def look_at_neighbours(attention: Any, frequencies: Tensor, heads: int) -> None:
    """The first head looks one position back, the second one ahead, by the fastest sinusoids; other heads keep random weights."""
    hidden = 2 * len(frequencies)
    width = hidden // heads
    fastest = torch.eye(hidden)[:width] * NEIGHBOUR_SHARPNESS
    for head, offset in ((0, -1), (1, 1)):
        rows = slice(head * width, (head + 1) * width)
        attention.key.weight[rows] = fastest
        attention.query.weight[rows] = fastest @ rotation(frequencies, offset)


def look_around(attention: Any, frequencies: Tensor, heads: int) -> None:
    """Two heads take in the stretch before and the stretch behind, by slower sinusoids: a name is read with the words around it."""
    hidden = 2 * len(frequencies)
    width = hidden // heads
    slower = torch.eye(hidden)[width // 4 : width // 4 + width] * AROUND_SHARPNESS
    for head, offset in ((0, -4), (1, 4)):
        rows = slice(head * width, (head + 1) * width)
        attention.key.weight[rows] = slower
        attention.query.weight[rows] = slower @ rotation(frequencies, offset)


def look_at_question(attention: Any, segments: Tensor, heads: int) -> None:
    """One head takes in the whole first segment from everywhere, by a bias; what it passes on is turned away from all else.

    With two heads it takes the place of the second head of :func:`look_around`.
    """
    width = segments.shape[1] // heads
    head = min(2, heads - 1)
    rows = slice(head * width, (head + 1) * width)
    towards = segments[0] - segments[1]
    query, key = attention.self.query, attention.self.key
    for side in (query, key):
        nn.init.normal_(side.weight[rows], std=0.02)
        nn.init.zeros_(side.bias[rows])
    query.weight[rows.start] = 0.0
    query.bias[rows.start] = QUESTION_LOGIT * math.sqrt(width) / 5
    key.weight[rows.start] = towards / towards.norm()
    turn = nn.init.orthogonal_(torch.empty_like(attention.output.dense.weight))
    attention.output.dense.weight[:, rows] = turn[:, rows]


def match(attention: Any, hidden: int) -> None:
    """Query and key maps agree: a position looks at positions in a like state."""
    turn = nn.init.orthogonal_(torch.empty(hidden, hidden)) * MATCH_SHARPNESS
    attention.query.weight.copy_(turn)
    attention.key.weight.copy_(turn)


def pass_on(attention: Any, *, undo: bool) -> None:
    """Value and output maps that keep the length of what is attended to; with ``undo`` they give it back unturned."""
    value = nn.init.orthogonal_(torch.empty_like(attention.self.value.weight))
    attention.self.value.weight.copy_(value)
    attention.output.dense.weight.copy_(value.T if undo else nn.init.orthogonal_(torch.empty_like(value)))
