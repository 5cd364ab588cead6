"""The loop: exact resume wherever it was killed, damage survived, and alarms instead of silence."""

import json

import pytest
import torch
from toy_tasks import Killed, Regression, checkpoints_of, outcome, rows, train

from realm.errors import RunError, TrainingError
from realm.models.model import state_sha256
from realm.storage.metrics import MetricsLog
from realm.training.loop.optim import OPTIMIZERS
from realm.training.loop.task import LoopOptions

OPTIONS = LoopOptions(steps=13, lr=0.05, warmup=3, seed=4, log_every=3, checkpoint_every=4)


def options(**changes):
    return LoopOptions(**{**vars(OPTIONS), **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run, task = tmp_path_factory.mktemp("whole"), Regression()
    assert train(task, run, OPTIONS) == OPTIONS.steps
    return outcome(task, run)


def test_rows_hold_the_means_of_their_window(whole):
    table = whole[1]
    assert [(r["step"], "checked" in r) for r in table] == [
        (3, False), (5, True), (6, False), (9, False), (10, True), (12, False), (13, False)
    ]  # fmt: skip
    first = table[0]
    assert first["stage"] == "toy" and first["odd"] == pytest.approx(1 / 3, abs=1e-6) and first["valid"] == 5 and first["skipped"] == 0
    assert first["lr"] == pytest.approx(0.05) and first["grad_norm"] > 0
    assert table[-1]["lr"] == pytest.approx(0.05 * 1 / 10)


def test_between_is_called_before_every_step_and_after_the_last(tmp_path):
    task = Regression()
    train(task, tmp_path, OPTIONS)
    assert task.calls == list(range(OPTIONS.steps + 1))


@pytest.mark.parametrize("killed_at", range(OPTIONS.steps))
def test_resume_is_exact_wherever_the_run_was_killed(tmp_path, whole, killed_at):
    with pytest.raises(Killed):
        train(Regression(killed_at), tmp_path, OPTIONS)
    torch.manual_seed(999)  # the new process starts with another random state
    task = Regression()
    assert train(task, tmp_path, OPTIONS) == OPTIONS.steps
    assert outcome(task, tmp_path) == whole
    assert task.calls[0] == killed_at // 4 * 4


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_killed_again_and_again(tmp_path, optimizer):
    whole, chosen = Regression(), options(optimizer=optimizer)
    train(whole, tmp_path / "whole", chosen)
    for killed_at in (2, 6, 5, 9, 9, 12):
        with pytest.raises(Killed):
            train(Regression(killed_at), tmp_path, chosen)
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write('{"stage": "toy", "st')  # and in the middle of a row
    task = Regression()
    train(task, tmp_path, chosen)
    assert outcome(task, tmp_path) == outcome(whole, tmp_path / "whole")


def test_rows_of_other_stages_stay(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.write("before", 1, x=1)
    with pytest.raises(Killed):
        train(Regression(11), tmp_path, OPTIONS)
    log.write("beside", 2, x=2)
    train(Regression(), tmp_path, OPTIONS)
    assert [r["stage"] for r in rows(tmp_path) if r["stage"] != "toy"] == ["before", "beside"]


def test_a_damaged_checkpoint_is_replaced_when_the_run_comes_by_again(tmp_path):
    with pytest.raises(Killed):
        train(Regression(10), tmp_path, OPTIONS)
    weights = tmp_path / "checkpoints" / "step-0000008" / "weights.safetensors"
    weights.write_bytes(b"")
    with pytest.raises(Killed):
        train(Regression(9), tmp_path, OPTIONS)
    task = Regression()
    train(task, tmp_path, OPTIONS)
    assert task.calls[0] == 8


def test_the_newest_checkpoints_stay_or_none(tmp_path):
    (tmp_path / "checkpoints" / "step-0000004.staging").mkdir(parents=True)
    train(Regression(), tmp_path, options(checkpoint_every=2))
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-0000010", "step-0000012"]
    checkpoints_of(tmp_path).discard()
    assert not (tmp_path / "checkpoints").exists()
    train(Regression(), tmp_path / "off", options(checkpoint_every=0))
    assert not (tmp_path / "off" / "checkpoints").exists()


def test_another_recipe_is_refused(tmp_path):
    with pytest.raises(Killed):
        train(Regression(10), tmp_path, OPTIONS)
    with pytest.raises(RunError, match="another recipe or corpus") as caught:
        train(Regression(), tmp_path, OPTIONS, fingerprint="g")
    assert "\n" not in str(caught.value) and "step-0000008" in str(caught.value)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-0000004", "step-0000008"]


@pytest.mark.parametrize("keep_the_rest", [True, False])
def test_another_format_is_refused(tmp_path, keep_the_rest):
    with pytest.raises(Killed):
        train(Regression(10), tmp_path, OPTIONS)
    path = tmp_path / "checkpoints" / "step-0000008" / "state.json"
    path.write_text(json.dumps({**(json.loads(path.read_text()) if keep_the_rest else {}), "format": 99}))
    with pytest.raises(RunError, match=r"made by an earlier version of realm\. Build it again"):
        train(Regression(), tmp_path, OPTIONS)


def test_a_step_with_bad_gradients_changes_nothing_and_is_counted(tmp_path):
    plain, broken = Regression(), Regression(broken=frozenset({5}))
    train(broken, tmp_path / "a", options(steps=6, checkpoint_every=5))
    train(plain, tmp_path / "b", options(steps=6, checkpoint_every=5))
    assert state_sha256(broken.model) != state_sha256(plain.model)
    saved = Regression()
    restored = checkpoints_of(tmp_path / "a").restore(saved.model, torch.optim.AdamW(saved.model.parameters(), lr=1.0))
    assert restored is not None and restored.step == 5
    assert state_sha256(saved.model) == state_sha256(broken.model)
    last = rows(tmp_path / "a")[-1]
    assert last["skipped"] == pytest.approx(1 / 3, abs=1e-6) and isinstance(last["loss"], float)


def test_bad_gradients_in_a_row_stop_the_run(tmp_path):
    train(Regression(broken=frozenset({2, 3, 5, 6, 8})), tmp_path / "scattered", OPTIONS)
    task = Regression(broken=frozenset({6, 7, 8}))
    with pytest.raises(TrainingError, match=r"toy: 3 steps in a row had a loss or gradients that were not finite.*step 8.*learning rate"):
        train(task, tmp_path / "row", OPTIONS)
    assert task.calls[-1] == 8
    # Resumed from the checkpoint in the middle of them, the alarm comes at the same step.
    again = Regression(broken=frozenset({6, 7, 8}))
    with pytest.raises(TrainingError):
        train(again, tmp_path / "row", OPTIONS)
    assert again.calls[0] == 8 and again.calls[-1] == 8


def test_windows_without_a_valid_example_stop_the_run(tmp_path):
    empty = frozenset(range(3, 13))
    task = Regression(empty=empty)
    with pytest.raises(TrainingError, match="toy: no valid example in 9 steps"):
        train(task, tmp_path / "a", OPTIONS)
    assert task.calls[-1] == 11
    last = [row for row in rows(tmp_path / "a") if "loss" in row][-1]
    assert last["loss"] is None and last["valid"] == 0 and last["step"] == 9
    again = Regression(empty=empty)
    with pytest.raises(TrainingError):
        train(again, tmp_path / "a", OPTIONS)
    assert again.calls[-1] == 11


def test_a_stage_may_end_early_or_have_no_steps(tmp_path):
    assert train(Regression(ends=9), tmp_path, OPTIONS) == 9
    task = Regression(ends=9)
    assert train(task, tmp_path, OPTIONS) == 9 and task.calls == [8, 9]
    task = Regression()
    before = state_sha256(task.model)
    assert train(task, tmp_path / "none", options(steps=0)) == 0
    assert state_sha256(task.model) == before and task.calls == [0]


def test_report_hears_every_row(tmp_path):
    heard = []

    def report(stage, step, steps, values):
        heard.append((stage, step, steps, "loss" in values))

    train(Regression(), tmp_path, OPTIONS, report=report)
    steps = [(3, True), (5, False), (6, True), (9, True), (10, False), (12, True), (13, True)]  # means over a window, and checks between
    assert heard == [("toy", step, 13, trained) for step, trained in steps]
    assert [(row["step"], "loss" in row) for row in rows(tmp_path)] == steps
