"""An embedder in 8-bit integers, by ONNX Runtime: for processors that multiply those much faster than floating point numbers.

Weights are rounded to 8 bits for each output by itself, activations as they come (dynamic quantisation). Vectors are those of the float32
network with cosines of about .99.
"""

import logging
import tempfile
from collections.abc import Sequence as SequenceOf
from pathlib import Path

import torch
from torch import Tensor

from realm.data.featurize import pad_batch
from realm.data.types import Sequence
from realm.errors import MissingExtra
from realm.nn.embedder import Embedder
from realm.nn.onnx import INPUTS, export_onnx

WHAT = "embedding in 8-bit integers"


def write_int8(embedder: Embedder, path: Path) -> None:
    """Write an embedder as an ONNX graph of 8-bit integers.

    Raises:
        MissingExtra: onnx, onnxruntime or onnxscript are not installed.
    """
    try:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        raise MissingExtra(WHAT, "onnx") from None
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
    """What :func:`write_int8` wrote, ready to embed.

    Args:
        path: the graph.
        threads: that one product may use.
    """

    def __init__(self, path: Path, threads: int):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = [found.name for found in self._session.get_inputs()]

    def __call__(self, sequences: SequenceOf[Sequence]) -> Tensor:
        """Embed ragged inputs of similar lengths. -> float32 [b, d]."""
        padded = pad_batch(sequences, 0)
        given = dict(zip(INPUTS, (padded.ids, padded.mask.long(), padded.segments), strict=True))
        (vectors,) = self._session.run(None, {name: given[name].numpy() for name in self._inputs})
        return torch.from_numpy(vectors)
