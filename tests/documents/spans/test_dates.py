"""Dates, numbers and quantities: the cases of dates_found*.txt, the traps of dates_traps*.txt, and what holds for any text."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from realm.documents.spans.dates import DateNumberTagger
from realm.documents.spans.spans import TaggedSpan

TAGGER = DateNumberTagger()
MARKS = {"⟦": "date", "⟪": "number"}


def cases(name):
    return [line for line in (Path(__file__).parent / name).read_text("utf-8").splitlines() if line and not line.startswith("#")]


def unmarked(line):
    text, spans = "", []
    for part in re.split("(⟦[^⟧]*⟧|⟪[^⟫]*⟫)", line):
        if part[:1] in MARKS and part:
            spans.append(TaggedSpan(len(text), len(text) + len(part) - 2, MARKS[part[0]]))
            part = part[1:-1]
        text += part
    return text, spans


@pytest.mark.parametrize(("name", "spans_in_it"), [("dates_found.txt", 200), ("dates_found_more.txt", 165)])
def test_dates_and_numbers_are_found_with_their_borders(name, spans_in_it):
    found = wanted = extra = 0
    missed = []
    for line in cases(name):
        text, spans = unmarked(line)
        tagged = TAGGER.tag(text)
        wanted += len(spans)
        found += len(set(spans) & set(tagged))
        extra += len(set(tagged) - set(spans))
        if tagged != spans:
            missed.append(line)
    assert wanted >= spans_in_it
    assert found >= 0.98 * wanted, missed
    assert extra <= 0.02 * wanted, missed


@pytest.mark.parametrize(("name", "lines_in_it"), [("dates_traps.txt", 200), ("dates_traps_more.txt", 150)])
def test_labels_and_identifiers_are_left_alone(name, lines_in_it):
    lines = cases(name)
    assert len(lines) >= lines_in_it
    fooled = [line for line in lines if TAGGER.tag(line)]
    assert len(fooled) <= 0.02 * len(lines), fooled


@example("of  5 ,  12 of")
@given(st.text(alphabet="0123456789 .,-–:/'$%年月 日アMarchADmile[]()\u200d", max_size=60))
def test_any_text_gives_ordered_spans_that_touch_no_white_space(text):
    reached = 0
    for start, end, kind in TAGGER.tag(text):
        assert reached <= start < end <= len(text)
        assert text[start:end].strip() == text[start:end]
        assert kind in ("date", "number")
        reached = end


def test_long_runs_of_digits_are_read_once():
    assert TAGGER.tag("1" * 100_000) == []
    assert TAGGER.tag("1 " * 50_000 + "end") == []
    assert len(TAGGER.tag("1969, " * 20_000)) == 20_000
