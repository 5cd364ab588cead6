"""Places of answers as wordpieces of blocks: strings by their normalised words, regular expressions by their matches."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence as SequenceOf
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.errors import DataError
from realm.evaluation.questions.loading import QuestionFile, read_questions
from realm.models.types import Question
from realm.progress import Advance
from realm.text.matching.answers import Range, answer_forms, by_first_word, form_ranges
from realm.text.matching.patterns import PatternSearch, compiled_pattern

NO_SPAN = (-1, -1)  # a row with an answer of which no wordpieces can be marked
Span = tuple[int, int]


class Spans(Mapping[int, list[Span]]):
    """Row -> (start, end) wordpieces of its body that are an answer; none for an answer that ends inside wordpieces.

    >>> Spans(np.array([[3, 1, 2], [3, 5, 7]], np.int32))[3]
    [(1, 2), (5, 7)]

    ``table`` is int32 [n, 3] of row, start and end, ascending, each once; start and end are ``NO_SPAN`` in a row with nothing to mark."""

    def __init__(self, table: np.ndarray):
        self.table = table

    @classmethod
    def union(cls, tables: SequenceOf[np.ndarray]) -> "Spans":
        """From several tables whose rows may overlap."""
        whole = np.concatenate([np.empty((0, 3), np.int32), *(table.reshape(-1, 3) for table in tables)])
        return cls(np.unique(whole, axis=0))

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows that hold an answer, ascending, int32 [r]."""
        return self._index[0]

    def __getitem__(self, row: int) -> list[Span]:
        rows, starts = self._index
        at = int(np.searchsorted(rows, row))
        if at == len(rows) or rows[at] != row:
            raise KeyError(row)
        places = self.table[starts[at] : starts[at + 1], 1:].tolist()
        return [(start, end) for start, end in places if (start, end) != NO_SPAN]

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows.tolist())

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows, and the starts of their places in the table, with the table's end behind the last."""
        rows, starts = np.unique(self.table[:, 0], return_index=True)
        return rows, np.append(starts, len(self.table))


def answer_wordpieces(store: BlockStore, question: Question) -> list[list[int]]:
    """Wordpieces of a question's string answers; [] for regex answers, which have none."""
    if question.answer_type == "regex":
        return []
    return [ids for ids in store.tokenizer.encode(list(question.answers)) if ids]


def characters_of_wordpieces(store: BlockStore, texts: dict[int, str]) -> list[np.ndarray]:
    """int32 [t, 2] of each block: the text range of every body wordpiece, computed sentence by sentence, as in the build."""
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


def touched(wordpieces: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wordpieces [n] each, first and behind the last, touched by [n] ranges of characters; none if first is not before last."""
    return np.searchsorted(wordpieces[:, 1], begins, side="right"), np.searchsorted(wordpieces[:, 0], ends, side="left")


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
    table_of = {form: np.array(flat, np.int32) for form, flat in tables.items()}
    return [Spans.union([table_of[form] for form in found]) for found in wanted]


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
    patterns that ``search`` gave up are dropped."""
    found = {pattern: array("i") for pattern in patterns if compiled_pattern(pattern) is not None}
    rows = np.flatnonzero(store.live).tolist()

    def matches(text: str) -> dict[str, list[Range]]:
        return {pattern: ranges for pattern in found if (ranges := search.ranges(text, pattern))}

    for at in range(0, len(rows), BATCH):
        counting(at, len(rows))
        for row, text, wordpieces, hits in _found(store, rows[at : at + BATCH], matches):
            for pattern, ranges in hits.items():
                first, last = touched(wordpieces, *np.array(list(ranges)).T)
                places = dict.fromkeys((start, end) for start, end in zip(first.tolist(), last.tolist(), strict=True) if start < end)
                marked = [(a, b) for a, b in places if search.begins(text[wordpieces[a, 0] : wordpieces[b - 1, 1]], pattern)]
                found[pattern].extend(chain.from_iterable((row, start, end) for start, end in marked or [NO_SPAN]))
    counting(len(rows), len(rows))
    return {pattern: np.array(flat, np.int32).reshape(-1, 3) for pattern, flat in found.items() if not search.gave_up(pattern)}


def require_readable(path: Path, store: BlockStore, file: QuestionFile | None = None) -> None:
    """Require an answer of every question that fits into a block. Raises DataError, with file and line of the first without one."""
    room = store.manifest.block_length - 3
    file = file or read_questions(path)
    for question, line in zip(file.questions, file.lines, strict=True):
        sizes = [len(ids) for ids in answer_wordpieces(store, question)]
        if sizes and min(sizes) > room:
            problem = f"the answer of '{question.id}' has {min(sizes)} wordpieces, a block holds {room}"
            raise DataError(problem, path=path, line=line, cure="Shorten the answer, or build with longer blocks.")
