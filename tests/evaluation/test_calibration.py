"""Confidence: slope and bias that find the truth, what abstaining buys."""

import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from realm.answering.answerer import Confidence
from realm.answering.opening import open_run
from realm.answering.records import Answer
from realm.cli import main
from realm.evaluation.calibration import SLOPES, calibrate, calibration_error, fit_confidence, log_loss, risk_coverage, threshold
from realm.models.types import Question
from realm.report.page import confidence_section
from realm.report.read import read_run
from realm.storage.layout import RunPaths, stage_facts


def drawn(n, slope, bias):
    """p of n answers, and whether they are right: as often as sigmoid(slope logit(p) + bias)."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.001, 0.9, n).tolist()
    return p, [bool(rng.random() < 1 / (1 + math.exp(-(slope * math.log(v / (1 - v)) + bias)))) for v in p]


@pytest.mark.parametrize(("slope", "bias"), [(0.5, 1.0), (1.0, 0.0), (2.0, -1.0)])
def test_slope_and_bias_are_found(slope, bias):
    p, hits = drawn(4000, slope, bias)
    found = fit_confidence(p, hits)
    assert found.slope == pytest.approx(slope, rel=0.1) and found.bias == pytest.approx(bias, abs=0.15)
    confidence = [found.of(value) for value in p]
    assert calibration_error(confidence, hits) < 0.03 and log_loss(confidence, hits) <= log_loss(p, hits)


def test_the_likeliest_against_a_grid():
    """The minimum of loss and priors over a grid of slopes and biases is no lower."""
    p, hits = drawn(60, 0.5, 1.0)

    def unlikely(found):
        return len(p) * log_loss([found.of(value) for value in p], hits) + (found.bias**2 + math.log(found.slope) ** 2) / 2

    best = unlikely(fit_confidence(p, hits))
    grid = [Confidence(slope, bias / 20) for slope in SLOPES.tolist() for bias in range(-80, 81)]
    assert best <= min(map(unlikely, grid)) + 1e-9


def test_a_handful_of_answers_says_little_and_what_was_fitted_is_stated():
    found = fit_confidence([0.02, 0.03, 0.01], [True, True, True])
    assert 0.05 < found.of(0.02) < 0.9 and 0 < found.of(0.0) < found.of(1e-4) < found.of(1.0) < 1
    assert Confidence.stated({"slope": 0.7, "bias": 0.1}) == Confidence(0.7, 0.1) and Confidence.stated({}) is None


class Said:
    """Gives drawn answers."""

    def __init__(self, p, hits):
        self.p, self.hits = p, hits

    def answer(self, questions, k):
        return [Answer("?", "yes" if hit else "no", p, (), {}, {}, pooled=p) for p, hit in zip(self.p, self.hits, strict=True)]


def test_what_is_said_of_a_calibration():
    p, hits = drawn(400, 0.5, 1.0)
    facts = calibrate(Said(p, hits), [Question(str(n), "?", ("yes",)) for n in range(400)], 5)
    known = facts["calibration"]
    assert known["n"] == 400 and known["nll"] < known["nll_before"] and known["error"] < 0.1 < known["error_before"]
    below = sum(Confidence.stated(facts).of(v) < facts["abstain_below"] for v, hit in zip(p, hits, strict=True) if hit)
    assert below == pytest.approx(sum(hits) * 0.08, abs=1)


def test_log_loss_and_calibration_error_against_loops():
    confidence, hits = [0.9, 0.8, 0.05, 1.0], [True, False, False, True]
    expected = -sum(math.log(min(p, 1 - 1e-6)) if hit else math.log(1 - p) for p, hit in zip(confidence, hits, strict=True)) / 4
    assert log_loss(confidence, hits) == pytest.approx(expected, rel=1e-5)
    # Bins: .05 alone (gap .05), .8 alone (gap .8), .9 and 1.0 together (gap .1).
    assert calibration_error(confidence, hits) == pytest.approx((0.05 + 0.8 + 0.1) / 4)


def test_risk_falls_with_coverage_and_the_threshold_costs_its_share():
    found = risk_coverage([0.9, 0.1, 0.8, 0.4], [True, False, True, False])
    by_coverage = {c: (risk, threshold) for c, risk, threshold in found["curve"]}
    assert by_coverage[0.5] == (0.0, 0.8) and by_coverage[0.75] == (pytest.approx(1 / 3), 0.4) and by_coverage[1.0] == (0.5, 0.1)
    assert found["area"] == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)
    confidence = [n / 100 for n in range(100)]
    hits = [n % 2 == 1 for n in range(100)]  # fifty right ones, .01 to .99
    below = threshold(confidence, hits)
    assert sum(p < below for p, hit in zip(confidence, hits, strict=True) if hit) == 4
    assert threshold(confidence, [n > 80 for n in range(100)]) == 0, "nineteen tell nothing"


def test_a_run_is_calibrated_and_abstains(tiny_run, capsys):
    facts = stage_facts(SimpleNamespace(stage=lambda name: tiny_run / "stages" / name, root=tiny_run), "finetune")
    assert facts["slope"] > 0 and facts["calibration"]["n"] == 6
    question = "What is the currency of Arvad?"
    given = open_run(tiny_run).answerer.answer([question], k=3)[0]
    assert given.confidence is not None and 0 < given.confidence <= 1
    for below, abstained in ((0.0, False), (1.0, given.confidence < 1)):
        assert main(["ask", str(tiny_run), question, "--k", "3", "--abstain-below", str(below), "--json"]) == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert found["abstained"] is abstained and found["confidence"] == pytest.approx(given.confidence, rel=1e-4)
    assert main(["ask", str(tiny_run), question, "--abstain-below", "1"]) == 0
    assert "I am not sure; this passage comes closest:" in capsys.readouterr().out


def test_the_report_draws_the_curve(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shown = confidence_section(read_run(RunPaths(run)))
    assert shown is not None and "Risk by coverage" in shown and "50 % answered" in shown and "calibration error" in shown
    path = run / "results" / "finetune.json"
    row = json.loads(path.read_text())
    for broken in (None, {"curve": [[0.5, "x", 1.0]]}, {"curve": 3}, [1]):
        path.write_text(json.dumps({**row, "risk_coverage": broken}))
        assert confidence_section(read_run(RunPaths(run))) is None
