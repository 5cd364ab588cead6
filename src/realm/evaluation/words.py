"""Where answers occur in a corpus by normalised words, the words that are scored: in one pass over the texts, for all questions at once."""

import string
from collections.abc import Callable, Iterable, Sequence as SequenceOf
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from realm.documents.store.blocks import BlockStore
from realm.evaluation.places import NO_SPAN, PORTION, InvertedList, Spans, characters_of_wordpieces, touched
from realm.models.types import Question
from realm.progress import Advance
from realm.text.matching.answers import JOINING, JOINTS, Range, answer_forms, place_range, token_parts, token_words
from realm.text.words import UNSPACED, by_characters, word_ranges

Needle = tuple[str, ...]
_PUNCTUATION = frozenset(string.punctuation)


def locate_words(store: BlockStore, questions: SequenceOf[Question], counting: Advance = lambda done, total: None) -> list[Spans]:
    """The places of the string answers of many questions: what a row says in the words of an answer, however it spells them.

    They are those that ``text.answers.normalised_ranges`` finds row by row, and of each the wordpieces that it touches. The words of
    ``PORTION`` blocks are held at a time, about 60 bytes each: of what stands between white space first, then of its parts.
    """
    wanted = [answer_forms(question.answers) for question in questions]
    tables: dict[Needle, list[np.ndarray]] = {needle: [] for found in wanted for needle in found}
    for first in range(0, len(store), PORTION):
        if first:
            counting(first, len(store))
        rows = range(first, min(first + PORTION, len(store)))
        for needle, table in zip(tables, _located(store, rows, list(tables)), strict=True):
            tables[needle].append(table)
    return [Spans.union([table for needle in found for table in tables[needle]]) for found in wanted]


def _located(store: BlockStore, rows: range, needles: list[Needle]) -> list[np.ndarray]:
    """The places of each needle in some rows: int32 [n, 3], row, start and end of body wordpieces."""
    texts = _parted(pa.concat_arrays(store.texts(rows.start, rows.stop)))
    either = zip(_located_in(store, rows, _whole(texts), needles), _located_in(store, rows, _parts(texts), needles), strict=True)
    return [np.concatenate(found) for found in either]


def _located_in(store: BlockStore, rows: range, tokens: "_Tokens", needles: list[Needle]) -> list[np.ndarray]:
    """The places of each needle that begin and end with one of these tokens."""
    words = _Words.of(tokens, needles)
    found = [words.places(needle) for needle in needles]
    places = np.concatenate([np.empty((0, 3), np.int64), *found])
    spans = _Bodies.of(store, rows, tokens).spans(places)
    table = np.column_stack([places[:, 0] + rows.start, spans]).astype(np.int32)
    return np.split(table, np.cumsum([len(one) for one in found])[:-1]) if found else []


def _whole(texts: pa.Array) -> "_Tokens":
    """What stands between white space."""
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
    """What n texts are made of: words, as ``word_ranges`` counts them, or their parts.

    Attributes:
        distinct: the tokens, each once.
        codes: int64 [t], which of them each token is, text after text.
        starts: int64 [n + 1]: the tokens of text i are ``codes[starts[i]:starts[i + 1]]``.
        ranges: the same tokens of one text, as (start, end) of its characters.
        joints: int64 [t + 1], before each token the number of joining marks among the tokens; None where they are not cut off.
    """

    distinct: list[str]
    codes: np.ndarray
    starts: np.ndarray
    ranges: Callable[[str], list[Range]]
    joints: np.ndarray | None = None

    @classmethod
    def of(cls, texts: pa.Array, ranges: Callable[[str], list[Range]]) -> "_Tokens":
        """Of texts in which white space stands between any two."""
        lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts))
        coded = lists.flatten().dictionary_encode()
        starts = np.concatenate([[0], np.cumsum(np.asarray(pc.list_value_length(lists)), dtype=np.int64)])
        return cls(coded.dictionary.to_pylist(), np.asarray(coded.indices).astype(np.int64), starts, ranges)

    def together(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """bool: whether an answer may go from a first to a last token, counted over all texts."""
        return np.ones(len(first), np.bool_) if self.joints is None else np.asarray(self.joints[first] == self.joints[last])

    def spread(self, values: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What each distinct token has, ``values[starts[i]:starts[i + 1]]``, for all tokens [v], and where that of each begins [t + 1]."""
        first = starts[self.codes]
        counts = starts[self.codes + 1] - first
        begins = np.concatenate([[0], np.cumsum(counts)])
        return values[np.arange(begins[-1]) + np.repeat(first - begins[:-1], counts)], begins


def _parted(texts: pa.Array) -> pa.Array:
    """The texts with spaces around each word of those that are read by characters; most corpora have none, which one search says."""
    held = np.flatnonzero(pc.match_substring_regex(texts, f"[{UNSPACED}]"))
    others = {at: text for at in held.tolist() if by_characters(text := texts[at].as_py())}
    if not others:
        return texts
    parted = [" ".join(text[start:end] for start, end in word_ranges(text)) for text in others.values()]
    mask = np.isin(np.arange(len(texts)), list(others))
    return pc.replace_with_mask(texts, mask, pa.array(parted, texts.type))


@dataclass(frozen=True)
class _Words:
    """The normalised words of n texts.

    Attributes:
        tokens: that they come from.
        numbers: of the words that some needle has.
        index: all words by their numbers, text after text; a word of no needle has the number behind the last.
        owners: int64 [w], the token that each word comes from, counted over all texts.
    """

    tokens: _Tokens
    numbers: dict[str, int]
    index: InvertedList
    owners: np.ndarray

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
        """int64 [n, 3]: text, and first and last token, counted over all texts, of every place whose words are the needle's."""
        texts, at = self.index.occurrences([self.numbers[word] for word in needle])
        first, last = self.owners[at], self.owners[at + len(needle) - 1]
        return np.column_stack([texts, first, last])[self.tokens.together(first, last)]


@dataclass(frozen=True)
class _Bodies:
    """The wordpieces of some rows, by the tokens that they come from.

    Attributes:
        tokens: of the rows' texts.
        pieces: what the tokenizer makes of one token after the other, uint32 [p].
        begins: int64 [t + 1]: ``pieces[begins[i]:begins[i + 1]]`` are those of token i.
        alike: bool [n], whether these are the wordpieces of the row's body; where they are not, characters tell.
    """

    store: BlockStore
    rows: range
    tokens: _Tokens
    pieces: np.ndarray
    begins: np.ndarray
    alike: np.ndarray

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
        """The wordpieces that are nothing but ASCII punctuation."""
        tokenizer = self.store.tokenizer
        texts = {number: tokenizer.decode([number]).strip() for number in np.unique(self.pieces).tolist()}
        return [number for number, text in texts.items() if text and _PUNCTUATION.issuperset(text)]

    def _by_characters(self, row: int, tokens: np.ndarray) -> np.ndarray:
        """The wordpieces that (first, last) tokens of one row touch, int64 [n, 2]."""
        text = self.store.block(row).text
        ranges = self.tokens.ranges(text)
        begins, ends = np.array([place_range(text, ranges, first, last) for first, last in tokens.tolist()]).T
        wordpieces = characters_of_wordpieces(self.store, {row: text})[0]
        return np.column_stack(touched(wordpieces, begins, ends))
