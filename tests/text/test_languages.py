"""The language of a text: by its letters where they tell, by the library where several languages share them."""

import sys

import pytest

from realm.text import languages
from realm.text.languages import language_of


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


@pytest.mark.parametrize(("text", "language"), LETTERS)
def test_letters_tell(text, language, without_library):
    assert language_of(text) == language


@pytest.mark.parametrize(("text", "language"), [
    ("The tower was built in 1889.", "und-Latn"), ("Башня была построена в 1889 году.", "und-Cyrl"),
    ("القاهرة عاصمة مصر", "und-Arab"), ("Tokyo (東京) is the capital of Japan.", "und-Latn"),
])  # fmt: skip
def test_without_the_library_the_script_is_said(text, language, without_library):
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
