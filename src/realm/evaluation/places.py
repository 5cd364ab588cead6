"""Places of answers as wordpieces of blocks."""

from collections.abc import Iterator, Mapping, Sequence as SequenceOf
from functools import cached_property

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.models.types import Question

NO_SPAN = (-1, -1)  # a row with an answer of which no wordpieces can be marked
Span = tuple[int, int]


class Spans(Mapping[int, list[Span]]):
    """Row -> (start, end) wordpieces of its body that are an answer; none for an answer that ends inside wordpieces.

    >>> Spans(np.array([[3, 1, 2], [3, 5, 7]], np.int32))[3]
    [(1, 2), (5, 7)]

    ``table`` is int32 [n, 3] of row, start and end, ascending, each once; start and end are ``NO_SPAN`` in a row with nothing to mark.
    """

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
