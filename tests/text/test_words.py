"""Texts of scripts without spaces are read character by character; all others as ever."""

import sys

import pytest
from hypothesis import given, strategies as st

from realm.text import words as languages
from realm.text.matching.answers import normalised_ranges, padded_answers, padded_parts
from realm.text.words import by_characters, characters_of, language_of, particle_length, word_ranges, words as searched

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
    (CHINESE, "1200人", ["1,200人"]), (CHINESE, "200人", []), (CHINESE, "光荣和Ω-FORCE", ["光荣和ω-force"]), (CHINESE, "。", []),
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
    assert languages.east_asian(text) == language


@pytest.mark.parametrize(("word", "noun"), [
    ("임종석이", "임종석"), ("천황을", "천황"), ("대통령은", "대통령"), ("학교에서", "학교"), ("BBK의", "BBK"),
    ("1989년에는", "1989년"), ("서울로", "서울"), ("부산으로", "부산"),
    ("국가", "국가"),  # 가 follows a vowel
    ("종로", "종로"),  # 로 a vowel or ㄹ
    ("종이", "종이"),  # too little would be left
    ("한국", "한국"), ("", ""),
])  # fmt: skip
def test_particles(word, noun):
    assert word[: len(word) - particle_length(word)] == noun


@pytest.mark.parametrize(("statement", "question"), [
    ("주도했다", "주도했는가"), ("팔렸다", "팔렸는가"), ("있다", "있는가"), ("없다", "없는가"), ("낸다", "내는가"),
    ("기록한다", "기록하는가"), ("섬이다", "섬인가"), ("높다", "높은가"), ("크다", "큰가"),
    ("체포되었음", "체포되었음"), ("다", "다"), ("A다", "A다"),
])  # fmt: skip
def test_endings_that_ask(statement, question):
    assert languages.asking(statement) == question


def test_words_that_are_only_grammar():
    assert languages.is_grammar(["그", "결과"]) and languages.is_grammar(["않고", "있다"]) and languages.is_grammar(["등", "다양한"])
    assert not languages.is_grammar(["여의도", "농민"]) and not languages.is_grammar(["미국", "대통령"])


@pytest.fixture
def without_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid", None)
    language_of.cache_clear()
    languages._classifier.cache_clear()


@pytest.fixture(autouse=True)
def forgetful():
    yield
    language_of.cache_clear()
    languages._classifier.cache_clear()


LETTERS = [
    ("战国无双是由光荣开发的游戏。", "zh"), ("임종석은 여의도에서 시위를 주도했다 (任鍾晳).", "ko"),
    ("東京タワーは日本の塔です。", "ja"), ("ภาษาไทยเป็นภาษา", "th"), ("Η Αθήνα είναι πρωτεύουσα.", "el"),
    ("1989, 1990", ""), ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "language"), [
    *LETTERS, ("The tower was built in 1889.", "und-Latn"), ("Башня была построена в 1889 году.", "und-Cyrl"),
    ("القاهرة عاصمة مصر", "und-Arab"), ("Tokyo (東京) is the capital of Japan.", "und-Latn"),
])  # fmt: skip
def test_without_the_library_letters_tell_or_the_script_is_said(text, language, without_library):
    assert language_of(text) == language


@pytest.mark.parametrize(("text", "language"), LETTERS)
def test_the_library_is_not_asked_what_letters_tell(text, language, monkeypatch):
    monkeypatch.setattr(languages, "_classifier", lambda: lambda text: pytest.fail("asked"))
    language_of.cache_clear()
    assert language_of(text) == language


@pytest.mark.parametrize(("text", "language"), [
    ("The tower was built by an engineer and is the symbol of the city.", "en"),
    ("Der Turm wurde von einem Ingenieur gebaut und ist das Wahrzeichen der Stadt.", "de"),
    ("La tour a été construite par un ingénieur et elle est le symbole de la ville.", "fr"),
    ("Башня была построена инженером и является символом города.", "ru"),
    ("مدينة القاهرة هي عاصمة جمهورية مصر العربية وأكبر مدنها", "ar"),
])  # fmt: skip
def test_the_library_tells_languages_of_one_script_apart(text, language):
    pytest.importorskip("py3langid")
    assert language_of(text) == language
