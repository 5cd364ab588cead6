"""Answers: every decision of the official open-QA evaluation that is easy to get wrong."""

import json
import lzma
import re
import time
import unicodedata

import pytest
from hypothesis import given, strategies as st

import realm.text.matching.answers as matching
from realm.text.matching.answers import exact_match, f1, normalised_ranges, normalize_answer, regex_match
from realm.text.matching.patterns import PatternSearch

CATASTROPHIC = "(a|a|aa)+$"
HOSTILE_TEXT = "a" * 200 + "b"


@pytest.mark.parametrize(("text", "normalized"), [
    ("The Beatles", "beatles"), ("a An THE", ""), ("A", ""),
    ("Another theme", "another theme"),  # articles are whole words
    ("theatre, an; the.", "theatre"),
    ("A.", ""),  # punctuation goes first, so the article is bare
    ("the-end", "theend"),  # and an article glued by punctuation is none
    ("a_b", "ab"), ("U.S.A.", "usa"),
    ("U. S. A.", "u s"),  # the last letter has become an article
    ("rock-n-roll", "rocknroll"), ("Ocean's Eleven", "oceans eleven"),
    ("don’t", "don’t"),  # a typographic apostrophe is not ASCII
    ("“quoted”", "“quoted”"), ("1,000,000", "1000000"), ("$5.50", "550"), ("  many \t spaces\n", "many spaces"),
    ("no\u00a0break", "no break"),
    ("Caf\u00e9", "cafe\u0301"),  # decomposed, not removed
    ("cafe\u0301", "cafe\u0301"),
    ("\u00e0 la carte", "\u0300 la carte"),  # NFD makes it an article with an accent behind it
    ("Ångström", "\u030angstro\u0308m"),  # and so does any word that begins with an accented a
    ("São Paulo", "sa\u0303o paulo"), ("İstanbul", "i\u0307stanbul"), ("STRASSE", "strasse"),
    ("Straße", "straße"),  # lower case, not case folding
    ("①", "①"),  # NFD, not NFKD
    ("1½", "1½"), ("1/2", "12"),  # as the script has it: folding spells fractions alike before
    ("ﬁn", "ﬁn"), ("한국", unicodedata.normalize("NFD", "한국")), ("東京、日本", "東京、日本"), ("", ""), ("!?", ""),
])  # fmt: skip
def test_normalize(text, normalized):
    assert normalize_answer(text) == normalized


