"""Parity with the published classes without their environment: tiny cases that `make parity`'s published side wrote, one a class."""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import compare
import pytest
from cases import KINDS
from measure import BOUNDS, differences
from ours import compare_case
from safetensors import safe_open
from safetensors.torch import load_file, save_file

GOLDEN = Path(__file__).parent / "golden"
GRADIENTS = {"embedder": 43, "scorer": 86, "encoder": 43, "reader": 44, "openqa": 86}
"""Parameters that are in a loss and, of encoder and reader, the relevance scores: each has a gradient on both sides."""


def results(kind, precision, directory=GOLDEN):
    return differences(compare_case(directory / f"{kind}.safetensors", precision), precision)


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_output_and_gradient_is_the_published_one(kind, precision):
    found = results(kind, precision)
    assert {d.name: d.value for d in found if d.value > BOUNDS[precision]} == {}
    assert Counter(d.group for d in found)["gradients"] == GRADIENTS[kind]
    assert sum(d.zero for d in found) < len(found) / 4, "too little is compared"


@pytest.fixture
def changed(tmp_path):
    path = GOLDEN / "embedder.safetensors"
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors["weights/realm.encoder.layer.1.output.dense.weight"][0, 0] += 1e-3
    save_file(tensors, tmp_path / "embedder.safetensors", metadata=metadata)
    return tmp_path


def test_a_small_change_of_one_weight_is_noticed_and_fails_the_command(changed, capsys):
    apart = [d for d in results("embedder", "float64", changed) if d.value > 1e-6]
    assert "projected" in {d.name for d in apart} and len(apart) > 30
    shutil.copy(GOLDEN / "scorer.safetensors", changed)
    assert compare.main([sys.executable, "--cases", str(changed)]) == 1
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result["cases"] == 2 and not result["passed"] and result["tensors"] == 2 * (44 + 89)
    worst = result["worst"]["float64"]
    assert worst["scorer"] < BOUNDS["float64"] < worst["embedder"]
    rows = [line.split() for line in lines if line.startswith(("embedder", "scorer"))]
    assert [row[:3] for row in rows][:2] == [["embedder", "float64", "outputs"], ["embedder", "float64", "gradients"]]
    assert any("key.bias" in line for line in lines), "what is zero in both is listed"
    (changed / "embedder.safetensors").unlink()
    assert compare.main([sys.executable, "--cases", str(changed)]) == 0
