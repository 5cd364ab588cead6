"""The script behind docs/evidence.md: what it reads once, how it pairs, and how it decides."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def evidence():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from benchmarks.evidence import evidence

        yield evidence


def test_differences_are_paired_by_question(evidence):
    ours, theirs = np.array([[1, 1, 0, 1], [1, 0, 0, 1]]), np.array([[1, 0, 0, 1], [1, 0, 0, 0]])
    found = evidence.paired(ours, theirs)
    assert found["value"] == 0.25 and found["by_seed"] == [0.25, 0.25]
    assert found["interval"] == [0.0, 0.5] and found["decision"] == "open", "half of the questions never differ"
    assert evidence.paired(ours, ours) == {"value": 0.0, "interval": [0.0, 0.0], "by_seed": [0.0, 0.0], "decision": "open"}


@pytest.mark.parametrize(("low", "high", "by_seed", "expected"), [
    (0.1, 0.2, [0.1, 0.2, 0.1], "holds"), (0.1, 0.2, [0.1, 0.2], "above 0"), (0.1, 0.2, [0.3, 0.1, -0.1], "open"),
    (-0.2, -0.1, [-0.1], "against"), (-0.1, 0.1, [0.0], "open"),
])  # fmt: skip
def test_as_registered(evidence, low, high, by_seed, expected):
    assert evidence.decision(low, high, by_seed) == expected


def test_figures_are_those_of_the_results(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.evidence import evidence_figures

    monkeypatch.setattr("sys.argv", ["evidence_figures.py", "--out", str(tmp_path)])
    evidence_figures.main()
    drawn = sorted(tmp_path.glob("*.svg"))
    assert len(drawn) == 4
    for path in drawn:
        ElementTree.parse(path)
        assert path.read_text("utf-8") == (ROOT / "docs" / "images" / path.name).read_text("utf-8"), "draw them again"
