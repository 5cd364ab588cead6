"""Hostile wikitext takes time linear in its length: by counting work, never by a clock."""

import sys

import pytest

from realm.documents.wiki.text import DEPTH, BracketWriter, clean_wikitext

HOSTILE = {
    "open templates": lambda n: "{{" * n,
    "open links": lambda n: "[[" * n,
    "open tables": lambda n: "\n{|" * n,
    "nested templates": lambda n: "{{nowrap|" * n + "}}" * n,
    "nested links": lambda n: "[[a|" * n + "]]" * n,
    "nested tables": lambda n: "\n{|" * n + "\n|}" * n,
    "links in an open template": lambda n: "{{" + "[[" * n + "\n|}" * n,
    "closers": lambda n: "}}]]\n|}" * n,
    "open references": lambda n: "<ref>" * n + "</ref>",
    "references without end": lambda n: "<ref name=" * n,
    "comments": lambda n: "<!--" * n,
    "mixed elements": lambda n: "<ref><nowiki><math><gallery>" * (n // 4),
    "external links": lambda n: "[http:" * n,
    "variants": lambda n: "-{" * n,
    "tags": lambda n: "<a " * n,
    "quotes": lambda n: "''a" * n,
    "one run of quotes": lambda n: "'" * n,
    "hollow brackets": lambda n: "( " * n,
    "separators in brackets": lambda n: "(" + " ," * n,
    "separators": lambda n: "(a" + " ," * n + "b",
    "headings": lambda n: "\n" + "=" * n + " " * n + "x",
    "empty headings": lambda n: "\n== a ==" * n,
    "entities": lambda n: "&amp" * n,
    "category openers": lambda n: "[[ " * n,
    "switches": lambda n: "__A" * n,
}


class _Work:
    """Counts executed lines of ours: Python work, independent of the machine's speed."""

    def __init__(self):
        self.lines = 0

    def __call__(self, frame, event, argument):
        self.lines += event == "line"
        return self


@pytest.fixture
def work():
    before = sys.gettrace()

    def count(text):
        counter = _Work()
        sys.settrace(counter)
        try:
            clean_wikitext(text)
        finally:
            sys.settrace(before)
        return counter.lines

    yield count
    sys.settrace(before)


@pytest.mark.parametrize("shape", HOSTILE)
def test_work_is_linear_in_the_length(shape, work):
    clean_wikitext(HOSTILE[shape](10))  # compile what is compiled once
    small, large = work(HOSTILE[shape](1_000)), work(HOSTILE[shape](2_000))
    assert large <= 2.2 * small + 500


@pytest.mark.parametrize("shape", ["nested templates", "nested links", "nested tables", "open templates"])
def test_no_character_is_copied_more_often_than_the_depth_allows(shape):
    text = HOSTILE[shape](5_000)
    writer = BracketWriter(text, lambda name: str, lambda target: str)
    writer.render()
    assert writer.copied <= (DEPTH + 1) * len(text)


# Those that end in a pattern's own loop, where no line of ours runs.
PATTERNS = ["references without end", "comments", "external links", "variants", "tags", "one run of quotes", "hollow brackets"]
PATTERNS += ["separators in brackets", "separators", "headings", "entities", "category openers", "switches"]


@pytest.mark.parametrize("shape", PATTERNS)
def test_half_a_million_openers(shape):
    """Work in a pattern shows in no line count. Linear work is a second; quadratic work would run into the time limit of a test."""
    prose = clean_wikitext(HOSTILE[shape](500_000))
    assert not [mark for mark in ("{{", "}}", "[[", "]]", "{|", "|}", "'''", "<ref") if mark in prose]
