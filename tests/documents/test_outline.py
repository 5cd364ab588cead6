"""Headings and the paths that places in a text stand under."""

import pytest

from realm.documents.outline import path_at, places_of

LIST = "\n\n".join(f"{number}. Item number {number} of the list" for number in range(1, 9))
SCREAM = "\n\n".join(f"LINE {number} IN CAPITALS" for number in range(9))
MANUAL = """NAME
       ls - list

OPTIONS
       -a, --all
              do not hide
              anything

       -l     a long
              list of it
              all here
"""
CHANGES = """wget (1.21-1) unstable; urgency=medium

  * new

wget (1.20-3) unstable; urgency=low

  * old
  * very
"""
FILLER = "The text of a paragraph ends here.\n" * 4


@pytest.mark.parametrize(("text", "headings"), [
    ("Guide\n=====\n\nIt is.\n\nInstall\n-------\n\nRun it.\n\nUse\n---\nSo.\n", [("Guide",), ("Guide", "Install"), ("Guide", "Use")]),
    ("====\nTop\n====\n\nSo it is.\n\nPart\n====\n\nText here.\n\nMore of it.", [("Top",), ("Top", "Part")]),
    (f"# One\n\n{FILLER}\n## Two ##\n\n{FILLER}\n# Three\n\n{FILLER}", [("One",), ("One", "Two"), ("Three",)]),
    (
        f"10 Status\n\n{FILLER}\n10.4.10 409 Conflict\n\n{FILLER}\n10.4.11 410 Gone\n\n{FILLER}",
        [("10 Status",), ("10 Status", "10.4.10 409 Conflict"), ("10 Status", "10.4.11 410 Gone")],
    ),
    (f"Article 5. Of leave\n\n{FILLER}\nArticle 6. Of pay\n\n{FILLER}", [("Article 5. Of leave",), ("Article 6. Of pay",)]),
    (MANUAL, [("NAME",), ("OPTIONS",), ("OPTIONS", "-l")]),
    (CHANGES, [("wget (1.21-1) unstable; urgency=medium",), ("wget (1.20-3) unstable; urgency=low",)]),
    (LIST, []), (SCREAM, []), (FILLER, []), ("It burnt.\n\n-----\n\nIt was built again.", []), ("", []),
    ("You need:\n\n    a pen\n    some ink\n    paper", []), ("# one comment\nx = 1\n# another\ny = 2", []),
])  # fmt: skip
def test_headings_show_in_plain_text(text, headings):
    assert [path for _, path in places_of(text, "", None)] == headings


def test_marked_headings_are_found_in_their_order():
    text = "Install\n\nSee Use below.\n\nUse\n\nRun it.\n\nWindows¶\n\nNo.\n\nUse\n\nAgain."
    places = places_of(text, "The Guide", ((1, "Guide"), (2, "Install"), (2, "Use"), (3, "Windows¶"), (2, "not there"), (2, "Use")))
    assert [path for _, path in places] == [("Install",), ("Use",), ("Use", "Windows"), ("Use",)]
    assert [text[start:].partition("\n")[0] for start, _ in places] == ["Install", "Use", "Windows¶", "Use"]
    assert path_at(places, text.index("See Use")) == ("Install",) and path_at(places, text.index("No.")) == ("Use", "Windows")
    assert path_at(places[1:], 0) == path_at((), 5) == ()


def test_a_path_begins_with_the_folder_and_has_nothing_of_the_title():
    text = "Changes\n\n6.0.0\n\nDrop Node 16."
    marked = ((1, "Changes"), (2, "6.0.0"))
    assert places_of(text, "changes", marked, "npm bcrypt") == ((0, ("npm bcrypt",)), (0, ("npm bcrypt",)), (9, ("npm bcrypt", "6.0.0")))
    assert places_of("No heading.", "Notes", (), "notes") == ()
