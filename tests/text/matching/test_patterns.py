"""The strings that a pattern's matches must hold: against the pattern itself, tried on every text."""

import json
import sys

import pytest
import regex
from hypothesis import given, settings, strategies as st

from realm.evaluation.questions.loading import load_questions
from realm.text.matching.patterns import compiled_pattern, folded, required_strings

FLAGS = regex.VERSION0 | regex.IGNORECASE | regex.UNICODE | regex.MULTILINE


@pytest.mark.parametrize(("pattern", "strings"), [
    ("1969", ("1969",)), ("Pound Sterling", ("pound sterling",)), ("Pirates?", ("pirate",)), ("Neil\\s+Armstrong", ("armstrong",)),
    ("Morgan|Charles", ("morgan", "charles")), ("colou?r", ("colo",)),
    ("1[34].* billion years", (" billion years",)), ("[Nn]ew|old", ("ew", "old")),
    ("(red ){3}fox", ("fox",)), ("\\bcat\\b", ("cat",)), ("\\b7\\b|seven", ("7", "seven")), ("(Neil (A\\. )?)?Armstrong", ("armstrong",)),
    ("ab++c", ("ab",)), ("\\(ab\\)", ("ab",)), ("[\\]]ab[^a]", ("ab",)), ("København", ("benhavn",)),
    ("a|b", ()), ("foo|.*", ()), ("(foo)?", ()), ("\\d{4}", ()), ("x*", ()), ("(?:foo){e<=1}", ()),
    ("foo[[:digit:]]", ()), ("(a)?(?(1)foo|bar)", ()),
])  # fmt: skip
def test_required_strings(pattern, strings):
    assert required_strings(pattern) == strings


def possible(pattern, text):
    return not (needed := required_strings(pattern)) or any(one in folded(text) for one in needed)


def test_letters_of_the_same_kind_are_folded_alike():
    """Every character that the engine takes for a character of ASCII is that character in a folded text."""
    everything = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    for code in range(128):
        character = chr(code)
        assert {folded(one) for one in regex.findall(regex.escape(character), everything, FLAGS)} == {character.lower()}
    assert len(folded(everything)) == len(everything)


LETTERS = st.sampled_from(["\\.", *"abkKs1 -Kſıé"])
ATOMS = st.one_of(LETTERS, st.sampled_from([".", "\\d", "\\s", "\\w", "[ab]", "[^a]", "[a-k]", "\\b", "^", "$"]))


def combined(parts):
    sequences = st.lists(parts, min_size=1, max_size=4).map("".join)
    groups = st.tuples(st.sampled_from(["(", "(?:", "(?>", "(?=", "(?!", "(?<=", "(?i:"]), sequences).map(
        lambda pair: pair[0] + pair[1] + ")"
    )
    branches = st.lists(sequences, min_size=2, max_size=3).map(lambda some: f"(?:{'|'.join(some)})")
    repeats = st.tuples(st.one_of(LETTERS, branches), st.sampled_from(["?", "*", "+", "{2}", "{1,2}", "*?", "++"])).map("".join)
    return st.one_of(sequences, groups, branches, repeats)


@settings(max_examples=300)
@given(st.recursive(ATOMS, combined, max_leaves=8), st.lists(st.text("abkKs1 -.KſıéİABS\n", max_size=12), min_size=1, max_size=8))
def test_no_match_is_missed(pattern, texts):
    compiled = compiled_pattern(pattern)
    if compiled is None:
        return
    for text in texts:
        assert not compiled.search(text) or possible(pattern, text), (required_strings(pattern), text)


def test_real_patterns_on_real_texts(data_dir):
    """A hundred of CuratedTrec's patterns over the contexts of some of SQuAD's paragraphs: none is missed, most are not tried."""
    patterns = [q.answers[0] for q in load_questions(data_dir / "curatedtrec" / "dev.jsonl.xz")][:100]
    texts = [q.text + " " + json.dumps(q.answers) for q in load_questions(data_dir / "webquestions" / "dev.jsonl.xz")]
    texts += [f"It was {pattern} indeed" for pattern in patterns]
    tried = [(pattern, text) for text in texts for pattern in patterns if possible(pattern, text)]
    assert len(tried) < len(patterns) * len(texts) / 5
    found = {(pattern, text) for text in texts for pattern in patterns if compiled_pattern(pattern).search(text)}
    assert found <= set(tried)
