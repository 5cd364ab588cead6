"""Blocks that help to fill a sentence: they hold its hidden words, and another of its spans besides.

Partners share salient spans. Evidence shares runs of words: the second run is what such a block can be found by. It stands apart from the
first, since the rest of a set phrase says nothing of what a block is about, and both are so rare that they hardly meet by chance."""

from collections.abc import Iterator, Sequence as SequenceOf

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.models.types import MaskedQuery
from realm.training.masking.grams import TOO_COMMON, CorpusWords, Grams


class Partners:
    """Inverted list from salient spans to the live rows that hold them; a sentence's partners state its fact in other words."""

    def __init__(self, store: BlockStore):
        found: dict[tuple[int, ...], set[int]] = {}
        for row in np.flatnonzero(store.live).tolist():
            body = store.token_ids(row).tolist()
            for start, end in store.spans(row).tokens.tolist():
                found.setdefault(tuple(body[start:end]), set()).add(row)
        self._rows = found

    def rows(self, hidden: SequenceOf[int], others: SequenceOf[SequenceOf[int]], excluded: set[int]) -> list[int]:
        """Rows outside ``excluded`` that hold the hidden span and at least one of the other spans of its sentence, ascending."""
        having = self._rows.get(tuple(hidden), set())
        if not 0 < len(having) <= TOO_COMMON:
            return []
        beside: set[int] = set()
        for span in others:
            rows = self._rows.get(tuple(span), set())
            if len(rows) <= TOO_COMMON and tuple(span) != tuple(hidden):
                beside |= rows
        return sorted((having & beside) - excluded)


PAIRS_AT_ONCE = 4_000_000
"""Places of runs times blocks that hold them, looked at in one go: what bounds the memory."""
CHANCE, CHANCE_LEAST = 0.02, 25
"""Runs in a and b of n blocks meet in a b / n by chance: more than CHANCE, or CHANCE_LEAST in small corpora, says nothing."""
SPREAD, NONE = 2**20, 2**20
"""More than the wordpieces of a sentence, and than the blocks that hold a run."""


