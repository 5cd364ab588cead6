"""Answers: every decision of the official open-QA evaluation that is easy to get wrong."""

import json
import lzma
import re
import time
import unicodedata

import pytest
from hypothesis import given, strategies as st

from realm.text.matching.answers import exact_match, f1, normalised_ranges, normalize_answer, regex_match
from realm.text.matching.patterns import PatternSearch

CATASTROPHIC = "(a|a|aa)+$"
HOSTILE_TEXT = "a" * 200 + "b"


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The Beatles", "beatles"),
        ("a An THE", ""),
        ("A", ""),
        ("Another theme", "another theme"),  # articles are whole words
        ("theatre, an; the.", "theatre"),
        ("A.", ""),  # punctuation goes first, so the article is bare
        ("the-end", "theend"),  # and an article glued by punctuation is none
        ("a_b", "ab"),
        ("U.S.A.", "usa"),
        ("U. S. A.", "u s"),  # the last letter has become an article
        ("rock-n-roll", "rocknroll"),
        ("Ocean's Eleven", "oceans eleven"),
        ("don’t", "don’t"),  # a typographic apostrophe is not ASCII
        ("“quoted”", "“quoted”"),
        ("1,000,000", "1000000"),
        ("$5.50", "550"),
        ("  many \t spaces\n", "many spaces"),
        ("no\u00a0break", "no break"),
        ("Caf\u00e9", "cafe\u0301"),  # decomposed, not removed
        ("cafe\u0301", "cafe\u0301"),
        ("\u00e0 la carte", "\u0300 la carte"),  # NFD makes it an article with an accent behind it
        ("Ångström", "\u030angstro\u0308m"),  # and so does any word that begins with an accented a
        ("São Paulo", "sa\u0303o paulo"),
        ("İstanbul", "i\u0307stanbul"),
        ("STRASSE", "strasse"),
        ("Straße", "straße"),  # lower case, not case folding
        ("①", "①"),  # NFD, not NFKD
        ("ﬁn", "ﬁn"),
        ("한국", unicodedata.normalize("NFD", "한국")),
        ("東京、日本", "東京、日本"),
        ("", ""),
        ("!?", ""),
    ],
)
def test_normalize(text, normalized):
    assert normalize_answer(text) == normalized


