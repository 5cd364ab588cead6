"""How far two sides are apart: per tensor max|a - b| / max|b|."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from ours import Pair

BOUNDS = {"float64": 1e-10, "float32": 1e-5}
"""float64 is the proof, float32 the smoke test."""
CANCELLED = (".attention.self.key.bias", "qa_outputs.dense_output.bias", "qa_outputs.layer_normalization.bias")
"""A softmax does not feel a constant: these gradients are sums that cancel, and what is left of them is rounding on both sides."""
ROUNDING = 1e4


@dataclass(frozen=True)
class Difference:
    """``value`` is max|a - b| / max|b|, inf where only one side is zero; ``rounding`` the published side against its own float64."""

    group: str
    name: str
    value: float
    zero: bool
    rounding: float = 0.0


def differences(pairs: Iterable[Pair], precision: str) -> list[Difference]:
    """The difference of each pair of one case."""
    kept = list(pairs)
    # What rounding leaves of a cancelled sum is measured against the largest gradient of the case.
    largest = max((float(p.theirs.abs().max()) for p in kept if p.group == "gradients"), default=0.0)
    floor = ROUNDING * torch.finfo(getattr(torch, precision)).eps * largest
    return [difference(pair, floor if pair.group == "gradients" and pair.name.endswith(CANCELLED) else 0.0) for pair in kept]


def difference(pair: Pair, floor: float) -> Difference:
    """max|a - b| / max|b|; a pair that is nowhere above ``floor`` counts as zero in both. Whole numbers must be equal."""
    ours, theirs = pair.ours, pair.theirs
    if ours.shape != theirs.shape or ours.is_floating_point() != theirs.is_floating_point():
        return Difference(pair.group, pair.name, math.inf, False)
    if not ours.is_floating_point():
        return Difference(pair.group, pair.name, 0.0 if torch.equal(ours, theirs) else math.inf, False)
    if ours.numel() == 0 or max(float(ours.abs().max()), float(theirs.abs().max())) <= floor:
        return Difference(pair.group, pair.name, 0.0, True)
    gap, scale = float((ours - theirs).abs().max()), float(theirs.abs().max())
    value = gap / scale if scale and math.isfinite(gap) else math.inf
    rounding = float((theirs - pair.exact).abs().max()) / scale if scale else 0.0
    return Difference(pair.group, pair.name, value, False, rounding)
