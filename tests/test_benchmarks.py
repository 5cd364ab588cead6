"""Benchmarks are run by hand: that what they call is still there is looked at here."""

import importlib.util
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("script", sorted(BENCHMARKS.glob("bench_*.py")), ids=lambda path: path.stem)
def test_a_benchmark_finds_what_it_calls(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert callable(module.main)


def test_exponents_of_known_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from bench_scale import fits

    points = [{"size": n, "linear": 3 + 2.0 * n, "root": 5 + n**0.5, "constant": 7.0} for n in (0, 10, 100, 1000, 10_000)]
    rows = {row["figure"]: row for row in fits(points)}
    assert rows.keys() == {"linear", "root"}, "what does not grow has no exponent"
    assert rows["linear"]["exponent"] == 1 and rows["root"]["exponent"] == 0.5
    assert rows["linear"]["forecast"] == rows["linear"]["measured"] == 20_003 and rows["root"]["off"] == 0
