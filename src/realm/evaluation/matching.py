"""Places of answers in a whole corpus: strings by normalised words, in one pass for all questions; regular expressions by their matches."""

import string
from array import array
from collections.abc import Callable, Iterable, Sequence as SequenceOf
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from realm.documents.store.blocks import BlockStore
from realm.evaluation.places import NO_SPAN, PORTION_BLOCKS, InvertedList, Spans, characters_of_wordpieces, touched
from realm.models.types import Question
from realm.progress import Advance
from realm.text.folding import UNSPACED
from realm.text.matching.answers import JOINING, JOINTS, Range, answer_forms, place_range, token_parts, token_words
from realm.text.matching.patterns import LikelyPatterns, PatternSearch, compiled_pattern
from realm.text.words import by_characters, word_ranges

Needle = tuple[str, ...]
_PUNCTUATION = frozenset(string.punctuation)


def locate_words(store: BlockStore, questions: SequenceOf[Question], counting: Advance = lambda done, total: None) -> list[Spans]:
    """Places of the string answers of many questions, in any spelling, as of ``normalised_ranges``; ``PORTION_BLOCKS`` at a time."""
    wanted = [answer_forms(question.answers) for question in questions]
    tables: dict[Needle, list[np.ndarray]] = {needle: [] for found in wanted for needle in found}
    for first in range(0, len(store), PORTION_BLOCKS):
        if first:
            counting(first, len(store))
        rows = range(first, min(first + PORTION_BLOCKS, len(store)))
        for needle, table in zip(tables, _located(store, rows, list(tables)), strict=True):
            tables[needle].append(table)
    return [Spans.union([table for needle in found for table in tables[needle]]) for found in wanted]


def _located(store: BlockStore, rows: range, needles: list[Needle]) -> list[np.ndarray]:
    """Places of each needle in some rows: int32 [n, 3], row, start and end of body wordpieces."""
    texts = _parted(pa.concat_arrays(store.texts(rows.start, rows.stop)))
    either = zip(_located_in(store, rows, _whole(texts), needles), _located_in(store, rows, _parts(texts), needles), strict=True)
    return [np.concatenate(found) for found in either]


def _located_in(store: BlockStore, rows: range, tokens: "_Tokens", needles: list[Needle]) -> list[np.ndarray]:
    """Places of each needle that begin and end with one of these tokens."""
    words = _Words.of(tokens, needles)
    found = [words.places(needle) for needle in needles]
    places = np.concatenate([np.empty((0, 3), np.int64), *found])
    spans = _Bodies.of(store, rows, tokens).spans(places)
    table = np.column_stack([places[:, 0] + rows.start, spans]).astype(np.int32)
    return np.split(table, np.cumsum([len(one) for one in found])[:-1]) if found else []


def _whole(texts: pa.Array) -> "_Tokens":
    """Tokens between white space."""
    return _Tokens.of(texts, word_ranges)


def _parts(texts: pa.Array) -> "_Tokens":
    """The same, with joining marks cut off."""
    for joint, apart in zip(JOINTS, (r"\1 \2 ", r" \1 \2"), strict=True):
        texts = pc.replace_substring_regex(texts, pattern=joint, replacement=apart)
    tokens = _Tokens.of(texts, token_parts)
    joined = np.array([token in JOINING for token in tokens.distinct], np.int64)
    return replace(tokens, joints=np.concatenate([[0], np.cumsum(joined[tokens.codes])]))


