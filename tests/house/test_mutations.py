"""The table of the mutation check: every guard stands where it says, once, and is changed by what it says; its tests exist."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
