"""Where patterns match in a whole corpus, as wordpieces that a reader can mark: found in one pass over the blocks."""

from array import array
from collections.abc import Iterable
from itertools import chain

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.data.spans import NO_SPAN
from realm.progress import Advance
from realm.text.answer_ranges import Range
from realm.text.literals import LikelyPatterns
from realm.text.patterns import PatternSearch, compiled_pattern

ROWS = 256
"""Blocks whose texts are held, and tokenised together, at a time."""


def locate_patterns(
    store: BlockStore, patterns: Iterable[str], search: PatternSearch, counting: Advance = lambda done, total: None
) -> dict[str, np.ndarray]:
    """The places of each pattern that is valid and was not given up: int32 [n, 3], row, start and end of body wordpieces, ascending.

    A place is where the pattern matches in the block's text, made whole: all wordpieces that the match touches. It counts where evaluation
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
    for row, wordpieces in zip(matched, _characters_of_wordpieces(store, {row: texts[row] for row in matched}), strict=True):
        for pattern, ranges in matched[row].items():
            marked = _marked(texts[row], pattern, ranges, wordpieces, search)
            found[pattern].extend(chain.from_iterable((row, start, end) for start, end in marked or [NO_SPAN]))


def _marked(text: str, pattern: str, ranges: list[Range], wordpieces: np.ndarray, search: PatternSearch) -> list[Range]:
    """The wordpieces of each match that would be right as an answer, each place once."""
    begins, ends = np.array(ranges).T
    first = np.searchsorted(wordpieces[:, 1], begins, side="right")
    last = np.searchsorted(wordpieces[:, 0], ends, side="left")
    places = dict.fromkeys((start, end) for start, end in zip(first.tolist(), last.tolist(), strict=True) if start < end)
    return [(a, b) for a, b in places if search.begins(text[wordpieces[a, 0] : wordpieces[b - 1, 1]], pattern)]


def _characters_of_wordpieces(store: BlockStore, texts: dict[int, str]) -> list[np.ndarray]:
    """int32 [t, 2] of each block: the range in its text of every body wordpiece, made anew sentence by sentence as the build made them."""
    tables = [store.sentences(row) for row in texts]
    sentences = [text[start:end] for text, table in zip(texts.values(), tables, strict=True) for start, end in table.chars.tolist()]
    tokenized = store.tokenizer.tokenize(sentences)
    found, number = [], 0
    for row, table in zip(texts, tables, strict=True):
        ranges = np.zeros((len(store.token_ids(row)), 2), np.int32)
        for (first, last), (begin, end) in zip(table.tokens.tolist(), table.chars.tolist(), strict=True):
            offsets = np.array(tokenized.offsets(number), np.int32).reshape(-1, 2)[: last - first] + begin
            ranges[first:last] = end  # of wordpieces that the text does not give again
            ranges[first : first + len(offsets)] = offsets
            number += 1
        found.append(ranges)
    return found
