"""Embedder and reader as ONNX graphs of token inputs int64 [b, t]: projected float32 [b, d], or span_logits float32 [b, t, w].

``span_logits[i, s, n]`` scores the span from position s to s + n; the caller keeps spans inside the block, adds its relevance and takes one
softmax over all.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from realm.errors import MissingExtra
from realm.models.bodies.body import TokenInputs
from realm.models.embedder import Embedder
from realm.models.reader import Reader

INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 18


class _Graph(nn.Module):
    """A network over plain tensors, as torch's exporter wants it."""

    def __init__(self, network: Embedder | Reader):
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        inputs, network = TokenInputs(input_ids, attention_mask.bool(), token_type_ids), self.network
        return network.head(network.body.pooled(inputs)) if isinstance(network, Embedder) else network.span_logits(network.body(inputs))


def export_onnx(network: Embedder | Reader, path: Path) -> None:
    """Write one network, left in evaluation mode, as an ``.onnx`` file. Raises MissingExtra: onnx and onnxscript are not installed."""
    try:
        import onnxscript  # noqa: F401  torch's exporter needs it and says so in many lines
    except ImportError:
        raise MissingExtra("the ONNX export", "onnx") from None
    name = "projected" if isinstance(network, Embedder) else "span_logits"
    ids = torch.arange(24).view(2, 12) % 7
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0  # with padding, so that the mask is part of the graph
    sizes: Any = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2)}
    with _quiet():
        torch.onnx.export(
            _Graph(network).eval(),
            (ids, mask, torch.zeros_like(ids)),
            path,
            input_names=list(INPUT_NAMES),
            output_names=[name],
            dynamic_shapes=(sizes, sizes, sizes),
            opset_version=OPSET,
            external_data=False,
            dynamo=True,
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks on packages that are not installed and on names it chose."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
