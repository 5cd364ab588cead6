"""Particles, endings and grammar of Korean words, as their spelling tells them."""

import pytest

from realm.text.korean import asking, is_grammar, particle_length


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
    assert asking(statement) == question


def test_words_that_are_only_grammar():
    assert is_grammar(["그", "결과"]) and is_grammar(["않고", "있다"]) and is_grammar(["등", "다양한"])
    assert not is_grammar(["여의도", "농민"]) and not is_grammar(["미국", "대통령"])
