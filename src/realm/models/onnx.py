"""Embedder and reader as ONNX graphs of token inputs int64 [b, t]: projected float32 [b, d], or span_logits float32 [b, t, w].

``span_logits[i, s, n]`` scores the span from position s to s + n; the caller keeps spans inside the block, adds its relevance and takes one
softmax over all. Vectors of an embedder in 8-bit integers have cosines of about .99 with the float32 ones.
"""

import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence as SequenceOf
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from realm.errors import MissingExtra
from realm.models.bodies.body import TokenInputs, pad_batch
from realm.models.embedder import Embedder
from realm.models.reader import Reader
from realm.models.types import Sequence

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


def write_int8(embedder: Embedder, path: Path) -> None:
    """Write an embedder as an ONNX graph of 8-bit integers. Raises MissingExtra: onnx, onnxruntime or onnxscript are not installed."""
    try:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        raise MissingExtra("embedding in 8-bit integers", "onnx") from None
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        whole = Path(scratch) / "embedder.onnx"
        export_onnx(embedder, whole)
        graph = onnx.load(whole)
        del graph.graph.value_info[:]  # shapes that torch's exporter noted: where it transposed a weight they are those of before
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)  # it advises a preparation that changes nothing here
        try:
            quantize_dynamic(graph, path, weight_type=QuantType.QInt8, per_channel=True)
        finally:
            logging.disable(before)


class Int8Embedder:
    """Embedder in 8-bit integers from the graph of :func:`write_int8`, with CPU ``threads`` per product."""

    def __init__(self, path: Path, threads: int):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = [found.name for found in self._session.get_inputs()]

    def __call__(self, sequences: SequenceOf[Sequence]) -> Tensor:
        """Embed ragged inputs of similar lengths. -> float32 [b, d]."""
        padded = pad_batch(sequences, 0)
        given = dict(zip(INPUT_NAMES, (padded.ids, padded.mask.long(), padded.segments), strict=True))
        (vectors,) = self._session.run(None, {name: given[name].numpy() for name in self._inputs})
        return torch.from_numpy(vectors)


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
