"""Kind of a span by its shape and context, and kind of answer asked for by the question word, by the words of ``words.toml``."""

import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import regex

from realm.documents.spans.dates import MONTHS, UNITS, DateNumberTagger
from realm.text import deferred

WORD = regex.compile(r"[\p{L}\p{M}]+['’]?")
HAN, HANGUL, KANA, LATIN = (regex.compile(pattern) for pattern in (r"\p{Han}", r"\p{Hangul}", r"[\p{Hiragana}\p{Katakana}]", r"\p{Latin}"))
MIN_FUNCTION_WORD_SHARE = 0.15  # least share of function words in a text of a language


@dataclass(frozen=True)
class Language:
    """Words of one language, as ``words.toml`` explains them; sets of words are in lower case."""

    name: str
    words: Mapping[str, frozenset[str]]
    ask: Mapping[str, tuple[str, ...]]
    opens: str
    closes: str
    moves: bool
    instead: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    behind: Mapping[str, str] = field(default_factory=dict)
    endings: Mapping[str, str] = field(default_factory=dict)
    rest_first: bool = False
    strands: bool = False
    nouns_are_names: bool = False

    @property
    def edges(self) -> tuple[str, ...]:
        """Characters with which no askable span begins or ends."""
        return tuple(self.words["not_edges"])

    @property
    def spaced(self) -> bool:
        """True if spaces separate its words."""
        return self.name != "zh"


def _language(name: str, table: Mapping[str, Any]) -> Language:
    words = {key: frozenset(word.replace("_", " ") for word in value.split()) for key, value in table.items() if isinstance(value, str)}
    ask = {kind: tuple(drawn.split("|")) for kind, drawn in table["ask"].items()}
    own = {key: table[key] for key in Language.__dataclass_fields__ if key in table and key not in ("name", "words", "ask")}
    return Language(name, defaultdict(frozenset, words), ask, **own)


_TABLES = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
_OTHERS = {name: frozenset(words.split()) for name, words in _TABLES.pop("others").items()}
LANGUAGES = {name: _language(name, table) for name, table in _TABLES.items()}
_IN_LATIN = [name for name, language in LANGUAGES.items() if language.words["function_words"]]
_FUNCTION_WORDS = {name: LANGUAGES[name].words["function_words"] for name in _IN_LATIN} | _OTHERS


@lru_cache(maxsize=4096)
def detect_language(text: str) -> str | None:
    """Language of a sentence, of ``LANGUAGES``, by its script and function words; None: another, or too little text."""
    latin, hangul, han = (len(script.findall(text)) for script in (LATIN, HANGUL, HAN))
    if hangul > max(latin, han):
        return "ko"
    if 2 * han > latin:  # a Chinese character is a syllable or more
        return None if KANA.search(text) else "zh"
    words = [word.lower() for word in WORD.findall(text)]
    if not latin or not words:
        return None
    hits = {name: sum(word in known for word in words) for name, known in _FUNCTION_WORDS.items()}
    best, second = sorted(_IN_LATIN, key=lambda name: -hits[name])[:2]
    others = max(hits[name] for name in _OTHERS)
    clear = hits[best] > hits[second] and hits[best] >= max(others, MIN_FUNCTION_WORD_SHARE * len(words))
    return best if clear else None


