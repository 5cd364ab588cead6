"""Key sets against a python set."""

import hashlib

import pytest

from realm.documents.store import lookup
from realm.documents.store.lookup import KeyRuns, TextKeys


def test_the_same_as_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "RECENT", 10)
    runs, plain = KeyRuns(), set()
    made = [hashlib.blake2b(bytes([number % 83, number % 7]), digest_size=16).digest() for number in range(1000)]
    made += [bytes(16), bytes(15) + b"\1", b"\1" + bytes(15), b"\1" * 15 + b"\0"]
    for key in made * 2:
        assert (key in runs) == (key in plain)
        if key not in plain:
            runs.add(key)
            plain.add(key)
        assert len(runs) == len(plain)
    assert len(runs._runs) < 8


def test_texts() -> None:
    known = TextKeys()
    known.add("a")
    known.add("\ud800")
    assert "a" in known
    assert "\ud800" in known
    assert "b" not in known
