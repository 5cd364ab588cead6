"""The blocks that a block leads to: those of the documents that it links to, else of those whose titles occur in its text.

Nothing of this is stored: links name their targets by key, which are looked up among the documents that are live now. Memory: 16 bytes a
document, made when the first title is asked for."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import regex

from realm.documents.links import title_key
from realm.documents.store.blocks import BlockStore
from realm.documents.store.segments import LINKS
from realm.documents.store.views import Segment
from realm.text.folding import UNSPACED

LONGEST = 8
"""Words of a name."""
LONGEST_UNSPACED = 24
"""Characters of a name in a script without spaces."""
SHORTEST_UNSPACED = 3
_WORD = regex.compile(rf"(?V1)[{UNSPACED}]|[[\w]--[{UNSPACED}]]+(?:['’.&-][[\w]--[{UNSPACED}]]+)*")
_UNSPACED = regex.compile(rf"[{UNSPACED}]")
_JOINED = regex.compile(r"[ \n,.'’&():-]{1,3}")


class Mention(NamedTuple):
    """A name and where it stands: code points in the text."""

    name: str
    start: int
    end: int


def mentions(text: str, sentences: Sequence[tuple[int, int]]) -> list[list[Mention]]:
    """The names that may begin at each place of a block, in order, longest first. ``sentences`` are (start, end) of each, ascending."""
    found: list[list[Mention]] = []
    for start, end in sentences:
        words = list(_WORD.finditer(text, start, end))
        for at, word in enumerate(words):
            unspaced = _UNSPACED.match(word[0]) is not None
            if unspaced or word[0].lower() != word[0]:
                names = _unspaced_names(text, words, at) if unspaced else _names(text, words, at)
                found.append(names[::-1])
    return found


def _names(text: str, words: list[regex.Match[str]], at: int) -> list[Mention]:
    """Names of one word and more from a word with a capital on, shortest first."""
    start, names = words[at].start(), []
    explained = at == 0 and words[0][0][1:] == words[0][0][1:].lower()  # the capital is the sentence's
    for last in range(at, min(at + LONGEST, len(words))):
        if last > at and not _JOINED.fullmatch(text, words[last - 1].end(), words[last].start()):
            break
        explained = explained and (last == at or words[last][0].lower() == words[last][0])
        if not explained:
            end = words[last].end()
            ends = (end, end + 1) if text[end : end + 1] in (")", ".", "!", "?") else (end,)  # a bracket or stop may belong to the name
            names += [Mention(" ".join(text[start:end].split()), start, end) for end in ends]
    return names


def _unspaced_names(text: str, words: list[regex.Match[str]], at: int) -> list[Mention]:
    start = words[at].start()
    room = range(at, min(at + LONGEST_UNSPACED, len(words)))
    ends = [words[last].end() for last in takewhile(lambda last: last == at or words[last - 1].end() == words[last].start(), room)]
    return [Mention(text[start:end], start, end) for end in ends[SHORTEST_UNSPACED - 1 :]]


MOST_BLOCKS = 500
"""Neighbours of one block: the first block of every linked document, then the second ones, and so on."""
SAME_NAME = 50
"""Documents of one title that a link to it leads to, the first ones; paragraphs of one article may share theirs."""


class KeyedDocuments:
    """The live documents of one version of a corpus by their keys (links.py): of their ids and of their titles."""

    def __init__(self, store: BlockStore):
        self._store = store
        self._starts = np.cumsum([0, *(segment.rows for segment in store.segments)])

    def of_key(self, key: int) -> Iterator[int]:
        """First rows of the documents with a key: of their id, or of their title."""
        for start, segment in zip(self._starts.tolist(), self._store.segments, strict=False):
            yield from (start + row for row in segment.lookup.first_rows_of_key(key) if self._store.live[start + row])
        yield from self.titled(key)

    def titled(self, key: int) -> list[int]:
        """First rows of the documents with a title's key, ``SAME_NAME`` of them at most."""
        found: list[int] = []
        for start, segment in zip(self._starts.tolist(), self._store.segments, strict=False):
            keys, rows = segment.titles
            first, last = np.searchsorted(keys, np.uint64(key), "left"), np.searchsorted(keys, np.uint64(key), "right")
            found += (start + rows[first:last]).tolist()
        return [row for row in found if self._store.live[row]][:SAME_NAME]

    def are_titles(self, keys: np.ndarray) -> np.ndarray:
        """bool [n]: which keys are those of titles, of removed documents too."""
        known = np.zeros(len(keys), np.bool_)
        for segment in self._store.segments:
            titles, _ = segment.titles
            known |= titles[np.minimum(np.searchsorted(titles, keys), len(titles) - 1)] == keys if len(titles) else False
        return known

    def bounds(self, row: int) -> tuple[int, int]:
        """First row and row behind the last of the document of the block at ``row``."""
        start, segment = self.segment(row)
        starts = segment.lookup.starts
        at = int(np.searchsorted(starts, row - start, "right"))
        return start + int(starts[at - 1]), start + (int(starts[at]) if at < len(starts) else segment.rows)

    def segment(self, row: int) -> tuple[int, Segment]:
        """First row of the segment that holds a row, and the segment."""
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        return int(self._starts[number]), self._store.segments[number]


class Neighbours:
    """The edges of one version of a corpus."""

    def __init__(self, store: BlockStore):
        self._store = store
        self._documents = KeyedDocuments(store)
        self.of_row = lru_cache(maxsize=2**12)(self._of_row)

    def _of_row(self, row: int) -> np.ndarray:
        """int64 [n]: live rows that the block at ``row`` leads to, in the order of its links, none of its own document.

        A block of a document with hyperlinks leads where its own lead; any other where the titles in its text do."""
        own, _ = self._documents.bounds(row)
        documents: dict[int, np.ndarray] = {}
        for first in self._linked(row):
            if first not in documents and first != own:
                start, end = self._documents.bounds(first)
                documents[first] = start + np.flatnonzero(self._store.live[start:end])[:MOST_BLOCKS]
        return _by_turns(list(documents.values()))

    def _linked(self, row: int) -> Iterator[int]:
        """First rows of the documents that a block names."""
        start, segment = self._documents.segment(row)
        first, end = self._documents.bounds(row)
        if segment.has_elements(LINKS, first - start, end - start):
            for key in self._store.links(row).tolist():
                yield from self._documents.of_key(key)
        else:
            yield from self._titled(row)

    def _titled(self, row: int) -> Iterator[int]:
        """First rows of the documents whose titles occur in a block's text; of names that overlap the first, and of these the longest."""
        text, behind = self._store.block(row).text, 0
        places = mentions(text, [(start, end) for start, end in self._store.sentences(row).chars.tolist()])
        names = [mention for place in places for mention in place]
        known = self._documents.are_titles(np.array([title_key(mention.name) for mention in names], np.uint64))
        for mention, is_title in zip(names, known.tolist(), strict=True):
            if not is_title or mention.start < behind:
                continue
            exact = [first for first in self._documents.titled(title_key(mention.name)) if self._store.block(first).title == mention.name]
            if exact:
                behind = mention.end
                yield from exact


def _by_turns(documents: Sequence[np.ndarray]) -> np.ndarray:
    """The first row of each, then the second of each, and so on; ``MOST_BLOCKS`` of them."""
    if not documents:
        return np.empty(0, np.int64)
    turn = np.concatenate([np.arange(len(rows)) for rows in documents])
    return np.concatenate(list(documents))[np.argsort(turn, kind="stable")][:MOST_BLOCKS]
