"""Comparison of an answer with the references of its question, by the official script of the question's language.

English and languages with spaces: Google's open-QA evaluation and SQuAD's F1 (``answers.py``). Chinese: CMRC 2018's
(``cmrc2018_evaluate.py``). Korean, and other scripts without spaces: KorQuAD 1.0's (``evaluate-v1.0.py``), whose F1 counts characters."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from realm.text.matching import answers
from realm.text.words import by_characters, east_asian


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


def _open_qa_f1(prediction: str, reference: str) -> float:
    return answers.f1(prediction, [reference])


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
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def korquad_form(text: str) -> str:
    """Quotes and brackets of titles as spaces, lower case, without ASCII punctuation, white space collapsed."""
    return " ".join(text.translate(_KORQUAD_SPACES).lower().translate(_NO_PUNCTUATION).split())


def korquad_f1(prediction: str, reference: str) -> float:
    """KorQuAD's F1: of characters as multisets, white space not counted; 0 where they share none."""
    predicted, wanted = (Counter(korquad_form(text).replace(" ", "")) for text in (prediction, reference))
    common = (predicted & wanted).total()
    return 2 * common / (predicted.total() + wanted.total()) if common else 0.0


OPEN_QA = Scoring("open-qa", answers.normalize_answer, _open_qa_f1)
CMRC = Scoring("cmrc", cmrc_form, cmrc_f1)
KORQUAD = Scoring("korquad", korquad_form, korquad_f1)
