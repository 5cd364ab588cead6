"""Questions that bring their paragraph, as inputs of a reader: the paragraph cut into windows, its answers as spans of wordpieces."""

from collections.abc import Iterator, Sequence as SequenceOf
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from realm.models.featurize import MAX_TITLE_LENGTH, Featurizer
from realm.models.types import Question
from realm.text.matching.answers import normalised_ranges, raw_ranges
from realm.text.tokenizer import TextTokenizer

OVERLAP = 4
"""Windows of a long paragraph share a quarter of their wordpieces, so that no answer is cut by all of them."""


@dataclass(frozen=True)
class Window:
    """A question beside a part of its paragraph.

    Attributes:
        question: its number.
        first: wordpiece of the paragraph at which the window begins.
        last: wordpiece of the paragraph behind its end.
        gold: int32 [n, 2], wordpieces [start, end) of the window that are an answer; none where the window does not answer.
    """

    question: int
    first: int
    last: int
    gold: np.ndarray

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class Paragraph:
    """Wordpieces of a text, int32 [t], and the code points [start, end) of each, int32 [t, 2]."""

    ids: np.ndarray
    offsets: np.ndarray

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The wordpieces [first, last) that touch code points [start, end)."""
        first = int(np.searchsorted(self.offsets[:, 1], start, side="right"))
        return first, int(np.searchsorted(self.offsets[:, 0], end, side="left"))


class GivenParagraphs:
    """Windows of all paragraphs that some questions bring.

    Args:
        questions: each with a ``context``.
        tokenizer, features: of the reader.
        max_span: longest answer in wordpieces that the reader can point at.
    """

    def __init__(self, questions: SequenceOf[Question], tokenizer: TextTokenizer, features: Featurizer, max_span: int):
        self.questions = questions
        self.features = features
        self._tokenizer = tokenizer
        self._max_span = max_span
        self._texts = list(dict.fromkeys(question.context for question in questions))
        self._number = {text: number for number, text in enumerate(self._texts)}
        encodings = tokenizer.encodings(self._texts)
        self._paragraphs = [Paragraph(np.array(e.ids, np.int32), np.array(e.offsets, np.int32).reshape(-1, 2)) for e in encodings]
        titles = list(dict.fromkeys(question.title for question in questions))
        self._titles = {title: ids[:MAX_TITLE_LENGTH] for title, ids in zip(titles, tokenizer.encode(titles), strict=True)}

    @cached_property
    def windows(self) -> list[Window]:
        """The windows of each question that can be learnt from: an answer in its paragraph can be pointed at, or it has none there."""
        return [window for number, question in enumerate(self.questions) for window in self._learnable(number, question)]

    def windows_of(self, number: int) -> list[Window]:
        """The windows of one question's paragraph, in order."""
        question, paragraph = self.questions[number], self.paragraph(number)
        spans = [paragraph.span(start, end) for start, end in answer_places(question)]
        room = self.features.block_length - 3 - len(self.title(number))
        cuts = list(_cuts(len(paragraph.ids), room))
        return [Window(number, first, last, self._inside(spans, first, last)) for first, last in cuts]

    def paragraph(self, number: int) -> Paragraph:
        return self._paragraphs[self._number[self.questions[number].context]]

    def encode_questions(self) -> list[list[int]]:
        """Wordpieces of all questions as they are asked."""
        return self._tokenizer.encode([question.text for question in self.questions])

    def title(self, number: int) -> list[int]:
        """Wordpieces of the title of a question's paragraph, as many as a reader reads."""
        return self._titles[self.questions[number].title]

    def _learnable(self, number: int, question: Question) -> list[Window]:
        windows = self.windows_of(number)
        return windows if not question.answers or any(len(window.gold) for window in windows) else []

    def _inside(self, spans: list[tuple[int, int]], first: int, last: int) -> np.ndarray:
        inside = {(s - first, e - first) for s, e in spans if first <= s < e <= last and e - s <= self._max_span}
        return np.array(sorted(inside), np.int32).reshape(-1, 2)


def answer_places(question: Question) -> list[tuple[int, int]]:
    """(start, end) code points of a question's answers in its paragraph: where they were marked, or wherever their words occur."""
    if question.places:
        return list(question.places)
    return normalised_ranges(question.context, question.answers) or raw_ranges(question.context, question.answers)


def _cuts(length: int, room: int) -> Iterator[tuple[int, int]]:
    """[first, last) of windows of at most ``room`` wordpieces over ``length``, each a quarter into the one before."""
    step = max(1, room - room // OVERLAP)
    for first in range(0, max(1, length - room // OVERLAP), step):
        yield first, min(length, first + room)
