"""Where the answers of many questions occur in a whole corpus: strings by normalised words, regular expressions where they match."""

from array import array
from collections.abc import Iterable, Sequence as SequenceOf
from itertools import chain

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.evaluation.places import NO_SPAN, Spans, characters_of_wordpieces, touched
from realm.evaluation.words import locate_words
from realm.models.types import Question
from realm.progress import Advance
from realm.text.matching.answers import Range
from realm.text.matching.patterns import LikelyPatterns, PatternSearch, compiled_pattern


def locate_answers(
    store: BlockStore,
    questions: SequenceOf[Question],
    patterns: PatternSearch | None = None,
    counting: Advance = lambda done, total: None,
) -> list[Spans]:
    """Rows with an answer of each question, and the wordpieces that a reader is to mark there: strings by ``locate_words``, regular
    expressions by ``locate_patterns``.

    Args:
        patterns: searches for regex answers, and knows afterwards which it gave up.
    """
    strings, regexes = ([question for question in questions if question.answer_type == kind] for kind in ("string", "regex"))
    located = dict(zip(map(id, strings), locate_words(store, strings, counting), strict=True)) if strings else {}
    if regexes:
        wanted = dict.fromkeys(pattern for question in regexes for pattern in question.answers)
        tables = locate_patterns(store, wanted, patterns or PatternSearch(), counting)
        for question in regexes:
            located[id(question)] = Spans.union([tables[pattern] for pattern in question.answers if pattern in tables])
    return [located[id(question)] for question in questions]


ROWS = 256
"""Blocks whose texts are held, and tokenised together, at a time."""


def locate_patterns(
    store: BlockStore, patterns: Iterable[str], search: PatternSearch, counting: Advance = lambda done, total: None
) -> dict[str, np.ndarray]:
    """The places of each pattern that is valid and was not given up: int32 [n, 3], row, start and end of body wordpieces, ascending.

    A place is where the pattern matches in the block's text, completed to all wordpieces that the match touches. It counts where evaluation
    would take its text for an answer, which it does not where the match begins inside a wordpiece; a row without such a place has
    ``NO_SPAN``. Matches without a character are none.

    Args:
        store: the corpus; tombstoned rows are left out.
        search: keeps the time of each pattern, and knows afterwards which it gave up. What those matched before is dropped.
    """
    found = {pattern: array("i") for pattern in patterns if compiled_pattern(pattern) is not None}
    likely = LikelyPatterns(found)
    rows = np.flatnonzero(store.live).tolist()
    for at in range(0, len(rows), ROWS):
        counting(at, len(rows))
        _search_rows(store, rows[at : at + ROWS], likely, search, found)
    counting(len(rows), len(rows))
    return {pattern: np.array(flat, np.int32).reshape(-1, 3) for pattern, flat in found.items() if not search.gave_up(pattern)}


def _search_rows(store: BlockStore, rows: list[int], likely: LikelyPatterns, search: PatternSearch, found: "dict[str, array[int]]") -> None:
    """Add what some rows have to each pattern's places."""
    texts = {row: store.block(row).text for row in rows}
    matched: dict[int, dict[str, list[Range]]] = {}
    for row, text in texts.items():
        hits = {pattern: search.ranges(text, pattern) for pattern in likely.of(text)}
        if hits := {pattern: ranges for pattern, ranges in hits.items() if ranges}:
            matched[row] = hits
    for row, wordpieces in zip(matched, characters_of_wordpieces(store, {row: texts[row] for row in matched}), strict=True):
        for pattern, ranges in matched[row].items():
            marked = _marked(texts[row], pattern, ranges, wordpieces, search)
            found[pattern].extend(chain.from_iterable((row, start, end) for start, end in marked or [NO_SPAN]))


def _marked(text: str, pattern: str, ranges: list[Range], wordpieces: np.ndarray, search: PatternSearch) -> list[Range]:
    """The wordpieces of each match that would be right as an answer, each place once."""
    first, last = touched(wordpieces, *np.array(ranges).T)
    places = dict.fromkeys((start, end) for start, end in zip(first.tolist(), last.tolist(), strict=True) if start < end)
    return [(a, b) for a, b in places if search.begins(text[wordpieces[a, 0] : wordpieces[b - 1, 1]], pattern)]
