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


def test_a_guard_that_moved_is_one_line(check):
    guard = check.read_guards()[0]
    with pytest.raises(ValueError, match=r"storage/files\.py: the text of .* 0 times, not once") as error:
        guard.mutated("nothing")
    assert "\n" not in str(error.value)
