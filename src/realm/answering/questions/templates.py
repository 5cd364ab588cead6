"""Questions made from statements by templates (Fabbri et al., 2020), and everyday forms of questions.

"The tower was built by Gustave Eiffel in 1889." gives "When the tower was built by Gustave Eiffel?": the question word for the span's kind,
the words after it and those before it, which taught readers best. Chinese and Korean ask in place."""

from collections.abc import Set
from itertools import pairwise

import numpy as np
import regex

from realm.answering.questions.answer_kinds import EDGES, HANGUL, LANGUAGES, NAME, TAGGER, Language, counts, kind_of, unit_of
from realm.text.words import STOPWORDS, asking, particle_length

EVERYDAY_SHARE = 0.3  # share of questions that are changed
MIN_TYPO_LETTERS = 5  # letters of a word that may have a typing error
_WORD = regex.compile(r"\p{L}+")
_DEFINITE = regex.compile(r"\b[Tt]he\b(?=\s+\p{Ll})")
POSSESSIVES = ("our", "my", "the")


def everyday(question: str, rng: np.random.Generator) -> str:
    """The question, or with probability ``EVERYDAY_SHARE`` one of its everyday forms; unchanged if no rule fits.

    >>> everyday("When was the boiler replaced?", np.random.default_rng(2))
    'When was the boiler replaced'
    """
    if rng.random() >= EVERYDAY_SHARE:
        return question
    rules = (without_mark, owned, keywords, mistyped)
    return rules[int(rng.integers(len(rules)))](question, rng) or question


def without_mark(question: str, rng: np.random.Generator) -> str:
    """Drop the question mark."""
    return question.rstrip(" ?？")


def owned(question: str, rng: np.random.Generator) -> str:
    """Change one "the" before a common noun to "our" or "my"."""
    found = list(_DEFINITE.finditer(question))
    if not found:
        return question
    chosen = found[int(rng.integers(len(found)))]
    return question[: chosen.start()] + POSSESSIVES[int(rng.integers(2))] + question[chosen.end() :]


def keywords(question: str, rng: np.random.Generator) -> str:
    """Keep the first word and the content words, such as "who founded company 1911"; unchanged below three words."""
    words = question.rstrip(" ?？").split()
    kept = [word for at, word in enumerate(words) if not at or word.lower() not in STOPWORDS]
    return " ".join(kept) if len(kept) >= 3 else question


def mistyped(question: str, rng: np.random.Generator) -> str:
    """Swap two neighbouring letters behind the first of one long lower-case word, or drop the second of them."""
    found = [word for word in _WORD.finditer(question) if len(word.group()) >= MIN_TYPO_LETTERS and word.group().islower()]
    if not found:
        return question
    word = found[int(rng.integers(len(found)))]
    at = word.start() + 1 + int(rng.integers(len(word.group()) - 2))
    pair = question[at : at + 2]
    return question[:at] + (pair[::-1] if rng.random() < 0.5 else pair[:1]) + question[at + 2 :]


MAX_QUESTION_WORDS = 25  # of a longer sentence only clauses around the span are used
MIN_WORDS_LEFT = 3  # words left of a sentence, for a question with one answer
MAX_SENTENCE_CHARACTERS = 2000  # beyond it is a table or a list, slow to search
MAX_SUBJECT_WORDS = 6  # words before the first auxiliary of a sentence taken for one clause
_UNSPACED = regex.compile(r"\p{Han}")
_NAMES_BEFORE, _NAMES_AFTER = regex.compile(rf"(?:(?<![\p{{L}}\p{{N}}]){NAME} )+$"), regex.compile(rf"(?: {NAME}(?![\p{{L}}\p{{N}}]))+")
_CLAUSE_BORDER = regex.compile(r"[,;:](?=\s)|[()（），；：、—–]")
_BRACKETS = regex.compile(r"\s*(?:\([^()]*\)|（[^（）]*）|\[\d+\])")
_APPOSITION = regex.compile(rf"\s?, (?:{NAME})(?: (?:of |de |du |von )?{NAME})*\s?(?=[,.;:]|$)")
_NAME_KINDS = ("person", "place", "institution", "name")
_NUMBER_KINDS = ("number", "amount", "money", "percent")