@dataclass(frozen=True)
class _Tokens:
    """Tokens of n texts: words, as ``word_ranges`` counts them, or their parts."""

    distinct: list[str]  # the tokens, each once
    codes: np.ndarray  # int64 [t], index of each token, text after text
    starts: np.ndarray  # int64 [n + 1]: the tokens of text i are codes[starts[i]:starts[i + 1]]
    ranges: Callable[[str], list[Range]]  # (start, end) characters of the same tokens in one text
    joints: np.ndarray | None = None  # int64 [t + 1], joining marks before each token; None if they are not cut off

    @classmethod
    def of(cls, texts: pa.Array, ranges: Callable[[str], list[Range]]) -> "_Tokens":
        """Tokens of texts with white space between any two."""
        lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts))
        coded = lists.flatten().dictionary_encode()
        starts = np.concatenate([[0], np.cumsum(np.asarray(pc.list_value_length(lists)), dtype=np.int64)])
        return cls(coded.dictionary.to_pylist(), np.asarray(coded.indices).astype(np.int64), starts, ranges)

    def together(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Mask of allowed answers from a first to a last token, counted over all texts."""
        return np.ones(len(first), np.bool_) if self.joints is None else np.asarray(self.joints[first] == self.joints[last])

    def spread(self, values: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values of all tokens [v], from ``values[starts[i]:starts[i + 1]]`` of distinct token i, and their starts [t + 1]."""
        first = starts[self.codes]
        counts = starts[self.codes + 1] - first
        begins = np.concatenate([[0], np.cumsum(counts)])
        return values[np.arange(begins[-1]) + np.repeat(first - begins[:-1], counts)], begins


def _parted(texts: pa.Array) -> pa.Array:
    """Texts with spaces around each word of those read by characters; one search shows that most corpora have none."""
    held = np.flatnonzero(pc.match_substring_regex(texts, f"[{UNSPACED}]"))
    others = {at: text for at in held.tolist() if by_characters(text := texts[at].as_py())}
    if not others:
        return texts
    parted = [" ".join(text[start:end] for start, end in word_ranges(text)) for text in others.values()]
    mask = np.isin(np.arange(len(texts)), list(others))
    return pc.replace_with_mask(texts, mask, pa.array(parted, texts.type))


@dataclass(frozen=True)
class _Words:
    """Normalised words of n texts."""

    tokens: _Tokens
    numbers: dict[str, int]  # of the words in some needle
    index: InvertedList  # all words by number, text after text; others have the number behind the last
    owners: np.ndarray  # int64 [w], token of each word, counted over all texts

    @classmethod
    def of(cls, tokens: _Tokens, needles: Iterable[Needle]) -> "_Words":
        numbers = {word: number for number, word in enumerate(dict.fromkeys(word for needle in needles for word in needle))}
        other = len(numbers)
        each = [[numbers.get(word, other) for word in token_words(token)] for token in tokens.distinct]
        starts = np.cumsum([0, *map(len, each)], dtype=np.int64)
        # Sixteen bits are sorted many times faster than more.
        flat = np.fromiter(chain.from_iterable(each), np.uint16 if other < 2**16 else np.uint32, int(starts[-1]))
        words, begins = tokens.spread(flat, starts)
        owners = np.repeat(np.arange(len(tokens.codes)), np.diff(begins))
        return cls(tokens, numbers, InvertedList(words, begins[tokens.starts], other + 1), owners)

    def places(self, needle: Needle) -> np.ndarray:
        """int64 [n, 3]: text, and first and last token, counted over all texts, of every place with the needle's words."""
        texts, at = self.index.occurrences([self.numbers[word] for word in needle])
        first, last = self.owners[at], self.owners[at + len(needle) - 1]
        return np.column_stack([texts, first, last])[self.tokens.together(first, last)]


@dataclass(frozen=True)
class _Bodies:
    """Wordpieces of some rows, by their tokens."""

    store: BlockStore
    rows: range
    tokens: _Tokens  # of the rows' texts
    pieces: np.ndarray  # uint32 [p], wordpieces of one token after the other
    begins: np.ndarray  # int64 [t + 1]: pieces[begins[i]:begins[i + 1]] are those of token i
    alike: np.ndarray  # bool [n], equal to the row's body; if not, characters decide

    @classmethod
    def of(cls, store: BlockStore, rows: range, tokens: _Tokens) -> "_Bodies":
        made = store.tokenizer.tokenize(tokens.distinct)
        pieces, begins = tokens.spread(made.ids, made.starts)
        starts = begins[tokens.starts]
        bodies = [store.token_ids(row) for row in rows]
        ends = np.cumsum([0, *map(len, bodies)], dtype=np.int64)
        alike = np.diff(ends) == np.diff(starts)
        mine, theirs = np.repeat(alike, np.diff(starts)), np.repeat(alike, np.diff(ends))
        # An unknown wordpiece says nothing of its characters, punctuation or not.
        wrong = (pieces[mine] != np.concatenate(bodies)[theirs]) | (pieces[mine] == store.tokenizer.special.unk)
        alike[np.searchsorted(starts, np.flatnonzero(mine)[wrong], side="right") - 1] = False
        return cls(store, rows, tokens, pieces, begins, alike)

    def spans(self, places: np.ndarray) -> np.ndarray:
        """int64 [n, 2]: the wordpieces of places (text, first and last token) less punctuation around them; ``NO_SPAN`` if none."""
        texts, first, last = places.T
        start, end = self.begins[first], self.begins[last + 1]
        marks = np.append(np.isin(self.pieces, self._punctuation()), False)
        while (at := np.flatnonzero((start < end) & marks[start])).size:
            start[at] += 1
        while (at := np.flatnonzero((start < end) & marks[end - 1])).size:
            end[at] -= 1
        begin = self.begins[self.tokens.starts[texts]]
        found = np.column_stack([start - begin, end - begin])
        for text in np.unique(texts[~self.alike[texts]]).tolist():
            here = np.flatnonzero(texts == text)
            found[here] = self._by_characters(self.rows[text], places[here, 1:] - self.tokens.starts[text])
        found[found[:, 0] >= found[:, 1]] = NO_SPAN
        return found

    def _punctuation(self) -> list[int]:
        tokenizer = self.store.tokenizer
        texts = {number: tokenizer.decode([number]).strip() for number in np.unique(self.pieces).tolist()}
        return [number for number, text in texts.items() if text and _PUNCTUATION.issuperset(text)]

    def _by_characters(self, row: int, tokens: np.ndarray) -> np.ndarray:
        """Wordpieces touched by (first, last) tokens of one row, int64 [n, 2]."""
        text = self.store.block(row).text
        ranges = self.tokens.ranges(text)
        begins, ends = np.array([place_range(text, ranges, first, last) for first, last in tokens.tolist()]).T
        wordpieces = characters_of_wordpieces(self.store, {row: text})[0]
        return np.column_stack(touched(wordpieces, begins, ends))


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


PATTERN_BATCH = 256  # blocks in memory, and tokenised together


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
    for at in range(0, len(rows), PATTERN_BATCH):
        counting(at, len(rows))
        _search_rows(store, rows[at : at + PATTERN_BATCH], likely, search, found)
    counting(len(rows), len(rows))
    return {pattern: np.array(flat, np.int32).reshape(-1, 3) for pattern, flat in found.items() if not search.gave_up(pattern)}


def _search_rows(store: BlockStore, rows: list[int], likely: LikelyPatterns, search: PatternSearch, found: "dict[str, array[int]]") -> None:
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
    """Wordpieces of each match that would be right as an answer, each place once."""
    first, last = touched(wordpieces, *np.array(ranges).T)
    places = dict.fromkeys((start, end) for start, end in zip(first.tolist(), last.tolist(), strict=True) if start < end)
    return [(a, b) for a, b in places if search.begins(text[wordpieces[a, 0] : wordpieces[b - 1, 1]], pattern)]
