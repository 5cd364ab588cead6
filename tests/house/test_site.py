"""What `make docs` does not know of the pages: their place, order and examples; the tests that the page on reliability names."""

import ast
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
WITHOUT_EXAMPLE = {"glossary.md"}  # a table
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def named(entry):
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from named(part)


def test_the_navigation_and_the_first_page_name_every_page():
    notebooks = [f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.ipynb")]
    assert sorted(named(SITE["nav"])) == sorted([*PAGES, *notebooks])
    assert SITE["strict"] is True and all(value == "warn" for value in SITE["validation"].values())
    # The first page links every other one, in running text and not only in the navigation.
    linked = set(re.findall(r"\]\(([^)#:]+\.md)\)", (DOCS / "index.md").read_text("utf-8")))
    assert linked >= set(PAGES) - {"index.md"}


def test_tutorials_come_in_their_order_and_lead_to_the_next():
    tutorials = [page for page in named(SITE["nav"]) if page.startswith("tutorials/")]
    assert len(tutorials) == 8 and tutorials[0].endswith("ask-my-notes.md") and tutorials[-1].endswith("extend.md")
    for number, (page, following) in enumerate(zip(tutorials, [*tutorials[1:], ""], strict=True), start=1):
        text = (DOCS / page).read_text("utf-8")
        assert text.startswith(f"# {number}. ") and (not following or f"({Path(following).name})" in text)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in WITHOUT_EXAMPLE])
def test_every_page_has_an_example(page):
    assert re.search(r"^```|^    \S", (DOCS / page).read_text("utf-8"), re.M)


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