def question_from(sentence: str, start: int, end: int, language: str, rng: np.random.Generator) -> str | None:
    """A question with the answer ``sentence[start:end]``, in words of the sentence. The same draws give the same question.

    >>> question_from("The tower was built by Gustave Eiffel in 1889.", 41, 45, "en", np.random.default_rng(0))
    'When was the tower built by Gustave Eiffel?'

    None for a sentence longer than ``MAX_SENTENCE_CHARACTERS``, too few words left, a span inside a word or in a bracketed list, and a
    question that contains the answer. The rest of a name or a date around the span is left out with it; ``language`` is one of
    ``LANGUAGES``."""
    if len(sentence) > MAX_SENTENCE_CHARACTERS:
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
    if _size(before.strip(EDGES)) + _size(after.strip(EDGES)) < (MIN_WORDS_LEFT if words.spaced else MIN_WORDS_LEFT - 1):
        return None
    asked = words.ask[kind][int(rng.integers(len(words.ask[kind])))]
    unit = unit_of(span, words) if kind == "number" else ""
    question = (_moved if words.moves else _in_place)(kind, asked + unit, before, after, words)
    return None if _stands_in(answer, question) else question


def _whole(text: str, start: int, end: int, words: Language) -> tuple[int, int]:
    """Extend the span to the whole date, quantity or name."""
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
    """True for a part of a word, or one of several in brackets, such as years behind the titles of a list."""
    listed = regex.search(r"[(（]\s*$", before) and len(_BRACKETS.findall(before + after)) > 1
    glued = words.moves and (regex.search(r"[-–&\p{L}\p{N}]$|[-&] $", before) or regex.match(r"\s?[-/]\s?[\p{L}\p{N}]", after))
    return bool(listed or glued)


def _without_brackets(before: str, after: str) -> tuple[str, str]:
    """Context of a span without brackets; in those around the span itself, text before it stays."""
    before, after = _BRACKETS.sub("", before), _BRACKETS.sub("", after)
    opened = max(before.rfind("("), before.rfind("（"))
    if opened >= 0:
        before = f"{before[:opened].rstrip()} {before[opened + 1 :].lstrip()}"
        after = regex.sub(r"^[^)）]*[)）]", "", after)
    return before, after