@given(st.text(max_size=40))
def test_equivalent_encodings_normalize_alike(text):
    forms = {normalize_answer(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")}
    assert len(forms) == 1
    assert "  " not in forms.pop()


@pytest.mark.parametrize(
    ("prediction", "answers", "match"),
    [
        ("the beatles", ["The Beatles!"], True),
        ("Caf\u00e9", ["cafe\u0301"], True),
        ("café", ["cafe"], False),
        ("London", ["Paris", "Rome", "london."], True),  # several references: any
        ("London", ["Paris", "Rome"], False),
        ("London England", ["London"], False),
        ("14 February", ["14th February"], False),
        ("a", ["the"], True),  # both are empty
        ("", [""], True),
        ("x", [""], False),
        ("x", [], False),
    ],
)
def test_exact_match(prediction, answers, match):
    assert exact_match(prediction, answers) is match


@pytest.mark.parametrize(
    ("prediction", "patterns", "match"),
    [
        ("1969", ["1969"], True),
        ("1969 or so", ["1969"], True),  # open at the end
        ("in 1969", ["1969"], False),  # anchored at the start
        ("in 1969", [".*1969"], True),
        ("x\n1969", ["^1969"], False),  # multi-line moves ^, not the start of match
        ("1969\nx", ["1969$"], True),  # but it does move $
        ("x\n1969", [".*1969"], False),  # no DOTALL
        ("NEIL armstrong", ["neil\\s+Armstrong"], True),
        ("Ελλάδα", ["ελλ.δα"], True),
        ("٣٤", ["\\d+"], True),  # Unicode digits
        (" 1969", ["1969"], False),  # the raw prediction, not the normalised one
        ("The Beatles", ["beatles"], False),
        ("caf\u00e9", ["cafe\u0301"], False),
        ("1969", ["(", "[", "*", "1969"], True),  # invalid patterns are skipped
        ("(", ["("], False),
        ("x", ["(?P<"], False),
        ("x", ["(?L)x"], False),  # contradicting flags
        ("x", ["x{99999999999}"], False),
        ("x", ["(" * 3000 + "x" + ")" * 3000], False),  # deeper than the stack
        ("x", ["\\"], False),
        ("", [""], True),
        ("anything", [""], True),
        ("x", [], False),
        ("Mt. Everest", ["(Mount|Mt\\.?) Everest"], True),
        ("second", ["first", "sec(ond)?"], True),
    ],
)
def test_regex_match(prediction, patterns, match):
    assert regex_match(prediction, patterns) is match


def test_patterns_of_curatedtrec_mean_what_re_says(data_dir):
    flags = re.IGNORECASE | re.UNICODE | re.MULTILINE
    texts = ["1969", "Neil Armstrong", "the 14th of February, 1912", "$5.50", "New York City\nUSA", "about 3,000 miles", "Mt. Everest"]
    checked = 0
    with lzma.open(data_dir / "curatedtrec" / "dev.jsonl.xz", "rt", encoding="utf-8") as rows:
        for pattern in (pattern for row in rows for pattern in json.loads(row)["answers"]):
            for text in [*texts, re.sub(r"[\\()?*+.|^$]", "", pattern)]:
                assert regex_match(text, [pattern]) == (re.compile(pattern, flags).match(text) is not None), (pattern, text)
                checked += 1
    assert checked > 500


def test_regex_match_gives_up_on_a_catastrophic_pattern():
    started = time.perf_counter()
    assert not regex_match(HOSTILE_TEXT, [CATASTROPHIC], timeout_s=0.1)
    assert regex_match(HOSTILE_TEXT, [CATASTROPHIC, "a+b"], timeout_s=0.1)  # the next pattern has its own time
    assert time.perf_counter() - started < 10


@given(st.text(alphabet="()[]{}*+?|\\^$.-ab1,:<>=!PLRpN", max_size=20))
def test_no_pattern_raises(pattern):
    assert regex_match("aab1", [pattern], timeout_s=0.05) in (True, False)
    assert PatternSearch(timeout_s=0.05).found("aab1", [pattern]) in (True, False)


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("the big cat", ["big cat"], 1.0),
        ("big cat", ["cat"], 2 / 3),
        ("cat cat", ["cat"], 2 / 3),  # multisets
        ("dog", ["cat"], 0.0),
        ("Neil Armstrong", ["Buzz Aldrin", "Neil A. Armstrong", "Armstrong"], 1.0),  # "A" is an article; the best reference counts
        ("the", ["a"], 1.0),  # nothing left on both sides
        ("the", ["cat"], 0.0),
        ("cat", ["!"], 0.0),
        ("cat", [], 0.0),
    ],
)
def test_f1(prediction, answers, score):
    assert f1(prediction, answers) == pytest.approx(score)


@given(st.text(max_size=20), st.text(max_size=20))
def test_f1_is_bounded_symmetric_and_one_for_exact_matches(one, other):
    score = f1(one, [other])
    assert 0.0 <= score <= 1.0
    assert score == f1(other, [one])
    assert score == 1.0 or not exact_match(one, [other])


@pytest.mark.parametrize(
    ("text", "answers", "found"),
    [
        ("Paris is the capital of France.", ["France"], True),
        ("He joined the party.", ["art"], False),  # words, not characters
        ("The United States of America", ["states of America"], True),
        ("The United States, of a sort, America", ["States of America"], False),
        ("States of the America", ["states of America"], True),  # articles are gone on both sides
        ("In the café", ["cafe\u0301"], True),
        ("In the café", ["cafe"], False),
        ("New York-based", ["New York"], True),  # right if marked alone
        ("rock-n-roll", ["rock n roll"], False),  # deleted punctuation joins words
        ("nothing here", ["the"], False),  # an answer without words is nowhere
        ("nothing here", ["?", ""], False),
        ("", ["x"], False),
        ("x", [], False),
        ("one two", ["one two three"], False),
        ("last word", ["first", "WORD"], True),
        ("one two", ["two"], True),
        ("a one", ["one"], True),
        ("line\nbreak", ["line break"], True),
    ],
)
def test_contains_string(text, answers, found):
    assert bool(normalised_ranges(text, answers)) is found


@pytest.mark.parametrize(
    ("text", "patterns", "found"),
    [
        ("He landed in 1969.", ["196\\d"], True),  # anywhere, unlike regex_match
        ("one\ntwo", ["^two$"], True),
        ("PARIS", ["paris"], True),
        ("party", ["art"], True),  # a pattern that wants words says so
        ("party", ["\\bart\\b"], False),
        ("(", ["(", "\\("], True),
        (HOSTILE_TEXT, ["(a|a|aa)+c"], False),
    ],
)
def test_contains_regex(text, patterns, found):
    assert PatternSearch(timeout_s=0.1).found(text, patterns) is found


def test_one_string_is_refused_as_references():
    for function in (exact_match, regex_match, f1):
        with pytest.raises(TypeError, match="sequence"):
            function("abc", "abc")