class Evidence:
    """Recurring runs of every sentence, the blocks that hold them, and which of those are evidence: never of its own document or copies.

    Over ``words`` and ``grams`` of the knowledge corpus (its first ``knowledge`` rows) and the sentences'; a query holds ``shown``
    wordpieces.

    ``sentence`` int64 [m], ascending, of each place of a run; ``start``, ``end`` int32 [m], wordpieces from the sentence's first;
    ``maximal`` bool [m], inside of no longer place; ``chance`` float [m], chance evidence as a share of what is allowed, inf without."""

    def __init__(self, words: CorpusWords, grams: Grams, sentences: BlockStore, knowledge: int, shown: int):
        self._store, self._knowledge = sentences, knowledge
        self._offset = 0 if len(words.first_sentence) == knowledge else knowledge
        self._first_sentence = words.first_sentence
        of_place = words.sentence[grams.first].astype(np.int64)  # searched for int64, it would be copied each time
        row = words.row[of_place]
        self._starts, self._rows = _postings(grams, row, row < knowledge)
        self._document = np.full(len(words.first_sentence), -1, np.int32)
        self._document[words.row] = words.document
        wordpieces = np.stack([words.pieces[grams.first], words.pieces[grams.stop]]) - words.begins[of_place]
        cover = np.stack(_cover(words, grams))
        asked = (row >= self._offset) & (wordpieces[1] <= shown)
        maximal = (cover[0] == grams.first) & (cover[1] == grams.stop)
        cover = words.pieces[cover] - words.begins[of_place]
        self.sentence, self._gram, self.maximal = of_place[asked], grams.gram[asked], maximal[asked]
        (self.start, self.end), (self._left, self._right) = wordpieces[:, asked].astype(np.int32), cover[:, asked].astype(np.int32)
        self._allowed = max(CHANCE_LEAST, CHANCE * len(np.unique(words.row[words.row < knowledge])))
        self._copies = _copies(words, knowledge, self._offset)
        self.chance = np.full(len(self.sentence), np.inf)
        for begin, stop in self._portions():
            place, _, chance = self._pairs(begin, stop)
            if len(place):
                firsts = np.flatnonzero(np.diff(place, prepend=-1))
                self.chance[begin + place[firsts]] = np.minimum.reduceat(chance, firsts)

    def first_sentence(self, row: int) -> int:
        """The number of the first sentence of a live row of the sentences' corpus."""
        return int(self._first_sentence[row + self._offset])

    def rows(self, query: MaskedQuery) -> list[int]:
        """Rows of the knowledge corpus that are evidence for what is hidden of a sentence, ascending; none where it is no such run."""
        sentence = self.first_sentence(int(self._store.rows_of(np.array([query.origin]))[0])) + query.sentence
        begin, stop = np.searchsorted(self.sentence, [sentence, sentence + 1])
        here = slice(begin, stop)
        hidden = (self.start[here] == query.positions[0]) & (self.end[here] == query.positions[-1] + 1)
        place, rows, _ = self._pairs(int(begin), int(stop))
        return np.unique(rows[hidden[place]]).tolist()

    def _portions(self) -> Iterator[tuple[int, int]]:
        """Places [begin, stop) of whole sentences, about ``PAIRS_AT_ONCE`` pairs with blocks at a time."""
        pairs = np.cumsum(np.diff(self._starts)[self._gram])
        borders = np.flatnonzero(np.append(np.diff(self.sentence, prepend=-1) != 0, True))  # where sentences begin, and the end
        begin = 0
        while begin < len(self.sentence):
            done = pairs[begin - 1] if begin else 0
            wanted = int(np.searchsorted(pairs, done + PAIRS_AT_ONCE, side="right"))
            fitting = borders[np.searchsorted(borders, wanted, side="right") - 1]
            stop = int(fitting if fitting > begin else borders[np.searchsorted(borders, begin, side="right")])
            yield begin, stop
            begin = stop

    def _pairs(self, begin: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places from ``begin`` to ``stop``, counted from ``begin`` and ascending, each block that is evidence, and ``chance``."""
        gram, sentence = self._gram[begin:stop], self.sentence[begin:stop]
        counts = self._starts[gram + 1] - self._starts[gram]
        place = np.repeat(np.arange(len(gram)), counts)
        rows = self._rows[np.arange(len(place)) + np.repeat(self._starts[gram] - np.cumsum(counts) + counts, counts)]
        allowed = ~np.isin(self._key(sentence[place], self._document[rows]), self._copies_of(sentence))
        place, rows = place[allowed], rows[allowed]
        if not len(place):
            return place, rows, np.empty(0)
        group, shared = _groups(sentence[place].astype(np.int64) * self._knowledge + rows)
        place, rows = place[shared], rows[shared]
        start, end, left, right = (values[begin:stop][place] for values in (self.start, self.end, self._left, self._right))
        held = counts[place]
        beside = np.minimum(_least_before(group, end, held, left), _least_before(group, -start, held, -right))
        chance = held * beside / self._allowed
        telling = chance <= 1
        return place[telling], rows[telling], chance[telling]

    def _key(self, sentence: np.ndarray, document: np.ndarray) -> np.ndarray:
        return sentence.astype(np.int64) * (int(self._document.max()) + 1) + document

    def _copies_of(self, sentence: np.ndarray) -> np.ndarray:
        """Keys of the documents that the sentences, ascending, must not be given."""
        begin, stop = np.searchsorted(self._copies[0], sentence[[0, -1]] + [0, 1]) if len(sentence) else (0, 0)
        return self._key(*self._copies[:, begin:stop])


def _groups(together: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Entries that share their value with another one, and the numbers of those values, from 0."""
    order = np.argsort(together, kind="stable")
    fresh = np.append(True, np.diff(together[order]) != 0)
    number = np.cumsum(fresh) - 1
    many = (np.bincount(number) > 1)[number]
    shared = np.sort(order[many])
    group = np.empty(len(together), np.int64)
    group[order] = number
    return group[shared], shared


def _least_before(group: np.ndarray, end: np.ndarray, value: np.ndarray, border: np.ndarray) -> np.ndarray:
    """Least value of each entry's group among those that end at its border or before; ``NONE`` where there is none."""
    order = np.lexsort((end, group))
    keys, wanted = (group * SPREAD + at for at in (end, border))
    least = np.minimum.accumulate(value[order] - group[order] * NONE) if len(order) else value
    at = np.searchsorted(keys[order], wanted, side="right") - 1
    found = (at >= 0) & (group[order][at] == group)
    return np.where(found, least[at] + group * NONE, NONE)


def _postings(grams: Grams, row: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Starts of the rows of each run, int64 [runs + 1], and the rows of the knowledge corpus that hold it, each once."""
    gram, rows = grams.gram[known], row[known]
    order = np.lexsort((rows, gram))
    gram, rows = gram[order], rows[order]
    fresh = np.ones(len(gram), bool)
    fresh[1:] = (gram[1:] != gram[:-1]) | (rows[1:] != rows[:-1])
    return np.append(0, np.cumsum(np.bincount(gram[fresh], minlength=grams.grams))), rows[fresh]


def _cover(words: CorpusWords, grams: Grams) -> tuple[np.ndarray, np.ndarray]:
    """Words from the first to behind the last of all recurring runs that hold a place whole, by place."""
    left, right = grams.first.copy(), np.maximum(grams.stop, grams.reach[grams.first])
    longest = int((grams.stop - grams.first).max(initial=0))
    for back in range(1, longest):
        at = np.maximum(grams.first - back, 0)
        holds = grams.reach[at] >= grams.stop  # a run ends with its sentence: one that reaches so far began in the same
        left[holds], right[holds] = at[holds], np.maximum(right[holds], grams.reach[at[holds]])
    return left, right


def _copies(words: CorpusWords, knowledge: int, offset: int) -> np.ndarray:
    """int64 [2, n]: each sentence asked about with its own document and those that hold it verbatim, in this order.

    A sentence in too many documents is given none: it is a heading or a formula."""
    known, asked = np.flatnonzero(words.row < knowledge), np.flatnonzero(words.row >= offset)
    order = known[np.argsort(words.texts[known], kind="stable")]
    texts = words.texts[order]
    low, high = np.searchsorted(texts, words.texts[asked]), np.searchsorted(texts, words.texts[asked], side="right")
    counts = np.where(high - low <= TOO_COMMON, high - low, 0)
    others = order[np.arange(counts.sum()) + np.repeat(low - np.cumsum(counts) + counts, counts)]
    pairs = np.concatenate([[asked, words.document[asked]], [np.repeat(asked, counts), words.document[others]]], 1)
    return np.unique(pairs, axis=1).astype(np.int64)
