"""ONNX graphs of transformer bodies as bytes, without the onnx package: a graph names its weights, which are handed over beside it.

Protocol buffers are tags, lengths and numbers; the few messages that a body takes are written here (onnx.proto3 of ONNX 1.16). Attention,
skip layer normalisation and products of 8-bit integers are ONNX Runtime's own operators (domain com.microsoft).
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FLOAT, UINT8, INT8, INT32 = 1, 2, 3, 6
"""Element types of ONNX tensors."""
IR_VERSION, OPSET, OWN_OPERATORS = 8, 17, "com.microsoft"
VARINT, BYTES, FLOAT32 = 0, 2, 5
"""Wire types of protocol buffers."""
ROUNDED_TOGETHER = frozenset({"qkv", "out"})
"""Products whose activations share one scale, which costs no accuracy there and a third of the time."""
ROUNDING = {"round.share": (FLOAT, (1,)), "round.least": (FLOAT, (1,)), "round.shift": (FLOAT, (1,)), "round.zero": (UINT8, ())}
"""Constants of rounding activations to 8 bits: 1 / 127, the smallest largest number, and 128, which stands for 0."""


@dataclass(frozen=True)
class BodyShape:
    """Sizes of a BERT- or MPNet-shaped encoder.

    Attributes:
        biased: whether a position bias [1, heads, t, t] is added to attention scores, as in MPNet.
        tanh_gelu: whether GELU is approximated by tanh.
        eight_bit: whether weights are int8 with a scale for each output; activations are then rounded as they come.
    """

    layers: int
    heads: int
    hidden: int
    intermediate: int
    layer_norm_eps: float
    biased: bool = False
    eight_bit: bool = False
    tanh_gelu: bool = False


def body_graph(shape: BodyShape) -> bytes:
    """Return the ONNX model from embedded tokens to final states.

    Inputs are ``embedded`` float32 [b, t, h], ``lengths`` int32 [b], and ``bias`` float32 [1, heads, t, t] where attention is biased; the
    output is ``states`` float32 [b, t, h]. Weights are external initialisers, named and shaped by :func:`weight_shapes`.
    """
    graph = b"".join(_field(1, node) for number in range(shape.layers) for node in _layer(shape, number))
    graph += _text(2, "body")
    graph += b"".join(_field(5, _external(name, *what)) for name, what in weight_shapes(shape).items())
    inputs = {"embedded": (FLOAT, ("b", "t", shape.hidden)), "lengths": (INT32, ("b",))}
    if shape.biased:
        inputs["bias"] = (FLOAT, (1, shape.heads, "t", "t"))
    graph += b"".join(_field(11, _value(name, *what)) for name, what in inputs.items())
    graph += _field(12, _value("states", FLOAT, ("b", "t", shape.hidden)))
    opsets = b"".join(_field(8, _text(1, domain) + _number(2, version)) for domain, version in (("", OPSET), (OWN_OPERATORS, 1)))
    return _number(1, IR_VERSION) + opsets + _field(7, graph)


def weight_shapes(shape: BodyShape) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return element type and shape of each weight of a graph, by name: matrices are [inputs, outputs]."""
    h, wide = shape.hidden, shape.intermediate
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    for number in range(shape.layers):
        for name, rows, columns in (("qkv", h, 3 * h), ("out", h, h), ("up", h, wide), ("down", wide, h)):
            found[f"{number}.{name}"] = (INT8 if shape.eight_bit else FLOAT, (rows, columns))
            if shape.eight_bit:
                found[f"{number}.{name}.scale"] = (FLOAT, (columns,))
            found[f"{number}.{name}.bias"] = (FLOAT, (columns,))
        for norm in ("norm1", "norm2"):
            found |= {f"{number}.{norm}.{part}": (FLOAT, (h,)) for part in ("weight", "bias")}
    return found | ROUNDING if shape.eight_bit else found


def _layer(shape: BodyShape, n: int) -> list[bytes]:
    """One post-norm transformer layer, from state n to state n + 1."""
    before = "embedded" if not n else f"state{n}"
    after = "states" if n + 1 == shape.layers else f"state{n + 1}"
    eps = {"epsilon": shape.layer_norm_eps}
    attended = [f"{n}.q", f"{n}.k", f"{n}.v", "", "lengths", *(["bias"] if shape.biased else [])]
    return [
        *_product(shape, n, "qkv", before),
        _node("Split", [f"{n}.qkv.out"], [f"{n}.q", f"{n}.k", f"{n}.v"], {"axis": 2}),
        _node("MultiHeadAttention", attended, [f"{n}.seen"], {"num_heads": shape.heads}, OWN_OPERATORS),
        *_product(shape, n, "out", f"{n}.seen"),
        _node("SkipLayerNormalization", [f"{n}.out.out", before, *_norm(n, 1)], [f"{n}.mid"], eps, OWN_OPERATORS),
        *_product(shape, n, "up", f"{n}.mid"),
        _node("FastGelu" if shape.tanh_gelu else "Gelu", [f"{n}.up.out"], [f"{n}.wide"], {}, OWN_OPERATORS),
        *_product(shape, n, "down", f"{n}.wide"),
        _node("SkipLayerNormalization", [f"{n}.down.out", f"{n}.mid", *_norm(n, 2)], [after], eps, OWN_OPERATORS),
    ]


def _norm(n: int, which: int) -> list[str]:
    return [f"{n}.norm{which}.weight", f"{n}.norm{which}.bias"]


def _product(shape: BodyShape, n: int, name: str, given: str) -> list[bytes]:
    """A linear map with its bias."""
    weight, bias, out = f"{n}.{name}", f"{n}.{name}.bias", f"{n}.{name}.out"
    if not shape.eight_bit:
        return [_node("MatMul", [given, weight], [f"{out}.raw"]), _node("Add", [f"{out}.raw", bias], [out])]
    if name in ROUNDED_TOGETHER:
        return [_node("DynamicQuantizeMatMul", [given, weight, f"{weight}.scale", "", bias], [out], domain=OWN_OPERATORS)]

    def step(operator: str, *inputs: str, **attributes: int | tuple[int, ...]) -> str:
        found.append(_node(operator, inputs, [f"{out}.{len(found)}"], attributes))
        return f"{out}.{len(found) - 1}"

    # Each position by its own largest number: one scale for all would be that of a few outliers (cosines of .9957 instead of .9978).
    found: list[bytes] = []
    largest = step("Max", step("ReduceMax", step("Abs", given), axes=(2,), keepdims=1), "round.least")
    scale = step("Mul", largest, "round.share")
    whole = step("Cast", step("Round", step("Add", step("Div", given, scale), "round.shift")), to=UINT8)
    product = step("Cast", step("MatMulInteger", whole, weight, "round.zero"), to=FLOAT)
    scaled = step("Mul", step("Mul", product, scale), f"{weight}.scale")
    return [*found, _node("Add", [scaled, bias], [out])]


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
