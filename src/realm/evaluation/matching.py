"""Places of answers in a whole corpus: strings by their normalised words, regular expressions by their matches."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence as SequenceOf
from itertools import chain
from typing import TypeVar

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.evaluation.places import NO_SPAN, Spans, characters_of_wordpieces, touched
from realm.models.types import Question
from realm.progress import Advance
from realm.text.matching.answers import Range, answer_forms, by_first_word, form_ranges
from realm.text.matching.patterns import LikelyPatterns, PatternSearch, compiled_pattern

BATCH = 256  # blocks in memory, and tokenised together
Key = TypeVar("Key")


def locate_answers(
    store: BlockStore, questions: SequenceOf[Question], patterns: PatternSearch | None = None, counting: Advance = lambda done, total: None
) -> list[Spans]:
    """Rows with an answer of each question, and the wordpieces that a reader marks there; ``patterns`` lists those it gave up."""
    strings, regexes = ([question for question in questions if question.answer_type == kind] for kind in ("string", "regex"))
    located = dict(zip(map(id, strings), locate_words(store, strings, counting), strict=True)) if strings else {}
    if regexes:
        wanted = dict.fromkeys(pattern for question in regexes for pattern in question.answers)
        tables = locate_patterns(store, wanted, patterns or PatternSearch(), counting)
        for question in regexes:
            located[id(question)] = Spans.union([tables[pattern] for pattern in question.answers if pattern in tables])
    return [located[id(question)] for question in questions]


def locate_words(store: BlockStore, questions: SequenceOf[Question], counting: Advance = lambda done, total: None) -> list[Spans]:
    """Places of the string answers of many questions, in any spelling, as of ``normalised_ranges``, in one pass over all blocks."""
    wanted = [answer_forms(question.answers) for question in questions]
    forms = by_first_word(form for found in wanted for form in found)
    tables = {form: array("i") for found in wanted for form in found}
    for at in range(0, len(store), BATCH):
        if at:
            counting(at, len(store))
        for row, _, wordpieces, found in _found(store, range(at, min(at + BATCH, len(store))), lambda text: form_ranges(text, forms)):
            places = [(form, *place) for form, ranges in found.items() for place in ranges]
            spans = zip(*touched(wordpieces, *np.array([place[1:] for place in places]).T), strict=True)
            for (form, *_), (first, last) in zip(places, spans, strict=True):
                tables[form].extend((row, first, last) if first < last else (row, *NO_SPAN))
    found_of = {form: np.array(flat, np.int32) for form, flat in tables.items()}
    return [Spans.union([found_of[form] for form in found]) for found in wanted]


def _found(
    store: BlockStore, rows: Iterable[int], find: Callable[[str], Mapping[Key, Iterable[Range]]]
) -> Iterator[tuple[int, str, np.ndarray, Mapping[Key, Iterable[Range]]]]:
    """Rows in whose texts something is found: row, text, the characters of its wordpieces [t, 2], and what was found."""
    texts = {row: store.block(row).text for row in rows}
    found = {row: hits for row, text in texts.items() if (hits := find(text))}
    for row, wordpieces in zip(found, characters_of_wordpieces(store, {row: texts[row] for row in found}), strict=True):
        yield row, texts[row], wordpieces, found[row]


def locate_patterns(
    store: BlockStore, patterns: Iterable[str], search: PatternSearch, counting: Advance = lambda done, total: None
) -> dict[str, np.ndarray]:
    """Places of each pattern that is valid and was not given up: int32 [n, 3], row, start and end of body wordpieces, ascending.

    A place is a match in a live block's text, completed to all wordpieces that it touches. It counts if evaluation would accept its text,
    which it does not if the match begins inside a wordpiece; a row without such a place has ``NO_SPAN``. Empty matches are none. Places of
    patterns that ``search`` gave up are dropped.
    """
    found = {pattern: array("i") for pattern in patterns if compiled_pattern(pattern) is not None}
    likely = LikelyPatterns(found)
    rows = np.flatnonzero(store.live).tolist()

    def matches(text: str) -> dict[str, list[Range]]:
        return {pattern: ranges for pattern in likely.of(text) if (ranges := search.ranges(text, pattern))}

    for at in range(0, len(rows), BATCH):
        counting(at, len(rows))
        for row, text, wordpieces, hits in _found(store, rows[at : at + BATCH], matches):
            for pattern, ranges in hits.items():
                marked = _marked(text, pattern, ranges, wordpieces, search)
                found[pattern].extend(chain.from_iterable((row, start, end) for start, end in marked or [NO_SPAN]))
    counting(len(rows), len(rows))
    return {pattern: np.array(flat, np.int32).reshape(-1, 3) for pattern, flat in found.items() if not search.gave_up(pattern)}


def _marked(text: str, pattern: str, ranges: Iterable[Range], wordpieces: np.ndarray, search: PatternSearch) -> list[Range]:
    """Wordpieces of each match that would be right as an answer, each place once."""
    first, last = touched(wordpieces, *np.array(list(ranges)).T)
    places = dict.fromkeys((start, end) for start, end in zip(first.tolist(), last.tolist(), strict=True) if start < end)
    return [(a, b) for a, b in places if search.begins(text[wordpieces[a, 0] : wordpieces[b - 1, 1]], pattern)]