def _clause(before: str, after: str) -> tuple[str, str]:
    """Clauses around a span, as many as make a question of ``MAX_QUESTION_WORDS``; of a longer clause, the words next to the span."""
    left = [part for part in _parts(before, after_border=True) if part]
    right = [part for part in _parts(after, after_border=False) if part]
    taken, kept = [left.pop() if left else ""], [right.pop(0) if right else ""]
    while left or right:
        room = MAX_QUESTION_WORDS - _size("".join([*taken, *kept]))
        if left and _size(left[-1]) <= room:
            taken.insert(0, left.pop())
        elif right and _size(right[0]) <= room:
            kept.append(right.pop(0))
        else:
            break
    first, second = "".join(taken), "".join(kept)
    surplus = _size(first) + _size(second) - MAX_QUESTION_WORDS
    if surplus > 0:
        second = _cut(second, max(MAX_QUESTION_WORDS // 2, _size(second) - surplus), from_end=False)
        first = _cut(first, MAX_QUESTION_WORDS - _size(second), from_end=True)
    return first, second


def _parts(text: str, *, after_border: bool) -> list[str]:
    """Clauses of a text, each with the mark after it or before it."""
    borders = [0, *(match.end() if after_border else match.start() for match in _CLAUSE_BORDER.finditer(text)), len(text)]
    return [text[a:b] for a, b in pairwise(borders)]


def _words_in(text: str) -> list[tuple[int, int]]:
    """Ranges of the words; two Chinese characters count as one."""
    return [match.span() for match in regex.finditer(r"\p{Han}{1,2}|[^\s\p{Han}]+", text)]


def _size(text: str) -> int:
    return len(_words_in(text))


def _cut(text: str, count: int, *, from_end: bool) -> str:
    found = _words_in(text)
    if len(found) <= count:
        return text
    return text[found[-count][0] :] if from_end else text[: found[count - 1][1]]


def _without_opener(before: str, words: Language) -> str:
    """Drop a sentence's connective, and lower a capital that is due to its place."""
    before = before.lstrip(EDGES)
    if not words.spaced:
        tie = next((word for word in sorted(words.words["openers"], key=len, reverse=True) if before.startswith(word)), "")
        return before[len(tie) :].lstrip(EDGES)
    first = regex.match(r"\S+", before)
    if first is not None and first[0].strip(EDGES).lower() in words.words["openers"]:
        before = before[first.end() :].lstrip(EDGES)
    first = regex.match(r"[\p{L}\p{M}]+['’]?", before)
    small = (
        first is not None and first[0].lower() in words.words["function_words"] | words.words["determiners"] | words.words["prepositions"]
    )
    return before[:1].lower() + before[1:] if small else before


def _moved(kind: str, asked: str, before: str, after: str, words: Language) -> str:
    """The question word, the words after the span, and then those before it."""
    possessive = regex.match(r"['’]s\b", after) if words.name == "en" else None
    if possessive is not None:
        asked, after = "Whose", after[possessive.end() :]
    if kind in _NUMBER_KINDS:
        before = _without_words(before, words.words["roughly"])
    asked, before = _with_preposition(kind, asked, before, words)
    if kind in _NAME_KINDS:
        after = _APPOSITION.sub("", after, count=1) if _APPOSITION.match(after) else after
    rest, head = (after.strip(EDGES), _without_words(before.rstrip(EDGES), words.words["conjunctions"]).strip(EDGES))
    joined = regex.match(r"(\p{L}+) ((?:an? |the )?\p{Lu}[\p{L}\p{N}-]*(?: \p{Lu}[\p{L}\p{N}-]*)*(?!['’\p{L}\p{N}]))", rest)
    if kind in _NAME_KINDS and joined is not None and joined[1] in words.words["conjunctions"]:
        rest = rest[joined.end() :].strip(EDGES)
    if kind == "number" and not words.rest_first and counts(after, words):  # "Wie viele Einwohner", before the other words
        counted, _, rest = rest.partition(" ")
        asked = regex.sub(r" de(?= [aeiouhéèêîô])", " d'", f"{asked} {counted}").replace("d' ", "d'")
    if not (rest and words.rest_first):
        head = _auxiliary_first(head, words)
    question = f"{asked} {rest}, {head}" if rest and head and words.rest_first else " ".join(part for part in (asked, head, rest) if part)
    return f"{words.opens}{question}{words.closes}"


def _without_words(before: str, left_out: Set[str]) -> str:
    while (last := regex.search(r"\p{L}+\s*$", before)) is not None and last[0].strip().lower() in left_out:
        before = before[: last.start()]
    return before


def _with_preposition(kind: str, asked: str, before: str, words: Language) -> tuple[str, str]:
    """The question word with its preposition, and the words before the span without it."""
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
    """ "The tower was built" after a question word: "was the tower built"; unchanged without such a verb."""
    for match in regex.finditer(r"(?<=\s)\p{L}+(?=\s|$)", head.split(",")[0]):
        relative = regex.search(r"\b(?:that|which|who|que|die|der|das)\s$", head[: match.start()])
        if match[0].lower() in words.words["auxiliaries"] and relative is None and _size(head[: match.start()]) <= MAX_SUBJECT_WORDS:
            return f"{match[0]} {head[: match.start()].rstrip()}{head[match.end() :]}"
    return head


def _in_place(kind: str, asked: str, before: str, after: str, words: Language) -> str:
    """The sentence with the question word in place of the span."""
    particle = regex.match(r"\p{Hangul}+", after)
    if particle is not None:
        instead = words.instead.get(kind, {}).get(particle[0])
        if instead is not None:
            asked, after = instead, after[particle.end() :]
    statement = f"{before}{asked}{after}".strip(EDGES)
    ending = next((ending for ending in words.endings if statement.endswith(ending)), "")
    if ending:
        statement = statement[: len(statement) - len(ending)] + words.endings[ending]
    elif words.name == "ko":
        statement = asking(statement)
    return f"{words.opens}{statement}{words.closes}"


def _stands_in(answer: str, question: str) -> bool:
    if _UNSPACED.search(answer) or HANGUL.search(answer):
        return answer in question
    return regex.search(rf"(?<![\p{{L}}\p{{N}}]){regex.escape(answer)}(?![\p{{L}}\p{{N}}])", question, regex.I) is not None
