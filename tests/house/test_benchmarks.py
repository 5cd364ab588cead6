"""Benchmarks are run by hand: here only that they import, stay few, and are found from the pages that name them; the table of mutations."""

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = sorted(path.relative_to(ROOT) for path in BENCHMARKS.rglob("*.py"))
PAGES = [path for path in (BENCHMARKS / "results").glob("*.md") if path.name != "README.md"]


@pytest.mark.parametrize("script", [path for path in SCRIPTS if path.stem != "step_peer"], ids=lambda path: path.stem)
def test_a_benchmark_finds_what_it_calls(script, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    assert hasattr(importlib.import_module(".".join(script.with_suffix("").parts)), "main") or not script.stem.startswith("bench_")


def test_benchmarks_stay_few_and_pages_name_those_that_are_there_or_gone():
    assert len(SCRIPTS) <= 30
    assert sum(len((ROOT / script).read_text("utf-8").splitlines()) for script in SCRIPTS) <= 6_000
    _, _, listed = (BENCHMARKS / "results" / "README.md").read_text("utf-8").partition("## Scripts")
    gone, there = set(re.findall(r"`(\w+)`", listed)), {script.stem for script in SCRIPTS}
    named = {name for page in PAGES for name in re.findall(r"\b(?:benchmarks/|(?=bench_))(\w+)\.py", page.read_text("utf-8"))}
    assert len(named) > 50 and named <= there | gone and not there & gone, named - there - gone


def test_a_small_run(tmp_path):
    arguments = ["--n", "3000", "--dim", "32", "--rounds", "1", "--threads", "1", "--dir", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.search.bench_mips", *arguments, "--methods", "realm-exact,torch-exact,realm-serving"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()[-1])
    rows = {row["method"]: row for row in found["rows"]}
    assert list(rows) == ["realm", "realm-exact", "torch-exact", "realm-serving"]
    for row in rows.values():
        recalls = {f"recall@{k}" for k in (5, 8, 10, 20, 100)}
        assert row.keys() == {"method", "build_s", "ram_bytes", "q1_ms", "q64_ms"} | recalls
        assert row["recall@5"] == row["recall@8"] == row["recall@100"] == 1.0  # serving is exact with so few rows
    assert found["ratios"].keys() >= {"q1: torch-exact / realm", "q64: torch-exact / realm", "q1: 1,000 ids excluded / none (<= 1.05)"}
    assert found["figures"].keys() >= {"build from memory, s", "open from published shards, first, s", "mean list length, 64 queries"}
    assert all(value > 0 for value in found["ratios"].values())
    vectors = np.load(next(tmp_path.glob("clus-3000-32-0.npy")))
    assert vectors.shape == (3000, 32) and vectors.dtype == np.float32 and not (tmp_path / "published").exists()
    np.testing.assert_allclose(vectors.mean(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(vectors.std(axis=1), 1, atol=1e-4)


LEAST = 40


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("mutation_check", ROOT / "benchmarks" / "reliability" / "mutation_check.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["mutation_check"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_guard_stands_where_the_table_says(check):
    guards = check.read_guards()
    assert len({guard.name for guard in guards}) == len(guards) >= LEAST
    for guard in guards:
        mutated = guard.mutated((ROOT / "src" / "realm" / guard.file).read_text("utf-8"))
        compile(mutated, guard.file, "exec")
        assert mutated != (ROOT / "src" / "realm" / guard.file).read_text("utf-8")
        assert any((ROOT / test.partition("::")[0]).exists() for test in guard.tests), guard.name
