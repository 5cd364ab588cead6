"""Canonical text: what goes, what stays, and that it is a fixed point."""

from hypothesis import given, strategies as st

from realm.text import canonical
from realm.text.canonical import canonical_line, canonical_text


def test_line_ends_and_invisible_characters_are_found_fast():
    assert canonical_text("a\r\nb\rc\u2028d\x85e\x0cf") == "a\nb\nc\nd\ne\nf"
    assert canonical_text("\ufeffa\x00b\u200bc\u00add\u202ee") == "abcde"
    assert canonical_text("می\u200cخواهم 👩\u200d💻 \u0600١ tab\there") == "می\u200cخواهم 👩\u200d💻 \u0600١ tab\there"
    assert canonical_text("lone \ud800 surrogate") == "lone \ufffd surrogate"
    assert canonical_text("e\u0301 ﬁ") == "e\u0301 ﬁ"
    assert canonical_line("  two\r\nlines\u00a0 ") == "two lines"
    slow = (canonical._INVISIBLE, canonical._LINE_ENDS, canonical._SURROGATE)
    changed = [character for character in map(chr, range(0x110000)) if any(pattern.search(character) for pattern in slow)]
    assert len(changed) > 2000
    assert all(canonical._SUSPECT.search(character) for character in changed)


@given(st.text(st.one_of(st.characters(), st.sampled_from("\r\n\x00\ud800\u200b\ufeff\u2028"))))
def test_is_a_fixed_point(text):
    once = canonical_text(text)
    assert canonical_text(once) == once
    once.encode("utf-8")
