"""A walk over the records of all sources that can be taken up where an interrupted one was."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from realm.corpus.records import Record
from realm.corpus.sources import SourceOptions, iter_documents
from realm.corpus.streams import Cursor
from realm.corpus.workers import Workers


class Place(NamedTuple):
    """Where a walk is: so many records of one source are done.

    Attributes:
        source: number of the source, from 0.
        records: of it that are done.
        line, offset: of its file, behind them; 0 where the reader cannot go to a line at once.
    """

    source: int = 0
    records: int = 0
    line: int = 0
    offset: int = 0


class SourceWalk:
    """Iterates over the records of the sources, from ``start`` on: sources before it are not read, and a plain JSONL file is entered
    at the byte. Every other source is read again up to the place.

    Raises:
        DataError: a source is missing or of no known type; all are looked at before the first record is read.
    """

    def __init__(self, sources: Sequence[Path], options: SourceOptions, workers: Workers, start: Place):
        self._source, self._done = start.source, start.records
        self._cursors = [Cursor(start.line, start.offset) if number == start.source else Cursor() for number in range(len(sources))]
        pairs = zip(sources, self._cursors, strict=True)
        self._readers = [iter_documents(source, options, workers, cursor) for source, cursor in pairs]

    def __iter__(self) -> Iterator[Record]:
        for number in range(self._source, len(self._readers)):
            if number != self._source:
                self._source, self._done = number, 0
            known = 0 if self._cursors[number].offset else self._done
            for record in islice(self._readers[number], known, None):
                self._done += 1
                yield record

    @property
    def place(self) -> Place:
        """The place behind the record that was given last."""
        cursor = self._cursors[self._source] if self._cursors else Cursor()
        return Place(self._source, self._done, cursor.line, cursor.offset)
