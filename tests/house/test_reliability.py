"""The page on reliability names tests: every one of them exists, and the table of faults is whole."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")
FAULTS = 25


def names_in(path):
    found = {node.name for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in found if name.startswith("test_")}


def fault_rows():
    section = PAGE.partition("## The 25 faults")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if re.match(r"\| \d+ \|", line)]


def test_the_faults_are_all_there():
    rows = fault_rows()
    assert [int(row[0]) for row in rows] == list(range(1, FAULTS + 1))
    for _, fault, outcome, tests in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
        assert fault and outcome and named, fault
        for file, name in named:
            assert name in names_in(ROOT / file), f"{file}::{name}"
    assert len({name for row in rows for name in re.findall(r"::(test_\w+)", row[3])}) >= FAULTS


def test_every_test_that_the_page_names_exists():
    files = set(re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)", PAGE))
    assert files and all((ROOT / file).exists() for file in files), [file for file in files if not (ROOT / file).exists()]
    known = {name for path in (ROOT / "tests").rglob("test_*.py") for name in names_in(path)}
    named = set(re.findall(r"`(test_\w+)`", PAGE)) | set(re.findall(r"::(test_\w+)`", PAGE))
    assert named <= known, named - known
