"""Sentence boundaries: plain, doubtful, CJK, line ends; nothing lost; linear time."""

import itertools
import time

import pytest
from hypothesis import given, strategies as st
from syntok import segmenter
from syntok.tokenizer import Tokenizer

from realm.text.sentences import split_sentences


def sentences(text):
    return [text[start:end] for start, end in split_sentences(text)]


@pytest.mark.parametrize(("text", "expected"), [
    ("It rained. We stayed.", ["It rained.", "We stayed."]), ("Why? Because! Yes.", ["Why?", "Because!", "Yes."]),
    ("Dr. Smith met J. R. R. Tolkien in St. Louis. They talked.", ["Dr. Smith met J. R. R. Tolkien in St. Louis.", "They talked."]),
    ("It costs 3.5 pounds, e.g. in London. Fine.", ["It costs 3.5 pounds, e.g. in London.", "Fine."]),
    ('He said "Go away." Then he left.', ['He said "Go away."', "Then he left."]),
    ("First line\nsecond line. Third\n\n  \nfourth", ["First line", "second line.", "Third", "fourth"]),
    ("他来了。她走了！真的？是", ["他来了。", "她走了！", "真的？", "是"]),
    ("「はい。」と言った。終わり。", ["「はい。」", "と言った。", "終わり。"]),
    ("It was in 1969. The crew came home.", ["It was in 1969.", "The crew came home."]),
    ("Edit ~/.Xresources, .Xauthority or www.Oslo.No/ab. Then go.", ["Edit ~/.Xresources, .Xauthority or www.Oslo.No/ab.", "Then go."]),
    ("Of A.YYYYMMDD.gnucash, e.g. .NET 4. Run foo.py. Then", ["Of A.YYYYMMDD.gnucash, e.g. .NET 4.", "Run foo.py.", "Then"]),
    ("It is in Sect. 4.2 too. We like it.The next one.", ["It is in Sect. 4.2 too.", "We like it.", "The next one."]),
    ("yahoo! is a site. ok", ["yahoo! is a site. ok"]), ("", []), (" \n\t ", []),
    ("The mill burnt . We stayed.", ["The mill burnt .", "We stayed."]),
])  # fmt: skip
def test_boundaries(text, expected):
    assert sentences(text) == expected


PIECES = st.sampled_from(
    ["Dr.", "A.", "word", "Word", ". ", "! ", "? ", "\n", " ", "\u2028", "。", "(", ")", '"', "...", "1969", "é", "\u00a0", "etc. "]
)


@given(st.one_of(st.text(), st.lists(PIECES).map("".join)))
def test_every_visible_character_lies_in_exactly_one_sentence(text):
    ranges = split_sentences(text)
    assert all(0 <= start < end <= len(text) for start, end in ranges)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(ranges))
    assert all(text[start:end] == text[start:end].strip() for start, end in ranges)
    assert "".join("".join(text[start:end] for start, end in ranges).split()) == "".join(text.split())


@pytest.mark.parametrize("unit", ["a", ".", "A. B ", "(a. ", "。", '."', "Abc.Def"])
def test_time_is_linear_on_hostile_lines(unit):
    text, begin = unit * (200_000 // len(unit)), time.process_time()
    split_sentences(text)
    assert time.process_time() - begin < 10


BEFORE = ["The vitamin", "In 1950 it met", "The word", "The price, as in"]
WORDS = [
    "C", "a", "I", "IV", "XX", "Dr", "Co", "no", "No", "12", "3.5", "1,200", "1920s", "G.N.U", "7-0", "type_b", "50%", '"C"', "James's",
    "Mar", "J. R", "x", "été",
]  # fmt: skip
AFTER = [
    "The next one.", "Smith went.", "It's here.", '"Yes," he said.', "May was warm.", "12 came.", "1950 was warm.", "30% went.",
    "2nd place.", "Ünder it.", "ABC sent.",
]  # fmt: skip


@pytest.mark.parametrize("mark", [".", ";"])
def test_doubtful_full_stops_are_settled_as_syntok_does(mark):
    """What is decided by rule, without asking syntok, is what syntok says."""
    tokenizer, differing = Tokenizer(replace_not_contraction=False), []
    for start, word, after in itertools.product([*BEFORE, ""], WORDS, AFTER):
        text = f"{start} {word}{mark} {after}".strip()
        theirs = [sentence[-1].offset + len(sentence[-1].value) for sentence in segmenter.segment(tokenizer.tokenize(text)) if sentence]
        if [end for _, end in split_sentences(text)] != theirs:
            differing.append(text)
    assert not differing, differing
