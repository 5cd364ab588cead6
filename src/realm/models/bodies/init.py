"""Structured start of a BERT that learns from nothing: within minutes on a CPU it can copy a name from a document.

The encoder helps the retriever only once it copies, for which random weights need thousands of steps (Trockman and Kolter 2023, "Mimetic
initialization of self-attention layers"). The first layer attends to neighbours, the second to wordpieces with similar neighbours, a third
to the surroundings and, by one head, to the question, without which a reader long ignores it."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

EMBEDDING_STD = 0.1  # lets a tied decoder single out a wordpiece from the start; BERT's 0.02 grows to that slowly
MAX_FREQUENCY, MIN_FREQUENCY = 3.0, 0.03  # radians per position of the fastest and the slowest sinusoid
NEIGHBOUR_SHARPNESS = 1.5
MATCH_SHARPNESS = 0.4
AROUND_SHARPNESS = 1.5
QUESTION_LOGIT = 4.0  # a question of 16 wordpieces before a document of 84 then starts with 0.97 of the weight


class Undrawn(TorchFunctionMode):
    """Build networks with zeros where random numbers would be drawn, for weights that are loaded next.

    Drawing took longer than loading. Uninitialised memory would not do: torch redraws truncated normal numbers until all are in bounds."""

    DRAWS = ("normal_", "uniform_", "kaiming_uniform_", "xavier_uniform_")  # by name, because transformers replaces torch's functions

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if getattr(function, "__name__", "") in self.DRAWS:
            tensor = arguments[0] if arguments else keywords["tensor"]
            with torch.no_grad():
                return tensor.zero_()
        return function(*arguments, **(keywords or {}))


@torch.no_grad()
def start_copying(model: Any) -> None:
    """Give a BERT with at least two layers and heads of at least 32 dimensions a start from which it soon learns to copy."""
    hidden = model.config.hidden_size
    heads = model.config.num_attention_heads
    layers = model.encoder.layer
    if len(layers) < 2 or heads < 2 or hidden // heads < 32:
        return
    frequencies = torch.logspace(math.log10(MAX_FREQUENCY), math.log10(MIN_FREQUENCY), hidden // 2)
    nn.init.normal_(model.embeddings.word_embeddings.weight, std=EMBEDDING_STD)
    start_positions(model.embeddings.position_embeddings.weight, frequencies)
    segments = nn.init.normal_(model.embeddings.token_type_embeddings.weight, std=EMBEDDING_STD)
    segments[2:] += segments[1]  # marks within a document (``models/featurize.py``): parts of it first of all
    waves, width = torch.eye(hidden), hidden // heads  # the fastest first
    look_aside(layers[0].attention.self, frequencies, waves[:width] * NEIGHBOUR_SHARPNESS, 1)
    pass_on(layers[0].attention, undo=False)
    match(layers[1].attention.self, hidden)
    pass_on(layers[1].attention, undo=True)
    if len(layers) > 2:
        look_aside(layers[2].attention.self, frequencies, waves[width // 4 : width // 4 + width] * AROUND_SHARPNESS, 4)
        pass_on(layers[2].attention, undo=True)
        look_at_question(layers[2].attention, model.embeddings.token_type_embeddings.weight, heads)


def start_positions(weight: Tensor, frequencies: Tensor) -> None:
    """Fill position embeddings [t, h] with sinusoids as large as word embeddings: an offset is then a rotation."""
    angle = torch.arange(weight.shape[0]).unsqueeze(1) * frequencies
    weight[:, 0::2] = angle.sin() * EMBEDDING_STD * math.sqrt(2)
    weight[:, 1::2] = angle.cos() * EMBEDDING_STD * math.sqrt(2)


def rotation(frequencies: Tensor, offset: int) -> Tensor:
    """Rotation matrix [h, h] from the sinusoids of position t to those of t + offset."""
    cos, sin = (frequencies * offset).cos(), (frequencies * offset).sin()
    even = torch.arange(0, 2 * len(frequencies), 2)
    matrix = torch.zeros(2 * len(frequencies), 2 * len(frequencies))
    matrix[even, even], matrix[even, even + 1] = cos, sin
    matrix[even + 1, even], matrix[even + 1, even + 1] = -sin, cos
    return matrix


def look_aside(attention: Any, frequencies: Tensor, sinusoids: Tensor, reach: int) -> None:
    """Point the first head ``reach`` positions back and the second as far ahead, by ``sinusoids`` [w, h]; other heads stay random."""
    width = len(sinusoids)
    for head, offset in ((0, -reach), (1, reach)):
        rows = slice(head * width, (head + 1) * width)
        attention.key.weight[rows] = sinusoids
        attention.query.weight[rows] = sinusoids @ rotation(frequencies, offset)


def look_at_question(attention: Any, segments: Tensor, heads: int) -> None:
    """Point one head (of two, the second of :func:`look_aside`) at the whole first segment by a bias, its output turned away."""
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
    """Make query and key maps agree: a position attends to positions in a similar state."""
    turn = nn.init.orthogonal_(torch.empty(hidden, hidden)) * MATCH_SHARPNESS
    attention.query.weight.copy_(turn)
    attention.key.weight.copy_(turn)


def pass_on(attention: Any, *, undo: bool) -> None:
    """Draw value and output maps that keep lengths; with ``undo`` the output map inverts the value map."""
    value = nn.init.orthogonal_(torch.empty_like(attention.self.value.weight))
    attention.self.value.weight.copy_(value)
    attention.output.dense.weight.copy_(value.T if undo else nn.init.orthogonal_(torch.empty_like(value)))
