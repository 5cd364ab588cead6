"""ONNX graphs of transformer bodies as bytes, without the onnx package: a graph names its weights, which are handed over beside it.

Protocol buffers are tags, lengths and numbers; the few messages that a body takes are written here (onnx.proto3 of ONNX 1.16). Attention,
GELU and scaled products of 8-bit integers are ONNX Runtime's own operators (domain com.microsoft)."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOAT, UINT8, INT8 = 1, 2, 3
"""Element types of ONNX tensors."""
IR_VERSION, OPSET, OWN_OPERATORS = 8, 17, "com.microsoft"
VARINT, BYTES, FLOAT32 = 0, 2, 5
"""Wire types of protocol buffers."""
ROUNDING: dict[str, np.ndarray] = {
    "round.least": np.array([1e-30], np.float32),
    "round.share": np.array(1 / 127, np.float32),
    "round.zero": np.array(128, np.uint8),
    "gelu.least": np.array([0.17 * 223 / 32], np.float32),
    "gelu.share": np.array(1 / 223, np.float32),
    "gelu.zero": np.array(32, np.uint8),
}
"""Constants of rounding activations to 8 bits: the smallest largest number, 1 / 127, and 128, which stands for 0. GELU is never below
-0.17: of its values 223 steps lie above 0."""


@dataclass(frozen=True)
class BodyShape:
    """Sizes of a BERT- or MPNet-shaped encoder."""

    layers: int
    heads: int
    hidden: int
    intermediate: int
    layer_norm_eps: float
    biased: bool = False  # a position bias [1, heads, t, t] is added to attention scores, as in MPNet
    eight_bit: bool = False  # weights are int8 with a scale for each output; activations are rounded as they come
    tanh_gelu: bool = False  # GELU is approximated by tanh


def body_graph(shape: BodyShape, *others: str) -> bytes:
    """Return the ONNX model from embedded tokens to final states, by external initialisers that :func:`weight_shapes` names; ``others`` are
    states inside that it puts out, too.

    Inputs are ``embedded`` float32 [b, t, h] of sequences of one length, so that no token is padding and nothing depends on what else is in
    the batch, and ``bias`` float32 [1, heads, t, t] where attention is biased; the output is ``states`` float32 [b, t, h]. Fused as it runs
    fastest: ONNX Runtime's own skip layer normalisation takes five times as long as a sum and a normalisation."""
    graph = b"".join(_field(1, node) for number in range(shape.layers) for node in _layer(shape, number))
    graph += _text(2, "body")
    graph += b"".join(_field(5, _external(name, *what)) for name, what in weight_shapes(shape).items())
    inputs: dict[str, tuple[int, tuple[int | str, ...]]] = {"embedded": (FLOAT, ("b", "t", shape.hidden))}
    if shape.biased:
        inputs["bias"] = (FLOAT, (1, shape.heads, "t", "t"))
    graph += b"".join(_field(11, _value(name, *what)) for name, what in inputs.items())
    graph += b"".join(_field(12, _value(name, FLOAT, ("b", "t", shape.hidden))) for name in ("states", *others))
    opsets = b"".join(_field(8, _text(1, domain) + _number(2, version)) for domain, version in (("", OPSET), (OWN_OPERATORS, 1)))
    return _number(1, IR_VERSION) + opsets + _field(7, graph)


