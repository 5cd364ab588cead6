"""Texts of scripts without spaces are read character by character; all others as ever."""

import pytest
from hypothesis import given, strategies as st

from realm.text.matching.answers import normalised_ranges, padded_answers, padded_parts
from realm.text.words import by_characters, characters_of, east_asian, word_ranges, words as searched

CHINESE = "《战国无双3》是由光荣和ω-force开发的“战国无双”系列，共有1,200人。"
KOREAN = "임종석은 1989년 2월 15일 여의도에서 ‘농민 시위’(폭력)를 주도했다."


def words(text):
    return [text[start:end] for start, end in word_ranges(text)]


@pytest.mark.parametrize("text", [CHINESE, KOREAN, "東京タワー", "ภาษาไทย", "KBS는 한국 방송이다."])
def test_read_by_characters(text):
    assert by_characters(text)


@pytest.mark.parametrize("text", ["", "1989", "Tokyo (東京) is the capital of Japan.", "Пётр Первый", "القاهرة عاصمة مصر", "Ωmega café"])
def test_read_by_words(text):
    assert not by_characters(text)
    assert words(text) == text.split()


def test_numbers_in_other_digits_are_the_same_words():
    assert searched("عام ١٩٩٥, १२, 4,500") == ["عام", "1995", "12", "4500"]


def test_words_of_texts_without_spaces():
    assert words("由ω-force开发，共1,200人。") == ["由", "ω-force", "开", "发", "共", "1,200", "人"]
    assert words("시위’(폭력)를 U.S.로") == ["시", "위", "(", "폭", "력", ")", "를", "U.S.", "로"]
    assert characters_of("東京") == ["東", "京"]


@pytest.mark.parametrize(("text", "answer", "found"), [
    (CHINESE, "战国无双", ["战国无双", "战国无双"]), (CHINESE, "战国无双3", ["战国无双3"]),
    (CHINESE, "《战国无双3》", ["战国无双3"]), (CHINESE, "ω-force", ["ω-force"]),
    (CHINESE, "forc", []),  # a word of other letters is whole
    (CHINESE, "force", ["force"]),  # but for a hyphen beside it
    (CHINESE, "1200人", ["1,200人"]), (CHINESE, "200人", []), (CHINESE, "光荣和Ω-FORCE", ["光荣和ω-force"]),
    (CHINESE, "。", []),
    (KOREAN, "임종석", ["임종석"]),  # without its particle
    (KOREAN, "2월 15일", ["2월 15일"]), (KOREAN, "2월15일", ["2월 15일"]), (KOREAN, "5일", []),
    (KOREAN, "농민 시위", ["농민 시위"]), (KOREAN, "시위 폭력", ["시위’(폭력"]),
    ("Tokyo (東京) is the capital.", "東京", ["東京"]), ("Tokyo (東京都) is the capital.", "東京", []),
])  # fmt: skip
def test_answers_stand_in_texts(text, answer, found):
    assert [text[start:end] for start, end in normalised_ranges(text, [answer])] == found
    assert any(needle in padded_parts(text) for needle in padded_answers([answer])) is bool(found)


@given(st.text(st.sampled_from("甲乙丙한국のabc 1,.，“”"), max_size=30), st.integers(0, 29), st.integers(1, 6))
def test_what_stands_there_is_found(text, start, length):
    """A run of whole words, cut out of a text as it is, is found in it, by both ways to look."""
    whole = word_ranges(text)
    if start >= len(whole) or not by_characters(text):
        return
    first, last = whole[start][0], whole[min(len(whole), start + length) - 1][1]
    needles = padded_answers([text[first:last]])
    found = [one for needle in needles for one in [needle in padded_parts(text)]]
    assert bool(normalised_ranges(text, [text[first:last]])) is any(found)
    if by_characters(text[first:last]):
        assert any(found) or not needles


@pytest.mark.parametrize(
    ("text", "language"), [("中国的首都", "zh"), ("한국의 수도 (首都)", "ko"), ("日本の首都", "ja"), ("ภาษาไทย", ""), ("abc", "")]
)
def test_languages_of_east_asia(text, language):
    assert east_asian(text) == language
