"""Answers are found in a text's own characters; patterns that never end cost their time a few times, not in every text."""

import pytest
from hypothesis import given, strategies as st

from realm.text.matching.answers import normalised_ranges, normalize_answer, padded_parts, raw_ranges, token_words
from realm.text.matching.patterns import PatternSearch

TEXT = "“The Beatles” (Liverpool, 1960) met the beatles; BEATLES, naïve café-goers."


def written(text, ranges):
    return [text[start:end] for start, end in ranges]


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (["Liverpool"], ["Liverpool"]),
        (["The Liverpool!"], ["Liverpool"]),
        (["liverpool 1960"], ["Liverpool, 1960"]),  # the document's own comma
        (["Beatles"], ["beatles", "BEATLES"]),  # typographic quotes belong to their word
        (["met the beatles"], ["met the beatles"]),  # articles inside
        (["café"], ["café"]),  # marked alone it is right
        (["café goers"], []),  # "cafégoers" is one word
        (["cafe\u0301-goers"], ["café-goers"]),
        (["the", "?", ""], []),
        (["Paris"], []),
    ],
)
def test_normalised(answers, found):
    assert written(TEXT, normalised_ranges(TEXT, answers)) == found


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (["eat"], ["eat", "eat"]),  # characters, not words; case counts
        (["Beatles", "BEATLES"], ["Beatles", "BEATLES"]),
        (["the Beatles"], []),
        (["ü", ""], []),
    ],
)
def test_raw(answers, found):
    assert written(TEXT, raw_ranges(TEXT, answers)) == found


def test_overlapping_places_are_all_found():
    assert raw_ranges("aaaa", ["aa"]) == [(0, 2), (1, 3), (2, 4)]
    assert normalised_ranges("x x x", ["x x"]) == [(0, 3), (2, 5)]


WORDS = st.text(alphabet="aAthe nΣσ.,-'“\u0301\u0300\u00a0\u3000éÅ1\n", max_size=24)


@given(WORDS)
def test_word_by_word_is_all_at_once(text):
    assert " ".join(word for token in text.split() for word in token_words(token)) == normalize_answer(text)


@given(st.text(max_size=30))
def test_word_by_word_is_all_at_once_in_any_script(text):
    assert " ".join(word for token in text.split() for word in token_words(token)) == normalize_answer(text)


@given(WORDS, WORDS)
def test_a_range_is_found_exactly_where_the_text_contains_the_answer(text, answer):
    ranges = normalised_ranges(text, [answer])
    needle = normalize_answer(answer)
    assert bool(ranges) == (needle != "" and f" {needle} " in padded_parts(text))
    assert f" {needle} " not in f" {normalize_answer(text)} " or not needle or ranges
    assert all(normalize_answer(text[start:end]) == needle for start, end in ranges)


@pytest.mark.parametrize(
    ("text", "answer", "found"),
    [
        ("In Tesla's laboratory", "Tesla", ["Tesla"]),
        ("In Tesla’s laboratory", "Tesla", ["Tesla"]),
        ("In Tesla's laboratory", "Teslas", ["Tesla's"]),
        ("a New York-based firm", "New York", ["New York"]),
        ("the pre-Columbian–Inca road", "Columbian", ["Columbian"]),
        ("The Joneses' house", "Joneses house", ["Joneses' house"]),
        ("rock-n-roll", "rock n roll", []),  # marked, it would be wrong
        ("rock-n-roll", "rock-n-roll", ["rock-n-roll"]),
        ("in 1990-95", "1990", []),  # a range of years is not its first one
        ("a 1990-based index", "1990", ["1990"]),
        ("the U.S.-led force", "US", ["U.S"]),
        ("don't", "t", ["t"]),
        ("anti-art", "art", ["art"]),
        ("party", "art", []),
    ],
)
def test_beside_a_mark_that_joins(text, answer, found):
    assert written(text, normalised_ranges(text, [answer])) == found


@given(WORDS, st.integers(0, 20), st.integers(1, 5))
def test_what_stands_there_is_found_raw(text, start, length):
    piece = text[start : start + length]
    assert not piece or (start, start + len(piece)) in raw_ranges(text, [piece])


def test_a_pattern_that_never_ends_is_given_up():
    endless, texts = "(a|a|aa)+$", ["a" * 200 + "b"] * 500
    search = PatternSearch(timeout_s=0.05, strikes=2)
    found = [search.found(text, [endless, "a+b"]) for text in texts]
    assert all(found) and search.too_slow == [endless]
    assert not search.found("aaa", [endless]), "given up, so what it could match is not found either"
    assert not PatternSearch().found("x", ["(", "["]) and PatternSearch().found("a 1969", ["196\\d"])
