"""Where the answers of one question stand in a corpus, kept in one array: an answer such as "2" stands in a corpus millions of times."""

from collections.abc import Iterator, Mapping, Sequence as SequenceOf
from functools import cached_property

import numpy as np

NO_SPAN = (-1, -1)
"""Stands for a row that holds an answer of which no wordpieces can be marked."""
Span = tuple[int, int]


class Spans(Mapping[int, list[Span]]):
    """Row -> (start, end) wordpieces of its body that are an answer. A row without any holds an answer that ends inside of wordpieces.

    Args:
        table: int32 [n, 3] of row, start and end, ascending, each once; start and end are ``NO_SPAN`` where a row has nothing to mark.
    """

    def __init__(self, table: np.ndarray):
        self.table = table

    @classmethod
    def of(cls, places: Mapping[int, SequenceOf[Span]]) -> "Spans":
        """From rows and the spans in them, in any order."""
        return cls.union([np.array([(row, *span) for row, spans in places.items() for span in spans or [NO_SPAN]], np.int32)])

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
        """Rows, and where the places of each begin in the table, with the table's end behind the last."""
        rows, starts = np.unique(self.table[:, 0], return_index=True)
        return rows, np.append(starts, len(self.table))