@given(st.text(max_size=40))
def test_equivalent_encodings_normalize_alike(text):
    forms = {normalize_answer(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")}
    assert len(forms) == 1
    assert "  " not in forms.pop()


@pytest.mark.parametrize(("prediction", "answers", "match"), [
    ("the beatles", ["The Beatles!"], True), ("Caf\u00e9", ["cafe\u0301"], True), ("café", ["cafe"], False),
    ("London", ["Paris", "Rome", "london."], True),  # several references: any
    ("London", ["Paris", "Rome"], False), ("London England", ["London"], False), ("14 February", ["14th February"], False),
    ("a", ["the"], True),  # both are empty
    ("", [""], True), ("x", [""], False), ("x", [], False),
])  # fmt: skip
def test_exact_match(prediction, answers, match):
    assert exact_match(prediction, answers) is match


@pytest.mark.parametrize(("prediction", "patterns", "match"), [
    ("1969", ["1969"], True),
    ("1969 or so", ["1969"], True),  # open at the end
    ("in 1969", ["1969"], False),  # anchored at the start
    ("in 1969", [".*1969"], True),
    ("x\n1969", ["^1969"], False),  # multi-line moves ^, not the start of match
    ("1969\nx", ["1969$"], True),  # but it does move $
    ("x\n1969", [".*1969"], False),  # no DOTALL
    ("NEIL armstrong", ["neil\\s+Armstrong"], True), ("Ελλάδα", ["ελλ.δα"], True),
    ("٣٤", ["\\d+"], True),  # Unicode digits
    (" 1969", ["1969"], False),  # the raw prediction, not the normalised one
    ("The Beatles", ["beatles"], False), ("caf\u00e9", ["cafe\u0301"], False),
    ("1969", ["(", "[", "*", "1969"], True),  # invalid patterns are skipped
    ("(", ["("], False), ("x", ["(?P<"], False),
    ("x", ["(?L)x"], False),  # contradicting flags
    ("x", ["x{99999999999}"], False),
    ("x", ["(" * 3000 + "x" + ")" * 3000], False),  # deeper than the stack
    ("x", ["\\"], False), ("", [""], True), ("anything", [""], True), ("x", [], False),
    ("Mt. Everest", ["(Mount|Mt\\.?) Everest"], True), ("second", ["first", "sec(ond)?"], True),
])  # fmt: skip
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


def test_patterns_that_never_end_are_given_up():
    started = time.perf_counter()
    assert not regex_match(HOSTILE_TEXT, [CATASTROPHIC], timeout_s=0.1)
    assert regex_match(HOSTILE_TEXT, [CATASTROPHIC, "a+b"], timeout_s=0.1)  # the next pattern has its own time
    assert time.perf_counter() - started < 10
    endless, texts, search = "(a|a|aa)+$", ["a" * 200 + "b"] * 500, PatternSearch(timeout_s=0.05, strikes=2)
    found = [search.found(text, [endless, "a+b"]) for text in texts]
    assert all(found) and search.too_slow == [endless]
    assert not search.found("aaa", [endless]), "given up, so what it could match is not found either"
    assert not PatternSearch().found("x", ["(", "["]) and PatternSearch().found("a 1969", ["196\\d"])


@given(st.text(alphabet="()[]{}*+?|\\^$.-ab1,:<>=!PLRpN", max_size=20))
def test_no_pattern_raises(pattern):
    assert regex_match("aab1", [pattern], timeout_s=0.05) in (True, False)
    assert PatternSearch(timeout_s=0.05).found("aab1", [pattern]) in (True, False)


@pytest.mark.parametrize(("prediction", "answers", "score"), [
    ("the big cat", ["big cat"], 1.0), ("big cat", ["cat"], 2 / 3),
    ("cat cat", ["cat"], 2 / 3),  # multisets
    ("dog", ["cat"], 0.0),
    ("Neil Armstrong", ["Buzz Aldrin", "Neil A. Armstrong", "Armstrong"], 1.0),  # "A" is an article; the best reference counts
    ("the", ["a"], 1.0),  # nothing left on both sides
    ("the", ["cat"], 0.0), ("cat", ["!"], 0.0), ("cat", [], 0.0),
])  # fmt: skip
def test_f1(prediction, answers, score):
    assert f1(prediction, answers) == pytest.approx(score)


@given(st.text(max_size=20), st.text(max_size=20))
def test_f1_is_bounded_symmetric_and_one_for_exact_matches(one, other):
    score = f1(one, [other])
    assert 0.0 <= score <= 1.0
    assert score == f1(other, [one])
    assert score == 1.0 or not exact_match(one, [other])


@pytest.mark.parametrize(("text", "patterns", "found"), [
    ("He landed in 1969.", ["196\\d"], True),  # anywhere, unlike regex_match
    ("one\ntwo", ["^two$"], True), ("PARIS", ["paris"], True),
    ("party", ["art"], True),  # a pattern that wants words says so
    ("party", ["\\bart\\b"], False), ("(", ["(", "\\("], True), (HOSTILE_TEXT, ["(a|a|aa)+c"], False),
])  # fmt: skip
def test_contains_regex(text, patterns, found):
    assert PatternSearch(timeout_s=0.1).found(text, patterns) is found


def test_one_string_is_refused_as_references():
    for function in (exact_match, regex_match, f1):
        with pytest.raises(TypeError, match="sequence"):
            function("abc", "abc")


TEXT = "“The Beatles” (Liverpool, 1960) met the beatles; BEATLES, naïve café-goers."


def written(text, ranges):
    return [text[start:end] for start, end in ranges]


@pytest.mark.parametrize(("text", "answers", "found"), [
    (TEXT, ["Liverpool"], ["Liverpool"]), (TEXT, ["The Liverpool!"], ["Liverpool"]),
    (TEXT, ["liverpool 1960"], ["Liverpool, 1960"]),  # the document's own comma
    (TEXT, ["Beatles"], ["beatles", "BEATLES"]),  # typographic quotes belong to their word
    (TEXT, ["met the beatles"], ["met the beatles"]),  # articles inside
    (TEXT, ["café"], ["café"]),  # marked alone it is right
    (TEXT, ["café goers"], []),  # "cafégoers" is one word
    (TEXT, ["cafe\u0301-goers"], ["café-goers"]), (TEXT, ["the", "?", ""], []), (TEXT, ["Paris"], []),
    ("He joined the party.", ["art"], []),  # words, not characters
    ("The United States of America", ["states of America"], ["States of America"]),
    ("The United States, of a sort, America", ["States of America"], []),
    ("States of the America", ["states of America"], ["States of the America"]),  # articles are gone on both sides
    ("In the café", ["cafe\u0301"], ["café"]), ("In the café", ["cafe"], []), ("", ["x"], []), ("x", [], []),
    ("one two", ["one two three"], []), ("last word", ["first", "WORD"], ["word"]), ("one two", ["two"], ["two"]),
    ("a one", ["one"], ["one"]), ("line\nbreak", ["line break"], ["line\nbreak"]), ("x x x", ["x x"], ["x x", "x x"]),
    # Beside a mark that joins.
    ("In Tesla's laboratory", ["Tesla"], ["Tesla"]), ("In Tesla’s laboratory", ["Tesla"], ["Tesla"]),
    ("In Tesla's laboratory", ["Teslas"], ["Tesla's"]), ("a New York-based firm", ["New York"], ["New York"]),
    ("the pre-Columbian–Inca road", ["Columbian"], ["Columbian"]), ("The Joneses' house", ["Joneses house"], ["Joneses' house"]),
    ("rock-n-roll", ["rock n roll"], []),  # marked, it would be wrong
    ("rock-n-roll", ["rock-n-roll"], ["rock-n-roll"]), ("in 1990-95", ["1990"], []),  # a range of years is not its first one
    ("a 1990-based index", ["1990"], ["1990"]), ("the U.S.-led force", ["US"], ["U.S"]), ("don't", ["t"], ["t"]),
    ("anti-art", ["art"], ["art"]),
])  # fmt: skip
def test_normalised(text, answers, found):
    assert written(text, normalised_ranges(text, answers)) == found


@pytest.mark.parametrize(("answers", "found"), [
    (["eat"], ["eat", "eat"]),  # characters, not words; case counts
    (["Beatles", "BEATLES"], ["Beatles", "BEATLES"]), (["the Beatles"], []), (["ü", ""], []),
])  # fmt: skip
def test_raw(answers, found):
    assert written(TEXT, matching.raw_ranges(TEXT, answers)) == found
    assert matching.raw_ranges("aaaa", ["aa"]) == [(0, 2), (1, 3), (2, 4)]


WORDS = st.text(alphabet="aAthe nΣσ.,-'“\u0301\u0300\u00a0\u3000éÅ1\n", max_size=24)


@given(st.one_of(WORDS, st.text(max_size=30)))
def test_word_by_word_is_all_at_once(text):
    assert " ".join(word for token in text.split() for word in matching.token_words(token)) == normalize_answer(text)


@given(WORDS, WORDS)
def test_a_range_is_found_exactly_where_the_text_contains_the_answer(text, answer):
    ranges, needle = normalised_ranges(text, [answer]), normalize_answer(answer)
    assert bool(ranges) == (needle != "" and f" {needle} " in matching.padded_parts(text))
    assert f" {needle} " not in f" {normalize_answer(text)} " or not needle or ranges
    assert all(normalize_answer(text[start:end]) == needle for start, end in ranges)


@given(WORDS, st.integers(0, 20), st.integers(1, 5))
def test_what_stands_there_is_found_raw(text, start, length):
    piece = text[start : start + length]
    assert not piece or (start, start + len(piece)) in matching.raw_ranges(text, [piece])


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
    assert (matching.CMRC.exact_match(prediction, references), matching.CMRC.f1(prediction, references)) == (em, pytest.approx(f1))


def test_han_hangul_and_english_are_scored_as_their_scripts_are():
    assert matching.cmrc_segments("iPhone 6s手机（2004年), U.S.") == ["iphone", "6s", "手", "机", "2004", "年", ")", ",", "u.s", "."]
    assert matching.cmrc_segments("他说it's 1,000.") == ["他", "说", "it", "'s", "1,000", "."]
    assert matching.cmrc_segments("々カナ〇") == ["々カナ〇"]  # beyond the script's range of Han
    assert matching.korquad_form("‘한국’") == "한국"
    for prediction, references in (("the U.S. Army", ["US army"]), ("Paris, France", ["Paris", "France"]), ("", ["a"]), ("x", [])):
        assert matching.OPEN_QA.exact_match(prediction, references) == exact_match(prediction, references)
        assert matching.OPEN_QA.f1(prediction, references) == f1(prediction, references)


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
    assert (matching.KORQUAD.exact_match(prediction, references), matching.KORQUAD.f1(prediction, references)) == (em, pytest.approx(f1))


@pytest.mark.parametrize(("question", "name"), [
    ("Who discovered penicillin?", "open-qa"), ("Où est né Victor Hugo ?", "open-qa"),
    ("What does 東京 mean in English?", "open-qa"), ("Кто написал «Войну и мир»?", "open-qa"),
    ("من كتب الكتاب؟", "open-qa"), ("徐晓飞是什么职业？", "cmrc"), ("Microsoft的Windows 95是什么时候发行的？", "cmrc"),
    ("임종석을 검거한 장소는 경희대 내 어디인가?", "korquad"), ("東京タワーの高さはどれくらいですか。", "korquad"),
    ("ใครเป็นผู้เขียน", "korquad"), ("1+1=?", "open-qa"), ("", "open-qa"),
])  # fmt: skip
def test_the_letters_of_a_question_choose(question, name):
    assert matching.scoring_of(question).name == name
