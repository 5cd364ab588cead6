"""Where the answers of many questions occur in a whole corpus, by any of the ways to match: found in one pass over it."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence as SequenceOf
from itertools import chain

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.data.qa import NO_SPAN, Spans, answer_wordpieces, characters_of_wordpieces, locate_wordpieces, touched
from realm.data.types import Question
from realm.data.words import locate_words
from realm.errors import MissingExtra
from realm.progress import Advance
from realm.text.answers import Range
from realm.text.literals import LikelyPatterns, automaton
from realm.text.patterns import PatternSearch, compiled_pattern


def locate_answers(
    store: BlockStore,
    questions: SequenceOf[Question],
    match: str,
    patterns: PatternSearch | None = None,
    counting: Advance = lambda done, total: None,
) -> list[Spans]:
    """Rows with an answer of each question, and the wordpieces that a reader is to mark there.

    Args:
        match: how strings are found, one of ``text.answers.MATCHES``. normalised: rows by normalised words; spans as the
            document spells them. wordpiece: rows and spans by wordpieces. raw: rows by characters; the spans in them are those
            of the answer's wordpieces, as in the TensorFlow release. Regex answers have one way, see ``locate_patterns``.
        patterns: searches for regex answers, and knows afterwards which it gave up.

    Raises:
        MissingExtra: raw needs an automaton over all answers at once.
    """
    strings = [question for question in questions if question.answer_type == "string"]
    regexes = [question for question in questions if question.answer_type == "regex"]
    located = dict(zip(map(id, strings), _located_strings(store, strings, match, counting), strict=True)) if strings else {}
    if regexes:
        wanted = dict.fromkeys(pattern for question in regexes for pattern in question.answers)
        tables = locate_patterns(store, wanted, patterns or PatternSearch(), counting)
        for question in regexes:
            located[id(question)] = Spans.union([tables[pattern] for pattern in question.answers if pattern in tables])
    return [located[id(question)] for question in questions]


def _located_strings(store: BlockStore, questions: SequenceOf[Question], match: str, counting: Advance) -> list[Spans]:
    if match == "normalised":
        return locate_words(store, questions, counting)
    located = locate_wordpieces(store, [answer_wordpieces(store, question) for question in questions], counting)
    if match == "wordpiece":
        return located
    rows = _rows_with_characters(store, questions)
    return [Spans.of({row: spans.get(row, []) for row in holding}) for spans, holding in zip(located, rows, strict=True)]


def _rows_with_characters(store: BlockStore, questions: SequenceOf[Question]) -> list[list[int]]:
    """Rows that hold an answer of each question character by character, ascending."""
    owners: dict[str, set[int]] = defaultdict(set)
    for number, question in enumerate(questions):
        for answer in question.answers:
            if answer.strip():
                owners[answer].add(number)
    found: list[list[int]] = [[] for _ in questions]
    needles = list(owners)
    finder = automaton(needles)
    if finder is None:
        raise MissingExtra("matching answers character by character", "eval")
    for row in range(len(store)):
        hits = {place[0] for place in finder.find_matches_as_indexes(store.block(row).text, overlapping=True)}
        for number in {owner for hit in hits for owner in owners[needles[hit]]}:
            found[number].append(row)
    return found


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
