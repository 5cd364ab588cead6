"""Matching of answers by strings alone: normalisation, exact match, regex match, F1, by the official script of the language.

All but F1, which is SQuAD's, decide as the official open-QA evaluation (google-research/language, ``language/orqa/utils/eval_utils.py``)
does, quirks included, so that numbers compare with the papers. Chinese: CMRC 2018's script (``cmrc2018_evaluate.py``). Korean, and other
scripts without spaces: KorQuAD 1.0's (``evaluate-v1.0.py``), whose F1 counts characters."""

import re
import string
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import regex

from realm.text.matching.patterns import pattern_matches
from realm.text.sentences import split_sentences
from realm.text.words import STOPWORDS, by_characters, characters_of, east_asian, has_characters, word_ranges

_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
# The standard library's \b, not regex's: it counts a combining accent as no word character, and the official script relies on it.
_AFTER_LETTER = re.compile(r"\b[A-Z]\.\s+([A-Z][a-z]+|A)\b")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize_answer(text: str) -> str:
    """The form in which two answers are compared, as in the official script, quirks included.

    Unicode NFD, lower case, ASCII punctuation deleted, the words a, an and the replaced by a space, white space collapsed. An accent ends a
    word, so the a of "à" is an article, of which only the accent stays; compatibility forms such as "①" and "½" stay.

    Examples:
        >>> normalize_answer("The  Rock-n-Roll!"), normalize_answer("A"), normalize_answer("“ok” –")
        ('rocknroll', '', '“ok” –')"""
    bare = unicodedata.normalize("NFD", text).lower().translate(_DELETE_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    """Return whether the normalised prediction equals any normalised reference. Without references: False."""
    _refuse_single_string(answers)
    normalized = normalize_answer(prediction)
    return any(normalized == normalize_answer(answer) for answer in answers)


def regex_match(prediction: str, patterns: Sequence[str], timeout_s: float = 0.5) -> bool:
    """Return whether any pattern matches at the start of the raw prediction, as in the official script: without case, multi-line.

    An invalid pattern, or one that takes longer than ``timeout_s``, matches nothing. ``regex`` stands in for ``re``, which has no time
    limit; what ``re`` refuses is invalid, and ``x{e}`` means fuzzy matching to ``regex`` alone.

    Examples:
        >>> regex_match("1969 or so", ["1969"]), regex_match("in 1969", ["1969"])
        (True, False)"""
    _refuse_single_string(patterns)
    return any(pattern_matches(pattern, prediction, timeout_s) for pattern in patterns)


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Harmonic mean of the precision and recall of normalised words (as multisets), the best over the references. SQuAD's definition on
    :func:`normalize_answer`. When the prediction or the reference has no words left, 1 if both have none, else 0, so that an exact match
    always has F1 1. Without references: 0."""
    _refuse_single_string(answers)
    predicted = normalize_answer(prediction).split()
    return max((_word_f1(predicted, normalize_answer(answer).split()) for answer in answers), default=0.0)


def _word_f1(predicted: list[str], reference: list[str]) -> float:
    if not predicted or not reference:
        return float(predicted == reference)
    common = (Counter(predicted) & Counter(reference)).total()
    return 2 * common / (len(predicted) + len(reference))


def _refuse_single_string(references: Sequence[str]) -> None:
    """A lone string is a sequence of characters: nearly always a caller's mistake, and a silent one."""
    if isinstance(references, str):
        raise TypeError("references must be a sequence of strings, not one string")


Range = tuple[int, int]
JOINING = frozenset("'’‐‑–—-")
"""Marks that may join two words without white space: "Tesla's", "New York-based"."""
_JOINING, _LETTER = "['’‐‑–—-]", r"[\p{L}\p{M}]"
_CUTS = regex.compile(rf"(?<={_LETTER})(?={_JOINING})|(?<={_LETTER}{_JOINING})|(?={_JOINING}{_LETTER})|(?<={_JOINING})(?={_LETTER})")
_BARRIER = "|"
"""Between parts that a mark joins: no normalised word, so no answer goes across."""


def raw_ranges(text: str, answers: Iterable[str]) -> list[Range]:
    """(start, end) of every place where an answer occurs character by character, in order; places may overlap."""
    places = (match.span(1) for answer in answers if answer for match in re.finditer(f"(?=({re.escape(answer)}))", text))
    return sorted(set(places))


def normalised_ranges(text: str, answers: Iterable[str]) -> list[Range]:
    """(start, end) of every place whose normalised words are an answer's, in order, as the text writes them: of :func:`form_ranges`."""
    return sorted({place for places in form_ranges(text, by_first_word(answer_forms(answers))).values() for place in places})


Form = tuple[str, ...]
"""An answer as its normalised words."""


def form_ranges(text: str, forms: Mapping[str, Sequence[Form]]) -> dict[Form, set[Range]]:
    """(start, end) of every place of each answer that occurs; ``forms`` by their first word.

    Words, not characters: "art" is not in "party". An answer without words ("the", "?") is in no text. Punctuation around a place is left
    out, and so are articles before and after it. In a text of a script that puts no spaces between words, or glues particles to them,
    every character counts as a word (``scripts.by_characters``).

    Normalisation deletes punctuation: "rock-n-roll" is one word, which the answer "rock n roll" is not. But "Tesla" in "Tesla's" and "New
    York" in "New York-based", marked alone, are right by exact match. So a place may begin and end beside a joining mark, too, with none
    inside of it."""
    found: defaultdict[Form, set[Range]] = defaultdict(set)
    ways = [(word_ranges(text), False)] + ([] if JOINING.isdisjoint(text) else [(token_parts(text), True)])
    for tokens, barriers in ways:
        words, owners = _words_of([text[start:end] for start, end in tokens], barriers=barriers)
        for at, word in enumerate(words):
            for form in forms.get(word, ()):
                if tuple(words[at : at + len(form)]) == form:
                    found[form].add(_without_punctuation(text, tokens[owners[at]][0], tokens[owners[at + len(form) - 1]][1]))
    return found


def by_first_word(forms: Iterable[Form]) -> dict[str, list[Form]]:
    """Answers by their first word, each once."""
    found: defaultdict[str, list[Form]] = defaultdict(list)
    for form in dict.fromkeys(forms):
        found[form[0]].append(form)
    return found


def answer_forms(answers: Iterable[str]) -> dict[Form, None]:
    """The words of answers as they may stand in a text: of each those between white space, and those of a text read by characters, where
    that says something else. Ordered, each once; none is empty."""
    forms: dict[Form, None] = {}
    for answer in answers:
        forms[tuple(normalize_answer(answer).split())] = None
        if has_characters(answer):
            forms[tuple(word for token in characters_of(answer) for word in token_words(token))] = None
    forms.pop((), None)
    return forms


def token_parts(text: str) -> list[Range]:
    """(start, end) of what counts as a word of a text, with joining marks cut off."""
    parts: list[Range] = []
    for start, end in word_ranges(text):
        cuts = [start, *(start + at for match in _CUTS.finditer(text[start:end]) if 0 < (at := match.start()) < end - start), end]
        parts += pairwise(cuts)
    return parts


def padded(text: str) -> str:
    """The normalised words of a text with a space on either side of each: whole words match whole words."""
    if not by_characters(text):
        return f" {normalize_answer(text)} "
    words, _ = _words_of([text[start:end] for start, end in word_ranges(text)], barriers=False)
    return f" {' '.join(words)} "


def padded_answers(answers: Iterable[str]) -> list[str]:
    """Strings to look for in ``padded`` texts."""
    return [f" {' '.join(form)} " for form in answer_forms(answers)]


def padded_parts(text: str) -> str:
    """The normalised words of a text and of its parts, so that ``padded`` of an answer is in it where ``normalised_ranges`` finds one."""
    words, _ = _words_of([text[start:end] for start, end in token_parts(text)], barriers=True)
    return f"{padded(text)}{_BARRIER} {' '.join(words)} "


def _words_of(tokens: Iterable[str], *, barriers: bool) -> tuple[list[str], list[int]]:
    """The normalised words of tokens, and for each the number of its token; a joining mark that stands alone is a barrier. Normalisation
    looks at nothing beyond white space, so token by token gives the same as all at once (a test compares them)."""
    words: list[str] = []
    owners: list[int] = []
    for number, token in enumerate(tokens):
        found = (_BARRIER,) if barriers and token in JOINING else token_words(token)
        words += found
        owners += [number] * len(found)
    return words, owners


@lru_cache(maxsize=2**18)
def token_words(token: str) -> tuple[str, ...]:
    """The normalised words of what stands between white space: mostly one, none of an article. Looked up: most were seen before."""
    if token.isascii() and token.isalnum():
        return () if (word := token.lower()) in ("a", "an", "the") else (word,)
    return tuple(normalize_answer(token).split())


def _without_punctuation(text: str, start: int, end: int) -> Range:
    while start < end and text[start] in string.punctuation:
        start += 1
    while start < end and text[end - 1] in string.punctuation:
        end -= 1
    return start, end


BRACKETS = {")": "(", "]": "[", "}": "{", "）": "（", "】": "【", "》": "《", "〉": "〈", "」": "「", "』": "『"}
_OPENING = frozenset(BRACKETS.values())


@lru_cache(maxsize=2**12)
def is_whole(text: str) -> bool:
    """Return whether a text has the form of an answer: one sentence at most, and each bracket that is opened is closed, in order. Of 6,629
    answers of SQuAD eight are more than one sentence. A letter with a full stop is taken for an initial ("J. R. R. Tolkien"), except before
    a word that begins a sentence ("the symbol N. Of these")."""
    opened: list[str] = []
    for character in text:
        if character in _OPENING:
            opened.append(character)
        elif character in BRACKETS and (not opened or opened.pop() != BRACKETS[character]):
            return False
    if opened or len(split_sentences(text)) > 1:
        return False
    return all(following[1].lower() not in STOPWORDS for following in _AFTER_LETTER.finditer(text))


@dataclass(frozen=True)
class Scoring:
    """One official way to compare answers (open-qa, cmrc or korquad): the form in which two answers are equal, and F1 (0 to 1) of a
    prediction and one reference."""

    name: str
    form: Callable[[str], str]
    f1_of_pair: Callable[[str, str], float]

    def exact_match(self, prediction: str, references: Sequence[str]) -> bool:
        """Return whether the prediction has the form of any reference. Without references: False."""
        form = self.form(prediction)
        return any(form == self.form(reference) for reference in references)

    def f1(self, prediction: str, references: Sequence[str]) -> float:
        """The best F1 over the references. Without references: 0."""
        return max((self.f1_of_pair(prediction, reference) for reference in references), default=0.0)


@lru_cache(maxsize=2**12)
def scoring_of(question: str) -> Scoring:
    """The scoring of answers to a question, by the letters of the question."""
    if not by_characters(question):
        return OPEN_QA
    return CMRC if east_asian(question) == "zh" else KORQUAD


# CMRC 2018 -------------------------------------------------------------------------------------------------------------------------

_CMRC_MARKS = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""Marks that the script leaves out, but for "……" of its list, which no single character equals."""
_CMRC_HAN = re.compile("[\u4e00-\u9fa5]")
# What stands between Han characters is cut as Penn Treebank cuts English: these by themselves, and so the full stop at the end.
_APART = re.compile(r"\.\.\.|[][(){}<>;@#$%&?!\"]|,(?!\d)")
_LAST_STOP = re.compile(r"(?<=[^.\s])\.(?=[])}>\"'\s]*$)")
_CLITIC = re.compile(r"(?<=[^'\s])'(?:s|m|d|ll|re|ve)\b|(?<=\w)n't\b")


def cmrc_form(text: str) -> str:
    """Lower case, without white space around and without the marks of the script's list: those of Chinese and some of ASCII's."""
    return "".join(character for character in text.lower().strip() if character not in _CMRC_MARKS)


def cmrc_segments(text: str) -> list[str]:
    """Units of CMRC's F1: every Han character from U+4E00 to U+9FA5, and the words of what stands between them."""
    segments: list[str] = []
    between = ""
    for character in cmrc_form(text):
        if _CMRC_HAN.match(character):
            segments += [*_treebank_words(between), character]
            between = ""
        else:
            between += character
    return segments + _treebank_words(between)


def cmrc_f1(prediction: str, reference: str) -> float:
    """CMRC's F1: the longest run of segments that both have, against the segments of each; 0 where they share none."""
    predicted, wanted = cmrc_segments(prediction), cmrc_segments(reference)
    common = _longest_common_run(predicted, wanted)
    return 2 * common / (len(predicted) + len(wanted)) if common else 0.0


def _treebank_words(text: str) -> list[str]:
    return _CLITIC.sub(r" \g<0>", _LAST_STOP.sub(" . ", _APART.sub(r" \g<0> ", text))).split()


def _longest_common_run(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest run that stands in both."""
    longest, lengths = 0, [0] * (len(second) + 1)
    for item in first:
        lengths = [0, *(before + 1 if item == other else 0 for before, other in zip(lengths, second, strict=False))]
        longest = max(longest, *lengths)
    return longest


# KorQuAD 1.0 -----------------------------------------------------------------------------------------------------------------------

_KORQUAD_SPACES = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))


def korquad_form(text: str) -> str:
    """Quotes and brackets of titles as spaces, lower case, without ASCII punctuation, white space collapsed."""
    return " ".join(text.translate(_KORQUAD_SPACES).lower().translate(_DELETE_PUNCTUATION).split())


def korquad_f1(prediction: str, reference: str) -> float:
    """KorQuAD's F1: of characters as multisets, white space not counted; 0 where they share none."""
    predicted, wanted = (Counter(korquad_form(text).replace(" ", "")) for text in (prediction, reference))
    common = (predicted & wanted).total()
    return 2 * common / (predicted.total() + wanted.total()) if common else 0.0


OPEN_QA = Scoring("open-qa", normalize_answer, lambda prediction, reference: f1(prediction, [reference]))
CMRC = Scoring("cmrc", cmrc_form, cmrc_f1)
KORQUAD = Scoring("korquad", korquad_form, korquad_f1)
