"""Embedder and reader as ONNX graphs, for programs without Python: padded token inputs in, embeddings or span scores out.

    embedder.onnx   input_ids, attention_mask, token_type_ids int64 [b, t]  ->  projected float32 [b, d]
    reader.onnx     the same                                                ->  span_logits float32 [b, t, w]

``span_logits[i, s, n]`` scores the span from position s to s + n. The caller keeps the spans inside the block part, adds the relevance
score of the block and takes one softmax over all, as ``read_candidates`` does. Both sizes b and t are free.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from realm.data.types import TokenInputs
from realm.errors import MissingExtra
from realm.nn.embedder import Embedder
from realm.nn.reader import Reader

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OPSET = 18


class _EmbedderGraph(nn.Module):
    def __init__(self, embedder: Embedder):
        super().__init__()
        self.embedder = embedder

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        return self.embedder.head(self.embedder.body.pooled(TokenInputs(input_ids, attention_mask.bool(), token_type_ids)))


class _ReaderGraph(nn.Module):
    def __init__(self, reader: Reader):
        super().__init__()
        self.reader = reader

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        states = self.reader.body(TokenInputs(input_ids, attention_mask.bool(), token_type_ids))
        return self.reader.span_logits(states)


def export_onnx(network: Embedder | Reader, path: Path) -> None:
    """Write one network as an ONNX graph.

    Args:
        network: an embedder or a reader; it is left in evaluation mode.
        path: the ``.onnx`` file; weights beyond ONNX's 2 GB limit would lie beside it.

    Raises:
        MissingExtra: onnx and onnxscript are not installed.
    """
    try:
        import onnxscript  # noqa: F401  torch's exporter needs it and says so in many lines
    except ImportError:
        raise MissingExtra("the ONNX export", "onnx") from None
    graph = _EmbedderGraph(network) if isinstance(network, Embedder) else _ReaderGraph(network)
    name = "projected" if isinstance(network, Embedder) else "span_logits"
    ids = torch.arange(24).view(2, 12) % 7
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0  # with padding, so that the mask is part of the graph
    sizes: Any = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2)}
    with _quiet():
        torch.onnx.export(
            graph.eval(),
            (ids, mask, torch.zeros_like(ids)),
            path,
            input_names=list(INPUTS),
            output_names=[name],
            dynamic_shapes=(sizes, sizes, sizes),
            opset_version=OPSET,
            external_data=False,
            dynamo=True,
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter remarks on operators of packages that are not installed and on names it chose; none of it is the user's to cure."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
