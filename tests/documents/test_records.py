"""The one table of source formats: a row is all that a format needs beside its reader."""

import re
from collections import Counter
from pathlib import Path

import pytest

from realm.documents.detect import format_by_content, format_by_name
from realm.documents.records import FORMATS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_has_a_reader_and_is_found(name, tmp_path):
    row = FORMATS[name]
    if not row.reader:
        assert not row.endings and not row.openings
        return
    assert callable(row.load())
    for ending in row.endings:
        assert format_by_name(Path(f"a{ending.upper()}.gz")) == name
    for number, opening in enumerate(row.openings):
        (file := tmp_path / str(number)).write_bytes(b"\n " + opening.upper() + b" ...")
        assert format_by_content(file) == name


def test_every_format_is_a_row_of_its_own_and_documented():
    assert set(Counter(mark for row in FORMATS.values() for mark in (*row.endings, *row.openings)).values()) == {1}
    openings = [opening for row in FORMATS.values() for opening in row.openings]
    assert not [(a, b) for a in openings for b in openings if a != b and a.startswith(b)]
    table = (ROOT / "docs" / "data-formats.md").read_text("utf-8").partition("## Documents")[2].partition("\n\n**")[0]
    assert set(FORMATS) <= set(re.findall(r"`([a-z]+)`", table))
