"""What `make docs`, which builds the site strictly, does not know of the pages: their place, their order, and their examples."""

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
