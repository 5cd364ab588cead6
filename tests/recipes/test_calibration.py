"""Confidence: tempered masses against loops, a temperature that finds the truth, what abstaining buys."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from realm.answerer import Answer, tempered_mass
from realm.cli import main
from realm.data.types import Question
from realm.opening import open_run
from realm.paths import RunPaths
from realm.recipes.calibration import calibrate, calibration_error, log_loss, risk_coverage, threshold
from realm.report.page import confidence_section
from realm.report.read import read_run
from realm.stages import stage_facts


def test_tempered_mass_against_a_loop() -> None:
    logits = torch.tensor([2.0, -1.0, float("-inf"), 0.5, 1.5])
    log_p = logits.log_softmax(0)
    temperatures = torch.tensor([0.5, 1.0, 4.0])
    nothing = torch.tensor(float("-inf"))
    for none in (nothing, torch.tensor(-0.4)):  # a part is left to "not here", or nothing is
        found = tempered_mass(log_p, none, [0, 3], temperatures)
        for t, value in zip(temperatures.tolist(), found.tolist(), strict=True):
            exps = [math.exp(x / t) for x in (*log_p.tolist(), float(none))]
            assert value == pytest.approx((exps[0] + exps[3]) / sum(exps), rel=1e-5)
    found = tempered_mass(log_p, nothing, [0, 3], temperatures)
    assert float(found[1]) == pytest.approx(float(log_p[[0, 3]].exp().sum()))
    assert tempered_mass(log_p, nothing, [], temperatures).tolist() == [0, 0, 0]


class TooSure:
    """Answers with the confidence of a known temperature: two spans, the score of the better one drawn, right as often as T = 4 says."""

    def __init__(self, n: int):
        rng = torch.Generator().manual_seed(0)
        self.gap = torch.rand(n, generator=rng) * 12
        self.right = torch.rand(n, generator=rng) < torch.sigmoid(self.gap / 4)

    def confidences(self, questions: list[str], k: int, temperatures: torch.Tensor) -> tuple[list[str], torch.Tensor]:
        return ["yes" if r else "no" for r in self.right], torch.sigmoid(self.gap.unsqueeze(1) / temperatures)


def test_the_temperature_is_found() -> None:
    answerer: Any = TooSure(4000)
    dev = [Question(str(n), "?", ("yes",)) for n in range(4000)]
    facts = calibrate(answerer, dev, 5)
    assert 3.4 < facts["temperature"] < 4.7
    known = facts["calibration"]
    assert known["n"] == 4000 and known["nll"] < known["nll_before"] and known["error"] < 0.05 < known["error_before"]


def test_log_loss_and_calibration_error_against_loops() -> None:
    confidence, hits = [0.9, 0.8, 0.05, 1.0], [True, False, False, True]
    expected = -sum(math.log(min(p, 1 - 1e-6)) if hit else math.log(1 - p) for p, hit in zip(confidence, hits, strict=True)) / 4
    assert float(log_loss(torch.tensor(confidence).unsqueeze(1), hits)[0]) == pytest.approx(expected, rel=1e-5)
    # Bins: .05 alone (gap .05), .8 alone (gap .8), .9 and 1.0 together (gap .1).
    assert calibration_error(confidence, hits) == pytest.approx((0.05 + 0.8 + 0.1) / 4)


def test_risk_falls_with_coverage() -> None:
    found = risk_coverage([0.9, 0.1, 0.8, 0.4], [True, False, True, False])
    by_coverage = {c: (risk, threshold) for c, risk, threshold in found["curve"]}
    assert by_coverage[0.5] == (0.0, 0.8) and by_coverage[0.75] == (pytest.approx(1 / 3), 0.4) and by_coverage[1.0] == (0.5, 0.1)
    assert found["area"] == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)


def test_the_threshold_costs_a_tenth_of_the_right_answers() -> None:
    confidence = [n / 100 for n in range(100)]
    hits = [n % 2 == 1 for n in range(100)]  # fifty right ones, .01 to .99
    below = threshold(confidence, hits)
    assert sum(p < below for p, hit in zip(confidence, hits, strict=True) if hit) == 5
    assert threshold(confidence, [n > 80 for n in range(100)]) == 0, "nineteen tell nothing"


def answer(p: float, confidence: float | None) -> Answer:
    return Answer("?", "x", p, (), {}, {}, confidence)


def test_abstaining() -> None:
    answers = [answer(0.9, 0.2), answer(0.1, 0.7), answer(0.6, None)]
    assert [a.abstaining(0.5).abstained for a in answers] == [True, False, False], "confidence where there is one, else p"


def test_a_run_is_calibrated_and_abstains(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = stage_facts(SimpleNamespace(stage=lambda name: tiny_run / "stages" / name, root=tiny_run), "finetune")  # type: ignore[arg-type]
    assert facts["temperature"] > 0 and facts["calibration"]["n"] == 6
    question = "What is the currency of Arvad?"
    given = open_run(tiny_run).answerer.answer([question], k=3)[0]
    assert given.confidence is not None and 0 < given.confidence <= 1
    for below, abstained in ((0.0, False), (1.0, given.confidence < 1)):
        assert main(["ask", str(tiny_run), question, "--k", "3", "--abstain-below", str(below), "--json"]) == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert found["abstained"] is abstained and found["confidence"] == pytest.approx(given.confidence, rel=1e-4)
    assert main(["ask", str(tiny_run), question, "--abstain-below", "1"]) == 0
    assert "nothing here answers that; closest:" in capsys.readouterr().out
    assert main(["ask", str(tiny_run), question, "--abstain-below", "1.5"]) == 2
    assert "--abstain-below 1.5: not a probability" in capsys.readouterr().err


def test_answers_do_not_depend_on_the_batch(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answerer = open_run(tiny_run).answerer
    questions = [f"What is the currency of {name}?" for name in ("Arvad", "Belmor", "Carsin", "Dulwen", "Estrag", "Faldor", "Novaria")]
    monkeypatch.setattr("realm.answerer.BATCH", 1)
    alone = answerer.answer(questions, k=4)
    for size in (2, 3, 16):
        monkeypatch.setattr("realm.answerer.BATCH", size)
        for one, other in zip(alone, answerer.answer(questions, k=4), strict=True):
            assert (one.answer, [e.block_id for e in one.evidence]) == (other.answer, [e.block_id for e in other.evidence])
            assert one.p == pytest.approx(other.p, rel=1e-4) and one.confidence == pytest.approx(other.confidence, rel=1e-4)


def test_the_report_draws_the_curve(tiny_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(tiny_run, tmp_path / "run")
    shown = confidence_section(read_run(RunPaths(run)))
    assert shown is not None and "Risk by coverage" in shown and "50 % answered" in shown and "calibration error" in shown
    path = run / "results" / "finetune.json"
    row = json.loads(path.read_text())
    for broken in (None, {"curve": [[0.5, "x", 1.0]]}, {"curve": 3}, [1]):
        path.write_text(json.dumps({**row, "risk_coverage": broken}))
        assert confidence_section(read_run(RunPaths(run))) is None
