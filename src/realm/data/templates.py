"""Questions made of statements by a template: the question word of what a span is, then the rest of the sentence (Fabbri et al., 2020).

"The tower was built by Gustave Eiffel in 1889." gives "When the tower was built by Gustave Eiffel?" and "Who in 1889, the tower was built
by?". What follows the span goes before what precedes it, which taught readers best. Chinese and Korean ask in the span's own place. What
kind of thing a span is (a date, a number, a person, a place) its shape and the words around it tell; no network is asked.
"""

from collections.abc import Set
from itertools import pairwise

import numpy as np
import regex

from realm.corpus.tagging.dates import DateNumberTagger
from realm.corpus.tagging.forms import MONTHS, UNITS
from realm.data.question_words import HANGUL, LANGUAGES, Language

MOST_WORDS = 25
"""Of a longer sentence only the clauses around the span are asked about."""
FEWEST_WORDS = 3
"""What is left of a sentence must be so many words for a question to have one answer."""
MOST_CHARACTERS = 2000
"""What is longer is no sentence but a table or a list, and takes long to look through."""
LONGEST_SUBJECT = 6
"""Words before a sentence's first auxiliary, of a sentence that is taken for one clause."""
_SEEN = 60
"""Characters on either side of a span by which its kind is told."""
_TAGGER = DateNumberTagger()
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+(?:[-.]\p{L}+)*\.?['’]?")
_UNSPACED = regex.compile(r"\p{Han}")
_NAME = r"\p{Lu}(?:\.|[\p{L}\p{M}\p{N}]*(?:-\p{L}+)*)"
_NAMES_BEFORE, _NAMES_AFTER = regex.compile(rf"(?:(?<![\p{{L}}\p{{N}}]){_NAME} )+$"), regex.compile(rf"(?: {_NAME}(?![\p{{L}}\p{{N}}]))+")
_BORDER = regex.compile(r"[,;:](?=\s)|[()（），；：、—–]")
_BRACKETS = regex.compile(r"\s*(?:\([^()]*\)|（[^（）]*）|\[\d+\])")
_ENDS = " \t\n.,;:!?。，；：！？、—–()（）[]\"“”„«»'‘’"
_YEAR = regex.compile(r"(?:1\d|20)\d\d")
_ORDINAL = regex.compile(r"\d(?:st|nd|rd|th)$")
_MONEY = regex.compile(
    r"[$£€¥₹₩₽]|\b(?:dollars?|euros?|pounds sterling|francs?|pesos?|rupees|yen|yuan)\b|[美欧日]?元|달러|유로|원$", regex.I
)
_PERCENT = regex.compile(r"%|％|per ?cent|Prozent|por ciento|pour cent|百分之|퍼센트")
_UNIT = regex.compile(r"[\s-](\L<units>)$", units=UNITS)
_EAST_UNIT = regex.compile(r"[万萬亿億만억조\s]*([^\p{N}\s〇零一二三四五六七八九十百千万萬亿億,.]+)$")
_LIVED = regex.compile(r"\s?\(\s?(?:(?:born|geboren|nacid[oa]|née?)\b|[^()]*\b1\d{3}\s?[–-][^()]*\d{4}\b)")
_APPOSITION = regex.compile(rf"\s?, (?:{_NAME})(?: (?:of |de |du |von )?{_NAME})*\s?(?=[,.;:]|$)")
_NAMED = ("person", "place", "institution", "name")
_COUNTED = ("number", "amount", "money", "percent")
_CALENDAR = frozenset(month.lower() for month in MONTHS)
_MIXED_NAME = regex.compile(rf"{_NAME} (?:van|von|ibn|bin|al|de|da)(?: der| den| la)? {_NAME}")


def kind_of(span: str, before: str, after: str, language: str) -> str:
    """What kind of thing a span of a sentence is, by its shape and the words around it.

    Args:
        span: the span's characters, and ``before`` and ``after`` the rest of its sentence, with the white space at their borders.
        language: one of ``LANGUAGES``.

    Returns:
        date, year (between an article and another word), number (with a unit or what it counts behind it), amount (another number), money,
        percent, person, place, institution, name (of something else) or other.
    """
    words = LANGUAGES[language]
    counted = _number_kind(span, before, after, words)
    if counted is not None:
        return counted
    if words.name in ("zh", "ko"):
        return _east_asian_kind(span, before, after, words)
    if not regex.search(rf"(?<!\p{{L}}){_NAME}", span):
        return "other"
    return _name_kind(span, before, after, words)


def question_from(sentence: str, start: int, end: int, language: str, rng: np.random.Generator) -> str | None:
    """A question that ``sentence[start:end]`` answers, in words of the sentence. The same draws give the same question.

    None where the sentence is longer than ``MOST_CHARACTERS`` or too little is left to ask about, where the span is part of a word or
    stands in brackets as others of its kind do, and where the answer stands in the question.

    Args:
        start, end: code points; the rest of a name or a date around the span is left out of the question with it.
        language: one of ``LANGUAGES``.
        rng: draws where a kind has several question words.
    """
    if len(sentence) > MOST_CHARACTERS:
        return None
    words = LANGUAGES[language]
    answer = sentence[start:end]
    start, end = _whole(sentence, start, end, words)
    span, before, after = sentence[start:end], sentence[:start], sentence[end:]
    kind = kind_of(span, before, after, language)
    if _is_inside(before, after, words):
        return None
    before, after = _clause(*_without_brackets(before, after))
    before = _without_opener(before, words)
    if _size(before.strip(_ENDS)) + _size(after.strip(_ENDS)) < (FEWEST_WORDS if words.spaced else FEWEST_WORDS - 1):
        return None
    asked = words.ask[kind][int(rng.integers(len(words.ask[kind])))]
    unit = _unit(span, words) if kind == "number" else ""
    question = (_moved if words.moves else _in_place)(kind, asked + unit, before, after, words)
    return None if _stands_in(answer, question) else question


def _number_kind(span: str, before: str, after: str, words: Language) -> str | None:
    """The kind of a date or number; None for anything else."""
    text, start = before[-_SEEN:] + span + after[:_SEEN], len(before[-_SEEN:])
    found = [tagged for tagged in _TAGGER.tag(text) if tagged.start < start + len(span) and start < tagged.end]
    covered = sum(min(tagged.end, start + len(span)) - max(tagged.start, start) for tagged in found)
    if _YEAR.fullmatch(span):
        return "year" if _is_between(before, after, words) else "date"
    if span.lower().strip(_ENDS) in _CALENDAR:
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
    return "number" if _unit(span, words) or _counts(after, words) else "amount"


def _is_between(before: str, after: str, words: Language) -> bool:
    """Whether a span stands between an article and another word: "the 1937 film", "the Yuan administration"."""
    article = regex.search(r"(\p{L}+['’]?)\s*$", before)
    if article is None or article[1].lower() not in words.words["determiners"]:
        return False
    following = regex.match(r"\s(\p{L}+)", after)
    return following is not None and not any(following[1].lower() in words.words[key] for key in ("function_words", "auxiliaries"))


def _counts(after: str, words: Language) -> bool:
    """Whether a number is followed by what it counts."""
    if words.name in ("zh", "ko"):
        return regex.match(r"\s?[\p{Han}\p{Hangul}]", after) is not None
    following = regex.match(r"[\s-](\p{L}+)", after)
    small = following[1].lower() if following else ""
    return bool(small) and not any(small in words.words[key] for key in ("function_words", "prepositions", "auxiliaries"))


def _unit(span: str, words: Language) -> str:
    """The unit at the end of a quantity, as it follows the question word; empty if there is none."""
    if words.moves:
        found = _UNIT.search(span)
        return f" {found[1]}" if found else ""
    found = _EAST_UNIT.search(span)
    if found is None:
        return ""
    return f" {found[1]}" if words.spaced else str(found[1])


def _name_kind(span: str, before: str, after: str, words: Language) -> str:
    """The kind of a name in a script with capitals."""
    inside = [word.lower() for word in regex.findall(r"[\p{L}\p{M}]+\.?", span)]
    last_words = [word.lower() for word in _WORD.findall(before[-_SEEN:])[-3:]]
    has = {
        key: any(word in words.words[key] for word in inside) for key in ("institutions", "titles", "first_names", "place_words", "places")
    }
    if has["institutions"]:
        return "institution"
    article = bool(last_words) and last_words[-1] in words.words["determiners"]
    if has["titles"] or _MIXED_NAME.search(span) or (has["first_names"] and not has["place_words"] and not article):
        return "person"
    if (last_words and last_words[-1] in words.words["titles"]) or _LIVED.match(after):
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
    """The word right before a span, its article aside, in lower case; empty behind a punctuation mark."""
    found = regex.search(r"(?:([\p{L}\p{M}]+['’]?)\s*)?(?<![\p{L}\p{M}])([\p{L}\p{M}]+['’]?)\s*$", before)
    if found is None:
        return ""
    first, last = ((word or "").lower() for word in found.groups())
    return first if last in words.words["determiners"] else last


def _east_asian_kind(span: str, before: str, after: str, words: Language) -> str:
    """The kind of a Chinese or Korean name, by how it begins and ends and what stands beside it."""
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


def _whole(text: str, start: int, end: int, words: Language) -> tuple[int, int]:
    """The span with the rest of the date, quantity or name that it is a part of."""
    for tagged in _TAGGER.tag(text):
        if tagged.start <= start and end <= tagged.end:
            return tagged.start, tagged.end
    if not text[start : start + 1].isupper() or words.nouns_are_names:
        return start, end
    more, rest = _NAMES_BEFORE.search(text, 0, start), _NAMES_AFTER.match(text, end)
    if more is not None:
        parts = [match.start() + more.start() for match in regex.finditer(r"\S+", more[0])]
        known = words.words["function_words"] | words.words["openers"] | words.words["prepositions"] | words.words["determiners"]
        start = next((at for at in parts if text[at:start].split()[0].lower() not in known), start)
    return start, rest.end() if rest is not None and text[end - 1 : end].isalpha() else end


def _is_inside(before: str, after: str, words: Language) -> bool:
    """Whether a span is a part of a word, or one of several in brackets, as years behind the titles of a list are."""
    listed = regex.search(r"[(（]\s*$", before) and len(_BRACKETS.findall(before + after)) > 1
    glued = words.moves and (regex.search(r"[-–&\p{L}\p{N}]$|[-&] $", before) or regex.match(r"\s?[-/]\s?[\p{L}\p{N}]", after))
    return bool(listed or glued)


def _without_brackets(before: str, after: str) -> tuple[str, str]:
    """What stands around a span without what stands in brackets; of those around the span itself what precedes it stays."""
    before, after = _BRACKETS.sub("", before), _BRACKETS.sub("", after)
    opened = max(before.rfind("("), before.rfind("（"))
    if opened >= 0:
        before = f"{before[:opened].rstrip()} {before[opened + 1 :].lstrip()}"
        after = regex.sub(r"^[^)）]*[)）]", "", after)
    return before, after


def _clause(before: str, after: str) -> tuple[str, str]:
    """The clauses around a span, as many as make a question of ``MOST_WORDS``; of a clause that is longer, the words beside the span."""
    left = [part for part in _parts(before, after_border=True) if part]
    right = [part for part in _parts(after, after_border=False) if part]
    taken, kept = [left.pop() if left else ""], [right.pop(0) if right else ""]
    while left or right:
        room = MOST_WORDS - _size("".join([*taken, *kept]))
        if left and _size(left[-1]) <= room:
            taken.insert(0, left.pop())
        elif right and _size(right[0]) <= room:
            kept.append(right.pop(0))
        else:
            break
    first, second = "".join(taken), "".join(kept)
    surplus = _size(first) + _size(second) - MOST_WORDS
    if surplus > 0:
        second = _cut(second, max(MOST_WORDS // 2, _size(second) - surplus), from_end=False)
        first = _cut(first, MOST_WORDS - _size(second), from_end=True)
    return first, second


def _parts(text: str, *, after_border: bool) -> list[str]:
    """The clauses of a text, each with the mark after it or before it."""
    borders = [0, *(match.end() if after_border else match.start() for match in _BORDER.finditer(text)), len(text)]
    return [text[a:b] for a, b in pairwise(borders)]


def _words_in(text: str) -> list[tuple[int, int]]:
    """Where each word stands; two Chinese characters count as one."""
    return [match.span() for match in regex.finditer(r"\p{Han}{1,2}|[^\s\p{Han}]+", text)]


def _size(text: str) -> int:
    return len(_words_in(text))


def _cut(text: str, count: int, *, from_end: bool) -> str:
    """The last or the first ``count`` words."""
    found = _words_in(text)
    if len(found) <= count:
        return text
    return text[found[-count][0] :] if from_end else text[: found[count - 1][1]]


def _without_opener(before: str, words: Language) -> str:
    """The beginning of a sentence without the word that ties it to the one before, and small where only its place made it big."""
    before = before.lstrip(_ENDS)
    if not words.spaced:
        tie = next((word for word in sorted(words.words["openers"], key=len, reverse=True) if before.startswith(word)), "")
        return before[len(tie) :].lstrip(_ENDS)
    first = regex.match(r"\S+", before)
    if first is not None and first[0].strip(_ENDS).lower() in words.words["openers"]:
        before = before[first.end() :].lstrip(_ENDS)
    first = regex.match(r"[\p{L}\p{M}]+['’]?", before)
    small = (
        first is not None and first[0].lower() in words.words["function_words"] | words.words["determiners"] | words.words["prepositions"]
    )
    return before[:1].lower() + before[1:] if small else before


def _moved(kind: str, asked: str, before: str, after: str, words: Language) -> str:
    """The question word, what follows the span, and then what precedes it."""
    possessive = regex.match(r"['’]s\b", after) if words.name == "en" else None
    if possessive is not None:
        asked, after = "Whose", after[possessive.end() :]
    if kind in _COUNTED:
        before = _without_words(before, words.words["roughly"])
    asked, before = _with_preposition(kind, asked, before, words)
    if kind in _NAMED:
        after = _APPOSITION.sub("", after, count=1) if _APPOSITION.match(after) else after
    rest, head = after.strip(_ENDS), _without_words(before.rstrip(_ENDS), words.words["conjunctions"]).strip(_ENDS)
    joined = regex.match(r"(\p{L}+) ((?:an? |the )?\p{Lu}[\p{L}\p{N}-]*(?: \p{Lu}[\p{L}\p{N}-]*)*(?!['’\p{L}\p{N}]))", rest)
    if kind in _NAMED and joined is not None and joined[1] in words.words["conjunctions"]:
        rest = rest[joined.end() :].strip(_ENDS)
    if kind == "number" and not words.rest_first and _counts(after, words):  # "Wie viele Einwohner", before the other words
        counted, _, rest = rest.partition(" ")
        asked = regex.sub(r" de(?= [aeiouhéèêîô])", " d'", f"{asked} {counted}").replace("d' ", "d'")
    if not (rest and words.rest_first):
        head = _auxiliary_first(head, words)
    question = f"{asked} {rest}, {head}" if rest and head and words.rest_first else " ".join(part for part in (asked, head, rest) if part)
    return f"{words.opens}{question}{words.closes}"


def _without_words(before: str, left_out: Set[str]) -> str:
    """The text without those words at its end."""
    while (last := regex.search(r"\p{L}+\s*$", before)) is not None and last[0].strip().lower() in left_out:
        before = before[: last.start()]
    return before


def _with_preposition(kind: str, asked: str, before: str, words: Language) -> tuple[str, str]:
    """The question word with the preposition that belongs to it, and the words before the span without that."""
    before = before.rstrip()
    for _ in range(2):  # with an article before the span and without it
        for preposition, phrase in sorted(words.instead.get(kind, {}).items(), key=lambda pair: -len(pair[0])):
            found = regex.search(rf"(?:^|(?<=[\s('’])){regex.escape(preposition)}$", before, regex.I)
            if found is not None:
                return phrase, before[: found.start()].rstrip()
        last = regex.search(r"(?:^|(?<=\s))[\p{L}\p{M}]+['’]?$", before)
        small = last[0].lower() if last is not None else ""
        if last is not None and small in words.words["determiners"]:
            before = before[: last.start()].rstrip()
        elif last is not None and not words.strands and small in words.words["prepositions"]:
            behind = words.behind.get(kind, f"{asked[0].lower()}{asked[1:]}")
            return f"{small.capitalize()} {behind}", before[: last.start()].rstrip()
    return asked, before


def _auxiliary_first(head: str, words: Language) -> str:
    """ "The tower was built" as it follows a question word: "was the tower built". As it is, where it has no such verb."""
    for match in regex.finditer(r"(?<=\s)\p{L}+(?=\s|$)", head.split(",")[0]):
        relative = regex.search(r"\b(?:that|which|who|que|die|der|das)\s$", head[: match.start()])
        if match[0].lower() in words.words["auxiliaries"] and relative is None and _size(head[: match.start()]) <= LONGEST_SUBJECT:
            rest = f"{head[: match.start()].rstrip()}{head[match.end() :]}"
            return f"{match[0]} {rest}"
    return head


def _in_place(kind: str, asked: str, before: str, after: str, words: Language) -> str:
    """The sentence with the question word where the span stood."""
    particle = regex.match(r"\p{Hangul}+", after)
    if particle is not None:
        instead = words.instead.get(kind, {}).get(particle[0])
        if instead is not None:
            asked, after = instead, after[particle.end() :]
    statement = f"{before}{asked}{after}".strip(_ENDS)
    ending = next((ending for ending in words.endings if statement.endswith(ending)), "")
    statement = statement[: len(statement) - len(ending)] + words.endings.get(ending, "")
    return f"{words.opens}{statement}{words.closes}"


def _stands_in(answer: str, question: str) -> bool:
    """Whether a question gives its answer away."""
    if _UNSPACED.search(answer) or HANGUL.search(answer):
        return answer in question
    return regex.search(rf"(?<![\p{{L}}\p{{N}}]){regex.escape(answer)}(?![\p{{L}}\p{{N}}])", question, regex.I) is not None
