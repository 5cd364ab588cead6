"""What a step needs and what a machine gives: floating-point operations over real tokens, the peak of matrix products."""

import time
from collections.abc import Callable

import torch

from realm.nn.spec import BodySpec
from step_batch import Workload


def body_flops(spec: BodySpec, length: int, read: int) -> float:
    """Of one forward pass over one input whose last states are read at ``read`` positions; what nothing reads is not counted."""
    h, layers, inner = spec.hidden, int(spec.config["num_hidden_layers"]), int(spec.config["intermediate_size"])
    whole = length * (8 * h * h + 4 * h * inner) + 4 * length * length * h
    last = length * 4 * h * h + read * (4 * h * h + 4 * h * inner) + 4 * read * length * h
    return (layers - 1) * whole + last


def step_flops(spec: BodySpec, projection: int, work: Workload) -> float:
    """Of forward and backward over real tokens: no padding, no repeated document, no logits but at the masks."""
    h, v = spec.hidden, int(spec.config["vocab_size"])
    (_, k), (_, _, slots) = work.retrieved.block_ids.shape, work.masks()
    masks = slots.sum(1).repeat_interleave(k).tolist()
    embedded = [*work.query_inputs(), *work.different_blocks()[0]]
    forward = sum(body_flops(spec, len(s), 1) + 2 * h * h + 2 * h * projection for s in embedded)
    forward += sum(body_flops(spec, len(s), m) + m * (2 * h * h + 2 * h * v) for s, m in zip(work.joint(), masks, strict=True))
    return 3 * forward


def gemm_peak(
    width: int, inner: int, dtype: torch.dtype, *, device: str = "cpu", rows: int = 4096, clock: Callable[[], float] = time.perf_counter
) -> float:
    """FLOP/s of a body's largest matrix product, the best of several; by the clock of processor time, FLOP for a second of that."""
    a, b = torch.randn(rows, width, dtype=dtype, device=device), torch.randn(width, inner, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(10):
        wait(device)
        started = clock()
        a @ b
        wait(device)
        best = min(best, clock() - started)
    return 2 * rows * width * inner / best


def wait(device: str) -> None:
    """Until an accelerator has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
