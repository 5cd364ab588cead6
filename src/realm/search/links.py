"""The blocks that a block leads to: those of the documents that it links to, else of those whose titles occur in its text; and answers that
are one link away: from the blocks found for a question to the blocks they link to.

Nothing of this is stored: links name their targets by key, which are looked up among the documents that are live now. Memory: 16 bytes a
document, made when the first title is asked for.

A path is a block z1 found for the question x and a neighbour z2. Its score is s(x, z1) + s(x + z1, z2), where x + z1 is the question
followed by the title of z1 and its sentence with most words of the question. The reader reads z2 with x + z1, too, which names its subject.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import regex

from realm.documents.links import title_key
from realm.documents.store.blocks import BlockStore
from realm.documents.store.segments import LINKS
from realm.documents.store.views import Segment
from realm.search.blocks import NO_ROW, BlockInputs
from realm.search.publishing.snapshot import Snapshot
from realm.text.folding import UNSPACED
from realm.text.words import words

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


LINK_SOURCES = 20  # best blocks of a question whose links are followed
MAX_REACHED = 100  # blocks reached from one question, on the best paths

Embed = Callable[[Sequence[Sequence[int]]], np.ndarray]  # wordpieces of b texts -> their embeddings [b, d] as questions


@dataclass(frozen=True)
class Reached:
    """Blocks that links lead to from the first blocks of one question, best path first."""

    rows: np.ndarray  # int64 [n], no two alike
    via: np.ndarray  # int64 [n], row of z1 on the best path to each
    scores: np.ndarray  # float32 [n], s(x, z1) + s(x + z1, z2)


class LinkedPages:
    """Links over one generation of an index, whose snapshot has the embeddings; blocks ``exclude`` int64 [m] are not reached."""

    def __init__(self, inputs: BlockInputs, snapshot: Snapshot, exclude: np.ndarray | None = None):
        self.inputs, self.snapshot = inputs, snapshot
        self._exclude = np.empty(0, np.int64) if exclude is None else exclude
        self._neighbours = Neighbours(inputs.store)

    def follow(
        self, texts: Sequence[str], questions: Sequence[Sequence[int]], rows: np.ndarray, scores: np.ndarray, embed: Embed
    ) -> list[Reached]:
        """Blocks reached from each of b questions, given as texts and as wordpieces; ``embed`` is called once.

        ``rows`` int64 [b, f] are the blocks z1 of each, NO_ROW if missing, with ``scores`` float [b, f], s(x, z1)."""
        starts = [(i, int(row), float(score)) for i in range(len(texts)) for row, score in zip(rows[i], scores[i], strict=True) if row >= 0]
        ends = [self.ends(row) for _, row, _ in starts]
        led = [at for at, (found, _) in enumerate(ends) if len(found)]  # a block that leads nowhere needs no embedding
        if not led:
            return [_best([]) for _ in texts]
        queries = embed([self.extended(texts[starts[at][0]], questions[starts[at][0]], starts[at][1]) for at in led])
        paths: list[list[tuple[np.ndarray, np.ndarray, int]]] = [[] for _ in texts]
        for at, query in zip(led, queries, strict=True):
            i, row, score = starts[at]
            found, places = ends[at]
            paths[i].append((found, score + np.asarray(self.snapshot.vectors[places], np.float32) @ query, row))
        return [_best(one) for one in paths]

    def ends(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the blocks that the block at ``row`` links to, and their places among the embeddings, both int64 [n]."""
        found = self._neighbours.of_row(row)
        ids, known = self.inputs.store.block_ids[found], self.snapshot.block_ids
        places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        here = (known[places] == ids) & ~np.isin(ids, self._exclude)
        return found[here], places[here]

    def extended(self, text: str, question: Sequence[int], row: int) -> list[int]:
        """Wordpieces of x + z1, not cut to a question's length; of x alone if ``row``, that of z1, is NO_ROW."""
        if row == NO_ROW:
            return list(question)
        store = self.inputs.store
        table, block, asked = store.sentences(row), store.block(row), set(words(text))
        shared = [len(asked.intersection(words(block.text[start:end]))) for start, end in table.chars.tolist()]
        if not shared:
            return [*question, *store.title_ids(row).tolist()]
        start, end = table.tokens[int(np.argmax(shared))].tolist()
        return [*question, *store.title_ids(row).tolist(), *store.token_ids(row)[start:end].tolist()]


def _best(paths: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> Reached:
    """The best path to each block, of these the best ``MAX_REACHED``, from ``paths``: of each z1 its ends, scores and row."""
    if not paths:
        return Reached(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    rows = np.concatenate([found for found, _, _ in paths])
    scores = np.concatenate([values for _, values, _ in paths]).astype(np.float32)
    via = np.repeat([row for _, _, row in paths], [len(found) for found, _, _ in paths])
    order = np.argsort(-scores, kind="stable")
    _, first = np.unique(rows[order], return_index=True)
    kept = order[np.sort(first)[:MAX_REACHED]]
    return Reached(rows[kept], via[kept], scores[kept])


def merged(rows: np.ndarray, scores: np.ndarray, reached: Reached, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The k candidates of one question, its own blocks and linked ones taking turns, each block once.

    Its own are ``rows`` int64 [f], best first, NO_ROW at the end, with ``scores`` float [f]; a linked block has the mean score of its path,
    comparable with s(x, z). Returns rows int64 [k], NO_ROW at the end; scores float32 [k], 0 there; the row of z1 int64 [k], NO_ROW for own
    blocks."""
    found = [(int(row), float(score), NO_ROW) for row, score in zip(rows, scores, strict=True) if row >= 0]
    linked = zip(reached.rows.tolist(), (reached.scores / 2).tolist(), reached.via.tolist(), strict=True)
    chosen: dict[int, tuple[float, int]] = {}
    own, others = iter(found), iter(linked)
    turns = [own, others]
    while turns and len(chosen) < k:
        turn = turns.pop(0)
        fresh = next((one for one in turn if one[0] not in chosen), None)
        if fresh is not None:
            chosen[fresh[0]] = fresh[1:]
            turns.append(turn)
    out = np.full(k, NO_ROW, np.int64), np.zeros(k, np.float32), np.full(k, NO_ROW, np.int64)
    for at, (row, (score, via)) in enumerate(chosen.items()):
        out[0][at], out[1][at], out[2][at] = row, score, via
    return out
