"""The GPU suite stops anywhere and goes on later; at toy size all of it runs on a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def rows_of(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.training.gpu_parts import Rows

    return lambda seconds=60.0, device="cpu": Rows(tmp_path / "part.json", "part", device, seconds)


def test_a_row_is_asked_for_once_and_kept_on_disk(rows_of, tmp_path):
    asked = []

    def row(name):
        asked.append(name)
        return {"asked": name}

    for _ in range(2):
        rows = rows_of()
        for name in ("a", "b"):
            rows.measure(name, lambda name=name: row(name))
    rows.finish()
    written = json.loads((tmp_path / "part.json").read_text())
    assert asked == ["a", "b"] and written["done"] and written["rows"] == {"a": {"asked": "a"}, "b": {"asked": "b"}}
    rows_of(device="another").measure("a", lambda: row("a again"))
    assert asked[-1] == "a again", "another device's numbers are not ours"


def test_a_failed_row_is_noted_and_tried_again(rows_of, tmp_path):
    rows = rows_of()
    rows.measure("a", Mock(side_effect=MemoryError("no memory\nand more")))
    rows.measure("b", lambda: {"value": 1})
    rows.finish()
    written = json.loads((tmp_path / "part.json").read_text())
    assert written["rows"] == {"a": {"error": "MemoryError: no memory"}, "b": {"value": 1}} and not written["done"]
    rows = rows_of()
    rows.measure("a", lambda: {"value": 2})
    rows.finish()
    assert json.loads((tmp_path / "part.json").read_text())["done"]


def test_nothing_is_begun_when_the_time_is_over(rows_of, tmp_path):
    from benchmarks.training.gpu_parts import OutOfTime

    rows_of().measure("a", lambda: {"value": 1})
    late = rows_of(seconds=0.0)
    late.measure("a", lambda: {"value": 2})  # is there already
    with pytest.raises(OutOfTime):
        late.measure("b", lambda: {"value": 2})
    written = json.loads((tmp_path / "part.json").read_text())
    assert written["rows"] == {"a": {"value": 1}} and not written["done"]


def suite(out, *arguments):
    command = [sys.executable, "-m", "benchmarks.training.gpu_suite", "--out", str(out), "--toy", "--threads", "1", *arguments]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1500, cwd=ROOT)


def test_an_unknown_part_is_named(tmp_path):
    done = suite(tmp_path, "--parts", "parity,teleport")
    assert done.returncode == 2 and "teleport" in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_part_at_toy_size(tmp_path):
    out = tmp_path / "suite"
    assert suite(out, "--parts", "parity", "--minutes", "0").returncode == 1 and not (out / "parity.json").exists()
    done = suite(out)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    parts = {name: part["rows"] for name, part in found["parts"].items()}
    assert found["done"] == list(parts) == ["parity", "step", "search", "refresh", "pretrain"]
    assert all(row["passed"] for row in parts["parity"].values())
    assert all(row["seconds"] > 0 and row["model_flops_utilisation"] > 0 for row in parts["step"].values())
    assert all(row["exact"] for row in parts["search"].values())
    assert parts["refresh"]["process"]["refreshes"] > 0 and parts["refresh"]["frozen"]["seconds_per_step"] > 0
    assert parts["pretrain"]["run"]["finished"] and "pretrain" in parts["pretrain"]["run"]["last"]
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.json")}
    assert suite(out).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("*.json")} == before, "what is done is not run again"