TAGGER = DateNumberTagger()
NAME = r"\p{Lu}(?:\.|[\p{L}\p{M}\p{N}]*(?:-\p{L}+)*)"
EDGES = " \t\n.,;:!?。，；：！？、—–()（）[]\"“”„«»'‘’"
SENTENCE_CONTEXT = 60  # characters on either side of a span that determine its kind
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+(?:[-.]\p{L}+)*\.?['’]?")
_YEAR = deferred(r"(?:1\d|20)\d\d")
_ORDINAL = deferred(r"\d(?:st|nd|rd|th)$")
_MONEY = deferred(r"[$£€¥₹₩₽]|\b(?:dollars?|euros?|pounds sterling|francs?|pesos?|rupees|yen|yuan)\b|[美欧日]?元|달러|유로|원$", regex.I)
_PERCENT = deferred(r"%|％|per ?cent|Prozent|por ciento|pour cent|百分之|퍼센트")
_UNIT = deferred(r"[\s-](\L<units>)$", units=UNITS)
_EAST_UNIT = deferred(r"[万萬亿億만억조\s]*([^\p{N}\s〇零一二三四五六七八九十百千万萬亿億,.]+)$")
_LIFE_DATES = deferred(r"\s?\(\s?(?:(?:born|geboren|nacid[oa]|née?)\b|[^()]*\b1\d{3}\s?[–-][^()]*\d{4}\b)")
_MONTH_NAMES = frozenset(month.lower() for month in MONTHS)
_MIXED_NAME = deferred(rf"{NAME} (?:van|von|ibn|bin|al|de|da)(?: der| den| la)? {NAME}")


def kind_of(span: str, before: str, after: str, language: str) -> str:
    """Kind of a span of a sentence, by its shape and the words around it.

    ``before`` and ``after`` are the rest of its sentence with white space; ``language`` is one of ``LANGUAGES``. Kinds are date, year
    (between an article and another word), number (with a unit or a counted noun), amount (another number), money, percent, person, place,
    institution, name (of something else) and other."""
    words = LANGUAGES[language]
    counted = _number_kind(span, before, after, words)
    if counted is not None:
        return counted
    if words.name in ("zh", "ko"):
        return _east_asian_kind(span, before, after, words)
    if not regex.search(rf"(?<!\p{{L}}){NAME}", span):
        return "other"
    return _name_kind(span, before, after, words)


def _number_kind(span: str, before: str, after: str, words: Language) -> str | None:
    text, start = before[-SENTENCE_CONTEXT:] + span + after[:SENTENCE_CONTEXT], len(before[-SENTENCE_CONTEXT:])
    found = [tagged for tagged in TAGGER.tag(text) if tagged.start < start + len(span) and start < tagged.end]
    covered = sum(min(tagged.end, start + len(span)) - max(tagged.start, start) for tagged in found)
    if _YEAR.fullmatch(span):
        return "year" if _is_between(before, after, words) else "date"
    if span.lower().strip(EDGES) in _MONTH_NAMES:
        return "date"
    if not found or 2 * covered < len(span):
        return "amount" if regex.fullmatch(r"[\p{N}.,]+", span) else None
    if found[0].kind == "date":
        return "date"
    whole = text[found[0].start : found[-1].end]
    if _PERCENT.search(whole):
        return "percent"
    if _MONEY.search(whole):
        return "money"
    if _ORDINAL.search(span):
        return "other"
    return "number" if unit_of(span, words) or counts(after, words) else "amount"


def _is_between(before: str, after: str, words: Language) -> bool:
    """True between an article and another word: "the 1937 film", "the Yuan administration"."""
    article = regex.search(r"(\p{L}+['’]?)\s*$", before)
    if article is None or article[1].lower() not in words.words["determiners"]:
        return False
    following = regex.match(r"\s(\p{L}+)", after)
    return following is not None and not any(following[1].lower() in words.words[key] for key in ("function_words", "auxiliaries"))


def counts(after: str, words: Language) -> bool:
    """True if a counted noun follows a number."""
    if words.name in ("zh", "ko"):
        return regex.match(r"\s?[\p{Han}\p{Hangul}]", after) is not None
    following = regex.match(r"[\s-](\p{L}+)", after)
    small = following[1].lower() if following else ""
    return bool(small) and not any(small in words.words[key] for key in ("function_words", "prepositions", "auxiliaries"))


def unit_of(span: str, words: Language) -> str:
    """Unit at the end of a quantity, to follow the question word; empty without one."""
    if words.moves:
        found = _UNIT.search(span)
        return f" {found[1]}" if found else ""
    found = _EAST_UNIT.search(span)
    if found is None:
        return ""
    return f" {found[1]}" if words.spaced else str(found[1])


def _name_kind(span: str, before: str, after: str, words: Language) -> str:
    inside = [word.lower() for word in regex.findall(r"[\p{L}\p{M}]+\.?", span)]
    last_words = [word.lower() for word in _WORD.findall(before[-SENTENCE_CONTEXT:])[-3:]]
    has = {
        key: any(word in words.words[key] for word in inside) for key in ("institutions", "titles", "first_names", "place_words", "places")
    }
    if has["institutions"]:
        return "institution"
    article = bool(last_words) and last_words[-1] in words.words["determiners"]
    if has["titles"] or _MIXED_NAME.search(span) or (has["first_names"] and not has["place_words"] and not article):
        return "person"
    if (last_words and last_words[-1] in words.words["titles"]) or _LIFE_DATES.match(after):
        return "person"
    follows = after.lower().strip()
    if any(regex.match(rf"{regex.escape(cue)}(?!\p{{L}})", follows) for cue in words.words["does"]):
        return "person"
    leading = _last_word(before, words)
    if leading in words.words["by"]:
        return "person"
    if any(word in words.words["not_places"] for word in inside):
        return "name"
    if has["places"] or has["place_words"]:
        return "place"
    if any(word in words.words["kin"] for word in last_words):
        return "person"
    return "place" if leading in words.words["at"] and len(inside) < 4 and not _is_between(before, after, words) else "name"


def _last_word(before: str, words: Language) -> str:
    """The word right before a span, except its article, in lower case; empty behind a punctuation mark."""
    found = regex.search(r"(?:([\p{L}\p{M}]+['’]?)\s*)?(?<![\p{L}\p{M}])([\p{L}\p{M}]+['’]?)\s*$", before)
    if found is None:
        return ""
    first, last = ((word or "").lower() for word in found.groups())
    return first if last in words.words["determiners"] else last


def _east_asian_kind(span: str, before: str, after: str, words: Language) -> str:
    """Kind of a Chinese or Korean name, by its beginning, its end and its neighbours."""
    lists, stem, left, right = words.words, span.strip(), before.strip(), after.strip()
    if stem.endswith(tuple(lists["institutions"])):
        return "institution"
    if stem in lists["places"] or (len(stem) > 1 and stem.endswith(tuple(lists["place_words"])) and stem[0] not in "김이박최"):
        return "place"
    surname = 2 <= len(stem) <= 3 and stem[0] in lists["surnames"]
    entitled = stem.endswith(tuple(lists["titles"])) or right.startswith(tuple(lists["titles"])) or left.endswith(tuple(lists["titles"]))
    if entitled or "·" in stem or (words.name == "ko" and len(stem) == 3 and surname):
        return "person"
    if words.name == "zh" and (left.endswith(tuple(lists["by"])) or (surname and right.startswith(tuple(lists["does"])))):
        return "person"
    if words.name == "ko":
        return "place" if right.startswith("에서") else "name"
    return "place" if left.endswith(tuple(lists["at"])) and len(stem) <= 6 else "name"


# Names without a telling shape may be persons or places, and a place may be a team.
KINDS_BY_SORT: Mapping[str, frozenset[str]] = {
    "asks_time": frozenset({"date", "year"}),
    "asks_count": frozenset({"number", "amount", "money", "percent"}),
    "asks_who": frozenset({"person", "name", "institution", "place"}),
    "asks_where": frozenset({"place", "name", "institution"}),
}
# One such word suffices, whatever the whole span is: "six touchdowns", "on Mondays".
WORD_LISTS_BY_SORT = {"asks_time": "calendar", "asks_count": "numbers"}
FIGURES_BY_SORT = {"asks_time": r"(?<!\d)(?:1\d|20)\d\d(?!\d)", "asks_count": r"\p{Nd}[\p{Nd}.,]*"}  # figures as good as such a word
OTHER = "asks_else"
ANSWER_CONTEXT = 120  # characters on either side of a span that determine its kind
CLAUSE = regex.compile(r"[,;:，；：、]")


@dataclass(frozen=True)
class Asked:
    """Kinds of answer to a question: a sort, a key of ``KINDS_BY_SORT``, and the language whose words determine a span's kind.

    >>> asked_for("When was the tower built?").answered_by("Built in 1889.", 9, 13)
    True
    """

    sort: str
    language: str

    def answered_by(self, text: str, start: int, end: int) -> bool:
        """True if the characters [start, end) of a text are of such a kind, by their shape and context."""
        span, before, after = text[start:end], text[max(0, start - ANSWER_CONTEXT) : start], text[end : end + ANSWER_CONTEXT]
        return self._tells(span) or kind_of(span, before, after, self.language) in KINDS_BY_SORT[self.sort]

    def _tells(self, span: str) -> bool:
        """True if a figure or word of the span suffices; not next to a name, as in "Super Bowl 50"."""
        told = None if self.sort not in WORD_LISTS_BY_SORT else _telling(self.language, self.sort).search(span)
        if told is None:
            return False
        beside = span[: told.start()] + span[told.end() :]
        return LANGUAGES[self.language].nouns_are_names or not regex.search(r"\p{Lu}", beside)


@lru_cache
def _telling(language: str, sort: str) -> regex.Pattern[str]:
    """Figures and words of a language that suffice for a sort of question."""
    edge = r"\b" if LANGUAGES[language].moves else ""
    words = "|".join(sorted(map(regex.escape, LANGUAGES[language].words[WORD_LISTS_BY_SORT[sort]]), key=len, reverse=True))
    return regex.compile(f"{FIGURES_BY_SORT[sort]}|{edge}(?:{words}){edge}", regex.I)


@lru_cache(maxsize=1024)
def asked_for(question: str) -> Asked | None:
    """Kind of answer asked for by the question word; None: any, or unclear.

    "What did he do when it rained?" asks for any. If two clauses have a question word, as in "When it rained, what did he do?", it is
    unclear."""
    words = question.lower()
    found = [match for clause in CLAUSE.split(words) if (match := QUESTION_WORDS.search(clause))]
    if len(found) != 1 or KANA.search(words):
        return None
    language, _, sort = (found[0].lastgroup or "").partition("_")
    return None if sort == OTHER else Asked(sort, language)


def _pattern() -> regex.Pattern[str]:
    """All question words, the longest first, each in a group named by language and sort; whole words in spaced scripts."""
    words = [(word, language, sort) for sort in (*KINDS_BY_SORT, OTHER) for language, of in LANGUAGES.items() for word in of.words[sort]]
    words.sort(key=lambda told: -len(told[0]))
    edges = {language: r"\b" if of.moves else "" for language, of in LANGUAGES.items()}
    return regex.compile("|".join(f"(?P<{of}_{sort}>{edges[of]}{regex.escape(word)}{edges[of]})" for word, of, sort in words))


QUESTION_WORDS = _pattern()
