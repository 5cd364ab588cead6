"""Lines of pages as paragraphs, and words that a line's end parted."""

import pytest

from realm.documents.pages.paragraphs import continued, unwrapped


@pytest.mark.parametrize(("lines", "paragraphs"), [
    ("A heading\nA line that is long enough to fill the page and\ngoes on here.", 2),
    ("A line that is long enough to fill the page, as it\n1. A point of a list", 2),
    ("It has an end and then there is a bit of room here.\n\nAnother paragraph.", 2),
    ("Words that are parted by a hyphen are put to-\ngether, but North-\nSouth is not.", 2), ("", 0),
])  # fmt: skip
def test_lines_become_paragraphs(lines, paragraphs):
    found = [part for part in unwrapped(lines).split("\n\n") if part]
    assert len(found) == paragraphs, found
    assert "".join("".join(found).split()).replace("-", "") == "".join(lines.split()).replace("-", "")


@pytest.mark.parametrize(("before", "line", "occurs", "joined"), [
    ("a well-", "known man", "", "a well-known man"), ("the mother-in-", "law of", "", "the mother-in-law of"),
    ("a long-", "term plan", "", "a long-term plan"), ("it was re-", "built", "", "it was rebuilt"),
    ("the Tirel-", "weir", "tirelweir", "the Tirelweir"), ("the Tirel-", "weir", "", "the Tirel-weir"),
    ("to re-", "cover the roof", "re-cover", "to re-cover the roof"), ("20-", "30 crowns", "", "20-30 crowns"),
    ("an e-", "mail", "", "an e-mail"), ("North-", "South", "northsouth", "North-South"),
    ("Vor-", "und Nachteile", "", "Vor- und Nachteile"), ("a dash -", "then", "", "a dash - then"),
    ("re\u00ad", "zoned", "", "rezoned"), ("the weir", "of Velm", "", "the weir of Velm"),
    ("die Sanie-", "rungen", "", "die Sanierungen"), ("prima-", "vera", "el", "primavera"), ("COVID-", "related", "", "COVID-related"),
    ("at www.velm-", "weir.org", "", "at www.velm-weir.org"), ("東京都の", "人口", "", "東京都の人口"),
])  # fmt: skip
def test_a_hyphen_goes_only_from_a_word_that_is_known_whole(before, line, occurs, joined):
    assert continued(before, line, occurs.__eq__) == joined