def weight_shapes(shape: BodyShape) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return element type and shape of each weight of a graph, by name: matrices are [inputs, outputs]."""
    h, wide = shape.hidden, shape.intermediate
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    for number in range(shape.layers):
        for name, rows, columns in (("q", h, h), ("k", h, h), ("v", h, h), ("out", h, h), ("up", h, wide), ("down", wide, h)):
            found[f"{number}.{name}"] = (INT8 if shape.eight_bit else FLOAT, (rows, columns))
            if shape.eight_bit:
                found[f"{number}.{name}.scale"] = (FLOAT, (columns,))
        found |= {f"{number}.{name}.bias": (FLOAT, (size,)) for name, size in (("qkv", 3 * h), ("out", h), ("up", wide), ("down", h))}
        for norm in ("norm1", "norm2"):
            found |= {f"{number}.{norm}.{part}": (FLOAT, (h,)) for part in ("weight", "bias")}
    if shape.eight_bit:
        found |= {name: (UINT8 if value.dtype == np.uint8 else FLOAT, value.shape) for name, value in ROUNDING.items()}
    return found


def normalised_states(shape: BodyShape) -> dict[str, tuple[str, str, tuple[str, ...], str]]:
    """Return for each state that products take from a normalisation: the normalisation's bias, the bias and the weights of these products,
    and the bias that is added where the state is skipped to."""
    found: dict[str, tuple[str, str, tuple[str, ...], str]] = {}
    for n in range(shape.layers):
        found[f"{n}.mid"] = (f"{n}.norm1.bias", f"{n}.up.bias", (f"{n}.up",), f"{n}.down.bias")
    for n in range(1, shape.layers):
        found[f"state{n}"] = (f"{n - 1}.norm2.bias", f"{n}.qkv.bias", (f"{n}.q", f"{n}.k", f"{n}.v"), f"{n}.out.bias")
    return found


def _layer(shape: BodyShape, n: int) -> list[bytes]:
    """One post-norm transformer layer, from state n to state n + 1."""
    before = "embedded" if not n else f"state{n}"
    after = "states" if n + 1 == shape.layers else f"state{n + 1}"
    attended = [f"{n}.q.out", f"{n}.k.out", f"{n}.v.out", f"{n}.qkv.bias", *(["", "bias"] if shape.biased else [])]
    return [
        *_products(shape, n, before, "q", "k", "v"),
        _node("MultiHeadAttention", attended, [f"{n}.seen"], {"num_heads": shape.heads}, OWN_OPERATORS),
        *_products(shape, n, f"{n}.seen", "out"),
        *_normalised(shape, n, "out", before, "norm1", f"{n}.mid"),
        *_products(shape, n, f"{n}.mid", "up"),
        _node("FastGelu" if shape.tanh_gelu else "BiasGelu", [f"{n}.up.out", f"{n}.up.bias"], [f"{n}.wide"], {}, OWN_OPERATORS),
        *_products(shape, n, f"{n}.wide", "down"),
        *_normalised(shape, n, "down", f"{n}.mid", "norm2", after),
    ]


def _normalised(shape: BodyShape, n: int, name: str, before: str, norm: str, after: str) -> list[bytes]:
    """A product, its bias and what it skips, added and normalised."""
    return [
        _node("Add", [f"{n}.{name}.out", f"{n}.{name}.bias"], [f"{n}.{name}.whole"]),
        _node("Add", [f"{n}.{name}.whole", before], [f"{n}.{name}.sum"]),
        _node(
            "LayerNormalization", [f"{n}.{name}.sum", f"{n}.{norm}.weight", f"{n}.{norm}.bias"], [after], {"epsilon": shape.layer_norm_eps}
        ),
    ]


def _products(shape: BodyShape, n: int, given: str, *names: str) -> list[bytes]:
    """Linear maps of one input, without their biases."""
    weights = [f"{n}.{name}" for name in names]
    if not shape.eight_bit:
        return [_node("MatMul", [given, weight], [f"{weight}.out"]) for weight in weights]
    # Each position by its own largest number: one scale for all would be that of a few outliers, and would depend on the batch.
    kind, found, sized = ("gelu", [], given) if names == ("down",) else ("round", [_node("Abs", [given], [f"{given}.abs"])], f"{given}.abs")
    rounded, share, zero = f"{given}.rounded", f"{kind}.share", f"{kind}.zero"
    found += [
        _node("ReduceMax", [sized], [f"{given}.most"], {"axes": (2,), "keepdims": 1}),
        _node("Max", [f"{given}.most", f"{kind}.least"], [f"{given}.largest"]),
        _node("Div", [given, f"{given}.largest"], [f"{given}.parts"]),
        _node("QuantizeLinear", [f"{given}.parts", share, zero], [rounded]),
    ]
    for weight in weights:
        scaled = [rounded, weight, share, f"{weight}.scale", zero]
        found.append(_node("MatMulIntegerToFloat", scaled, [f"{weight}.parts"], domain=OWN_OPERATORS))
        found.append(_node("Mul", [f"{weight}.parts", f"{given}.largest"], [f"{weight}.out"]))
    return found


def _node(operator: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any] = {}, domain: str = "") -> bytes:
    parts = [*(_text(1, name) for name in inputs), *(_text(2, name) for name in outputs), _text(4, operator)]
    parts += [_field(5, _attribute(name, value)) for name, value in attributes.items()]
    return b"".join(parts) + (_text(7, domain) if domain else b"")


def _attribute(name: str, value: int | float | tuple[int, ...]) -> bytes:
    if isinstance(value, tuple):
        return _text(1, name) + b"".join(_number(8, one) for one in value) + _number(20, 7)
    if isinstance(value, float):
        return _text(1, name) + _tag(2, FLOAT32) + struct.pack("<f", value) + _number(20, 1)
    return _text(1, name) + _number(3, value) + _number(20, 2)


def _external(name: str, kind: int, shape: Sequence[int]) -> bytes:
    """A tensor whose numbers are handed over when the session is made."""
    place = _field(13, _text(1, "location") + _text(2, "handed over"))
    return b"".join(_number(1, size) for size in shape) + _number(2, kind) + _text(8, name) + place + _number(14, 1)


def _value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    sizes = b"".join(_field(1, _text(2, size) if isinstance(size, str) else _number(1, size)) for size in shape)
    return _text(1, name) + _field(2, _field(1, _number(1, kind) + _field(2, sizes)))


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _field(number: int, value: bytes) -> bytes:
    return _tag(number, BYTES) + _varint(len(value)) + value


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


def _number(number: int, value: int) -> bytes:
    return _tag(number, VARINT) + _varint(value)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
