"""Questions made of statements by a template: the question word of what a span is, then the rest of the sentence (Fabbri et al., 2020).

"The tower was built by Gustave Eiffel in 1889." gives "When the tower was built by Gustave Eiffel?" and "Who in 1889, the tower was built
by?". What follows the span goes before what precedes it, which taught readers best. Chinese and Korean ask in the span's own place. What
kind of thing a span is ``answer_kinds.py`` tells.
"""

from collections.abc import Set
from itertools import pairwise

import numpy as np
import regex

from realm.answering.questions.answer_kinds import ENDS, NAME, TAGGER, counts, kind_of, unit_of
from realm.answering.questions.words import HANGUL, LANGUAGES, Language
from realm.text.korean import asking, particle_length

MOST_WORDS = 25
"""Of a longer sentence only the clauses around the span are asked about."""
FEWEST_WORDS = 3
"""What is left of a sentence must be so many words for a question to have one answer."""
MOST_CHARACTERS = 2000
"""What is longer is no sentence but a table or a list, and takes long to look through."""
LONGEST_SUBJECT = 6
"""Words before a sentence's first auxiliary, of a sentence that is taken for one clause."""
_UNSPACED = regex.compile(r"\p{Han}")
_NAMES_BEFORE, _NAMES_AFTER = regex.compile(rf"(?:(?<![\p{{L}}\p{{N}}]){NAME} )+$"), regex.compile(rf"(?: {NAME}(?![\p{{L}}\p{{N}}]))+")
_BORDER = regex.compile(r"[,;:](?=\s)|[()（），；：、—–]")
_BRACKETS = regex.compile(r"\s*(?:\([^()]*\)|（[^（）]*）|\[\d+\])")
_APPOSITION = regex.compile(rf"\s?, (?:{NAME})(?: (?:of |de |du |von )?{NAME})*\s?(?=[,.;:]|$)")
_NAMED = ("person", "place", "institution", "name")
_COUNTED = ("number", "amount", "money", "percent")


def question_from(sentence: str, start: int, end: int, language: str, rng: np.random.Generator) -> str | None:
    """A question that ``sentence[start:end]`` answers, in words of the sentence. The same draws give the same question.

    None where the sentence is longer than ``MOST_CHARACTERS`` or too little is left to ask about, where the span is part of a word or
    stands in brackets as others of its kind do, and where the question contains the answer.

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
    if words.name == "ko" and not HANGUL.match(sentence[end : end + 1]):
        end -= particle_length(sentence[start:end])
    span, before, after = sentence[start:end], sentence[:start], sentence[end:]
    kind = kind_of(span, before, after, language)
    if _is_inside(before, after, words) or span in words.words["not_asked"] or span.startswith(words.edges) or span.endswith(words.edges):
        return None
    before, after = _clause(*_without_brackets(before, after))
    before = _without_opener(before, words)
    if _size(before.strip(ENDS)) + _size(after.strip(ENDS)) < (FEWEST_WORDS if words.spaced else FEWEST_WORDS - 1):
        return None
    asked = words.ask[kind][int(rng.integers(len(words.ask[kind])))]
    unit = unit_of(span, words) if kind == "number" else ""
    question = (_moved if words.moves else _in_place)(kind, asked + unit, before, after, words)
    return None if _stands_in(answer, question) else question


def _whole(text: str, start: int, end: int, words: Language) -> tuple[int, int]:
    """The span with the rest of the date, quantity or name that it is a part of."""
    for tagged in TAGGER.tag(text):
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
    before = before.lstrip(ENDS)
    if not words.spaced:
        tie = next((word for word in sorted(words.words["openers"], key=len, reverse=True) if before.startswith(word)), "")
        return before[len(tie) :].lstrip(ENDS)
    first = regex.match(r"\S+", before)
    if first is not None and first[0].strip(ENDS).lower() in words.words["openers"]:
        before = before[first.end() :].lstrip(ENDS)
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
    rest, head = after.strip(ENDS), _without_words(before.rstrip(ENDS), words.words["conjunctions"]).strip(ENDS)
    joined = regex.match(r"(\p{L}+) ((?:an? |the )?\p{Lu}[\p{L}\p{N}-]*(?: \p{Lu}[\p{L}\p{N}-]*)*(?!['’\p{L}\p{N}]))", rest)
    if kind in _NAMED and joined is not None and joined[1] in words.words["conjunctions"]:
        rest = rest[joined.end() :].strip(ENDS)
    if kind == "number" and not words.rest_first and counts(after, words):  # "Wie viele Einwohner", before the other words
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
    statement = f"{before}{asked}{after}".strip(ENDS)
    ending = next((ending for ending in words.endings if statement.endswith(ending)), "")
    if ending:
        statement = statement[: len(statement) - len(ending)] + words.endings[ending]
    elif words.name == "ko":
        statement = asking(statement)
    return f"{words.opens}{statement}{words.closes}"


def _stands_in(answer: str, question: str) -> bool:
    """Whether a question gives its answer away."""
    if _UNSPACED.search(answer) or HANGUL.search(answer):
        return answer in question
    return regex.search(rf"(?<![\p{{L}}\p{{N}}]){regex.escape(answer)}(?![\p{{L}}\p{{N}}])", question, regex.I) is not None
