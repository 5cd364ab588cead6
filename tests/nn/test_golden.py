"""Parity with the published classes without their environment: tiny cases that `make parity`'s published side wrote, one a class."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from cases import KINDS
from measure import BOUNDS, Difference, difference, differences
from ours import Pair, compare_case
from safetensors import safe_open
from safetensors.torch import load_file, save_file

GOLDEN = Path(__file__).parent / "golden"
GRADIENTS = {"embedder": 43, "scorer": 86, "encoder": 43, "reader": 44, "openqa": 86}
"""Parameters that are in a loss and, of encoder and reader, the relevance scores: each has a gradient on both sides."""


def results(kind: str, precision: str, directory: Path = GOLDEN) -> list[Difference]:
    return differences(compare_case(directory / f"{kind}.safetensors", precision), precision)


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_output_and_gradient_is_the_published_one(kind: str, precision: str) -> None:
    found = results(kind, precision)
    assert {d.name: d.value for d in found if d.value > BOUNDS[precision]} == {}
    assert Counter(d.group for d in found)["gradients"] == GRADIENTS[kind]
    assert sum(d.zero for d in found) < len(found) / 4, "too little is compared"


def test_a_small_change_of_one_weight_is_noticed(tmp_path: Path) -> None:
    path = GOLDEN / "embedder.safetensors"
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors["weights/realm.encoder.layer.1.output.dense.weight"][0, 0] += 1e-3
    save_file(tensors, tmp_path / "embedder.safetensors", metadata=metadata)
    changed = [d for d in results("embedder", "float64", tmp_path) if d.value > 1e-6]
    assert "projected" in {d.name for d in changed} and len(changed) > 30


@pytest.mark.parametrize(
    ("ours", "theirs", "value", "zero"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5, False),
        ([0.0, 0.0], [0.0, 0.0], 0.0, True),
        ([0.0, 1e-30], [0.0, 0.0], float("inf"), False),
        ([float("nan"), 1.0], [1.0, 1.0], float("inf"), False),
        ([1.0], [1.0, 1.0], float("inf"), False),
        ([1, 2], [1, 2], 0.0, False),
        ([1, 2], [1, 3], float("inf"), False),
    ],
)
def test_the_measure(ours: list[float], theirs: list[float], value: float, zero: bool) -> None:
    found = difference(Pair("outputs", "x", torch.tensor(ours), torch.tensor(theirs)), 0.0)
    assert (found.value, found.zero) == (value, zero)


def test_the_fixtures_stay_small() -> None:
    assert sum(path.stat().st_size for path in GOLDEN.iterdir()) < 1_000_000
