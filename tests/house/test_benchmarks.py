"""Benchmarks are run by hand: here only that they import, stay few, and are found from the pages that name them."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = sorted(path.relative_to(ROOT) for path in BENCHMARKS.rglob("*.py"))
PAGES = [path for path in (BENCHMARKS / "results").glob("*.md") if path.name != "README.md"]


@pytest.mark.parametrize("script", [path for path in SCRIPTS if path.stem != "step_peer"], ids=lambda path: path.stem)
def test_a_benchmark_finds_what_it_calls(script, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module(".".join(script.with_suffix("").parts))
    assert hasattr(module, "main") or not script.stem.startswith("bench_")


def test_benchmarks_stay_few():
    assert len(SCRIPTS) <= 30
    assert sum(len((ROOT / script).read_text("utf-8").splitlines()) for script in SCRIPTS) <= 6_000


def test_each_script_that_a_page_names_is_there_or_listed_as_gone():
    _, _, listed = (BENCHMARKS / "results" / "README.md").read_text("utf-8").partition("## Scripts")
    gone, there = set(re.findall(r"`(\w+)`", listed)), {script.stem for script in SCRIPTS}
    named = {name for page in PAGES for name in re.findall(r"\b(?:benchmarks/|(?=bench_))(\w+)\.py", page.read_text("utf-8"))}
    assert len(named) > 50 and named <= there | gone and not there & gone, named - there - gone


def test_exponents_of_known_costs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.documents.bench_scale import fits

    points = [{"size": n, "linear": 3 + 2.0 * n, "root": 5 + n**0.5, "constant": 7.0} for n in (0, 10, 100, 1000, 10_000)]
    rows = {row["figure"]: row for row in fits(points)}
    assert rows.keys() == {"linear", "root"}, "what does not grow has no exponent"
    assert rows["linear"]["exponent"] == 1 and rows["root"]["exponent"] == 0.5
    assert rows["linear"]["forecast"] == rows["linear"]["measured"] == 20_003 and rows["root"]["off"] == 0
