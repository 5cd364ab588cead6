"""Key sets against a python set."""

from realm.documents import records
from realm.documents.records import TextKeys


def test_the_same_as_a_set(monkeypatch):
    monkeypatch.setattr(records, "RECENT", 10)
    runs, plain = TextKeys(), set()
    made = [f"{number % 83} {number % 7}" for number in range(1000)] + ["", "\0", "\ud800"]
    for key in made * 2:
        assert (key in runs) == (key in plain)
        if key not in plain:
            runs.add(key)
            plain.add(key)
        assert len(runs) == len(plain)
    assert len(runs._runs) < 8
