"""CMRC's and KorQuAD's scores, with values worked out by hand from what their scripts say, and which questions get them."""

import pytest

from realm.text.matching.answers import exact_match, f1
from realm.text.matching.scoring import CMRC, KORQUAD, OPEN_QA, cmrc_segments, korquad_form, scoring_of


@pytest.mark.parametrize(("prediction", "references", "em", "f1"), [
    ("《关东三国志》。", ["关东三国志"], True, 1.0),  # marks of the list go
    ("iPhone 6S", ["iphone 6s"], True, 1.0),
    ("iPhone6s", ["iPhone 6s"], False, 0.0),  # white space inside counts: one segment against two others
    ("3,000人", ["3,000 人"], False, 1.0),  # the same segments, but other characters
    ("3.5", ["35"], False, 0.0),  # ASCII's full stop is not in the list
    ("3-5年", ["35年"], True, 1.0),  # its hyphen is
    ("北京市海淀区", ["海淀区北京"], False, 6 / 11),  # the longest common run is 海淀区: 2 * 3 / (6 + 5)
    ("因身体原因", ["身体原因", "原因"], False, 8 / 9),  # 4 of 5 and 4 of 4; the better reference
    ("身体", ["因身体原因", "身体"], True, 1.0), ("足球", ["篮排"], False, 0.0),
    ("，。", ["《》"], True, 0.0),  # both empty: equal, and no run
    ("甲乙丙丁", ["甲丙乙丁"], False, 2 / 8),  # a run, not a bag: one character
    ("the U.S. army", ["U.S. army"], False, 4 / 5), ("足球", [], False, 0.0),
])  # fmt: skip
def test_cmrc(prediction, references, em, f1):
    assert CMRC.exact_match(prediction, references) is em
    assert CMRC.f1(prediction, references) == pytest.approx(f1)


def test_han_hangul_and_english_are_scored_as_their_scripts_are():
    assert cmrc_segments("iPhone 6s手机（2004年), U.S.") == ["iphone", "6s", "手", "机", "2004", "年", ")", ",", "u.s", "."]
    assert cmrc_segments("他说it's 1,000.") == ["他", "说", "it", "'s", "1,000", "."]
    assert cmrc_segments("々カナ〇") == ["々カナ〇"]  # beyond the script's range of Han
    assert korquad_form("‘한국’") == "한국"
    for prediction, references in (("the U.S. Army", ["US army"]), ("Paris, France", ["Paris", "France"]), ("", ["a"]), ("x", [])):
        assert OPEN_QA.exact_match(prediction, references) == exact_match(prediction, references)
        assert OPEN_QA.f1(prediction, references) == f1(prediction, references)


@pytest.mark.parametrize(("prediction", "references", "em", "f1"), [
    ("임종석이", ["임종석"], False, 6 / 7),  # characters: 2 * 3 / (4 + 3)
    ("1989년 2월 15일", ["1989년 2월 15일."], True, 1.0),
    ("1989년2월", ["1989년 2월"], False, 1.0),  # white space counts for equality alone
    ("《경고》", ["〈경고〉"], True, 1.0),
    ("경고(1984년)", ["경고 1984년"], True, 1.0),  # brackets are spaces
    ("경고-1984", ["경고1984"], True, 1.0),  # other ASCII punctuation is deleted
    ("KBS", ["kbs"], True, 1.0),
    ("the KBS", ["KBS"], False, 6 / 9),  # no articles in Korean
    ("석종임", ["임종석"], False, 1.0),  # a bag of characters
    ("서울", ["부산"], False, 0.0), ("?", ["!"], True, 0.0), ("서울", ["부산", "서울시"], False, 4 / 5),
])  # fmt: skip
def test_korquad(prediction, references, em, f1):
    assert KORQUAD.exact_match(prediction, references) is em
    assert KORQUAD.f1(prediction, references) == pytest.approx(f1)


@pytest.mark.parametrize(("question", "name"), [
    ("Who discovered penicillin?", "open-qa"), ("Où est né Victor Hugo ?", "open-qa"),
    ("What does 東京 mean in English?", "open-qa"), ("Кто написал «Войну и мир»?", "open-qa"),
    ("من كتب الكتاب؟", "open-qa"), ("徐晓飞是什么职业？", "cmrc"), ("Microsoft的Windows 95是什么时候发行的？", "cmrc"),
    ("임종석을 검거한 장소는 경희대 내 어디인가?", "korquad"), ("東京タワーの高さはどれくらいですか。", "korquad"),
    ("ใครเป็นผู้เขียน", "korquad"), ("1+1=?", "open-qa"), ("", "open-qa"),
])  # fmt: skip
def test_the_letters_of_a_question_choose(question, name):
    assert scoring_of(question).name == name
