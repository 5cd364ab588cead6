"""One spelling of what several code points and line ends write: known pairs, and what holds for any text."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from realm.text.folding import fold, folded, unbroken
from realm.text.tokenizer import train_wordpiece
from realm.text.words import words

SPELLED = {
    "The ﬁrst ofﬁce of the ﬂoating bridge": "The first office of the floating bridge",
    "Ｔｈｅ ｍａｃｈｉｎｅ ｗａｓ ｂｕｉｌｔ ｂｙ Ｏｔｔｏ Ｂｅｒｇ．": "The machine was built by Otto Berg.",
    "cafe\u0301 Dvor\u030ca\u0301k": "caf\u00e9 Dvo\u0159\u00e1k",
    "vi\u00adne\u00adyard": "vineyard",
    "ｶﾞﾗｽ": "ガラス",
    "\u1112\u1161\u11ab": "\ud55c",
    "\u212bngstro\u0308m": "\u00c5ngstr\u00f6m",
    "12\u00a0000\u2009km": "12 000 km",
    "𝐓𝐡𝐞 Ⅳ": "The IV",
    "non‑breaking": "non-breaking",
    "ﻣﺤﻤﺪ": "محمد",
    "№ 5, 20 ℃": "No 5, 20 °C",
    "10⁶ litres, 25 m², prix¹": "10^6 litres, 25 m2, prix^1",
    "CO₂ is 20₁₆, 10⁻⁶": "CO2 is 20_16, 10^-6",
    "Ellen\nMarsh": "Ellen Marsh",
    "Ellen  \n   Marsh": "Ellen Marsh",
    "> by Ellen\n> Marsh": "> by Ellen Marsh",
    "Upper Tar-\nvik": "Upper Tarvik",
    "a well-\nknown mother-in-\nlaw": "a well-known mother-in-law",
    "a New York-\nbased Anglo-\nSaxon, 1990-\n95": "a New York-based Anglo-Saxon, 1990-95",
    "re-\nbuilt, un-\nfriendly, hand-\nmade": "rebuilt, unfriendly, hand-made",
    "pre-\nand post-war": "pre- and post-war",
    "日本の\n首都": "日本の首都",
    "½ of x, … “so”": "1/2 of x, … “so”",
    "1½ cups, ⅓ ⅞ ↉ ⅟9, 33 1⁄3 rpm, 2¹⁄₂ or 2¹/₂": "1 1/2 cups, 1/3 7/8 0/3 1/9, 33 1/3 rpm, 2 1/2 or 2 1/2",
}
TOLD = st.sampled_from([*"½⁄/aé\u0301\u0303ﬁＡｶﾞ²₁6-‐\n >\u00ad\u00a0日\u1112\u1161🐟\u200d", "👨‍👩‍👧"])
TEXTS = st.one_of(st.text(max_size=20), st.lists(TOLD, max_size=12).map("".join))


@pytest.mark.parametrize(("written", "spelled"), SPELLED.items())
def test_spelling(written, spelled):
    assert folded(written) == spelled


def test_letters_with_strokes_are_searched_without_them():
    assert words("Łódź, Øre, ÆGIR, Đặng, Þór") == words("Lodz, Ore, Aegir, Dang, Thor")


@given(TEXTS)
def test_folding_twice_changes_nothing_and_both_ways_agree(text):
    once = fold(text)
    assert once.text == folded(text)
    assert folded(folded(folded(text))) == folded(folded(text))


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_printable_ascii_on_one_line_is_its_own_form(text):
    assert fold(text).ranges is None
    assert folded(text) == text


@given(TEXTS)
def test_places_cover_the_text_in_order_and_end_at_whole_characters(text):
    found = fold(text)
    places = found.places([(at, at + 1) for at in range(len(found.text))])
    assert all(0 <= start < end <= len(text) for start, end in places)
    assert [start for start, _ in places] == sorted(start for start, _ in places)
    inside = (end for _, end in places if end < len(text) and unicodedata.category(text[end - 1])[0] not in "CZ")  # a mark there is alone
    assert not any(unicodedata.combining(text[end]) for end in inside)


@pytest.mark.parametrize(("text", "answer"), [
    ("owned by Rene\u0301e Dvor\u030ca\u0301k since", "Rene\u0301e Dvor\u030ca\u0301k"), ("The ﬁrst ofﬁce opened", "ofﬁce"),
    ("built by Ｏｔｔｏ Ｂｅｒｇ．", "Ｏｔｔｏ Ｂｅｒｇ"), ("cut in Upper Tar-\nvik by", "Upper Tar-\nvik"),
    ("a parrot called 👨‍👩‍👧 here", "👨‍👩‍👧"), ("the x\u0304 axis", "x\u0304"), ("by Ellen\n  Marsh.", "Ellen\n  Marsh"),
    ("owns the caf\u00e9 now", "caf\u00e9"), ("a ko\u0308ttbullar\u0301", "ko\u0308ttbullar\u0301"),
    ("van \u212bngstro\u0308m to", "\u212bngstro\u0308m"),
])  # fmt: skip
def test_wordpieces_of_a_marked_answer_give_it_back_whole(text, answer):
    """Also those of one character, which is where an accent was left outside."""
    tokenizer = train_wordpiece([text, folded(text)], 200)
    start = text.index(answer)
    _, offsets = tokenizer.encode_offsets(text)
    inside = [place for place in offsets if start <= place[0] < start + len(answer)]
    assert (inside[0][0], inside[-1][1]) == (start, start + len(answer))
    assert tokenizer.tokenize([text]).offsets(0) == offsets


def test_several_spellings_are_the_same_wordpieces():
    tokenizer = train_wordpiece(["the caf\u00e9 and its first office in Upper Tarvik"], 300)
    for written in ("cafe\u0301", "ｃａｆｅ\u0301"):
        assert tokenizer.encode([written]) == tokenizer.encode(["caf\u00e9"])
    assert tokenizer.encode(["ﬁrst ofﬁce in Upper Tar-\nvik"]) == tokenizer.encode(["first office in Upper Tarvik"])


def test_an_answer_is_shown_on_one_line_as_it_is_written():
    assert unbroken("the ﬁrst Upper Tar-\n  vik by\nEllen") == "the ﬁrst Upper Tarvik by Ellen"
    assert unbroken("REM told by Ellen\nREM Marsh of", 12, 27) == "Ellen Marsh" and unbroken("in\nREM sleep") == "in REM sleep"


@pytest.mark.parametrize(("text", "found"), [
    ("Vitamin C is written in C++ and C#", ["vitamin", "c", "written", "c++", "c#"]),
    ("version 3.5 costs 4,500 or 4500 or 12,50", ["version", "3.5", "costs", "4500", "4500", "12,50"]),
    ("Tesla's don't l'eau", ["tesla", "don", "eau"]), ("J. K. Rowling, plan B, room 7", ["j", "k", "rowling", "plan", "b", "room", "7"]),
    ("CAFE\u0301 caf\u00e9 cafe", ["cafe", "cafe", "cafe"]), ("straße STRASSE", ["strasse", "strasse"]),
    ("Σίσυφος ΣΙΣΥΦΟΣ", ["σισυφοσ", "σισυφοσ"]), ("ﬁrst Ｂｅｒｇ", ["first", "berg"]), ("İstanbul", ["istanbul"]),
    ("Upper Tar-\nvik", ["upper", "tarvik"]), ("C++17 and notepad++, page#3", ["c++", "17", "notepad++", "page", "3"]),
    ("東京 C タワー 3.5", ["東京", "c", "タワ", "ワー", "3.5"]), ("ガ と か\u3099", ["ガ", "と", "が"]),
    ("10⁶ is 10^6", ["10", "6", "10", "6"]), ("1½ or 1 1/2", ["1", "1", "2", "1", "1", "2"]), ("¼ ⅒", ["1", "4", "1", "10"]),
    ("東京都はTokyo tower", ["東京", "京都", "都は", "tokyo", "tower"]), ("北 京", ["北", "京"]), ("서울의 봄", ["서울", "울의", "봄"]),
    ("กรุงเทพ", ["กร", "รุ", "ุง", "งเ", "เท", "ทพ"]), ("BM25在这里", ["bm25", "在这", "这里"]),
])  # fmt: skip
def test_words(text, found):
    assert words(text) == found
