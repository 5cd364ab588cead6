"""Attention forth and back on a CPU: torch's fused way beside two products (realm.nn.attention), in float32 and in bfloat16.

    python benchmarks/bench_attention.py --threads 1

Milliseconds of forward and backward, the median of interleaved rounds. The last line is one JSON object.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from realm.nn.attention import by_products

SHAPES = ((16, 4, 128, 64), (13, 4, 320, 64), (8, 4, 512, 64), (64, 2, 64, 64))
"""Inputs, heads, length, width of a head."""
Way = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def fused(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)


def products(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
    return by_products(query, key, value, None, dropout)


def fused_in_float32(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
    return fused(query.float(), key.float(), value.float(), dropout).to(query.dtype)


def milliseconds(way: Way, shape: tuple[int, int, int, int], dtype: torch.dtype, dropout: float) -> float:
    """Of one forward and backward, heads beside each other in memory as a layer's projections give them."""
    b, h, t, d = shape
    query, key, value = (torch.randn(b, t, h * d, dtype=dtype).unflatten(-1, (h, d)).transpose(1, 2).requires_grad_() for _ in range(3))
    started = time.perf_counter()
    found = way(query, key, value, dropout).transpose(1, 2).flatten(2)
    found.backward(torch.ones_like(found))
    return (time.perf_counter() - started) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    both: dict[str, Way] = {"fused": fused, "products": products}
    half = both | {"fused, float32 inside": fused_in_float32}
    rows = []
    for shape in SHAPES:
        for dropout in (0.0, 0.1):
            ways = [(name, dtype) for dtype, names in ((torch.float32, both), (torch.bfloat16, half)) for name in names]
            turns = [[milliseconds(half[name], shape, dtype, dropout) for name, dtype in ways] for _ in range(options.rounds + 1)][1:]
            taken = [round(statistics.median(column), 1) for column in zip(*turns, strict=True)]
            row = {f"{str(dtype).removeprefix('torch.')}: {name}": value for (name, dtype), value in zip(ways, taken, strict=True)}
            rows.append({"shape": shape, "dropout": dropout, **row})
            print(rows[-1], flush=True)
    print(json.dumps({"benchmark": "attention", "threads": options.threads, "torch": torch.__version__, "rows": rows}))


if __name__ == "__main__":
    main()
