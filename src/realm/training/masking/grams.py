"""All words of a corpus in arrays, document by document, and the runs of words that several documents have.

Words are compared by their letters, whatever their case and wordpieces; punctuation is a word without letters. In scripts without spaces
each wordpiece is a word. A run of n words is in two documents only if both its runs of n - 1 words are, so little is left beyond three."""

from collections.abc import Sequence as SequenceOf
from dataclasses import astuple, dataclass

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.recipe.seeds import GOLDEN, mixed
from realm.text.tokenizer import TextTokenizer
from realm.text.wordpieces import FIRST_UNSPACED, bare_entry, word_table
from realm.text.words import has_characters

TOO_COMMON = 200
"""A span in more blocks than this says nothing about what a block states."""


@dataclass(frozen=True)
class CorpusWords:
    """Words of the live rows of one corpus or two, ordered by document; w words in s sentences of r rows.

    ``hashes`` uint64 [w], ``letters`` and ``spaced`` bool [w], ``pieces`` int64 [w + 1] (first wordpieces, counted through all rows),
    ``sentence`` int32 [w]; ``begins`` and ``ends`` int64 [s] in wordpieces, ``texts`` uint64 [s], ``row`` and ``document`` int32 [s],
    ascending by document, rows of the second corpus behind the first's; ``first_sentence`` int64 [r], -1 for rows that are not live."""

    hashes: np.ndarray
    letters: np.ndarray
    spaced: np.ndarray
    pieces: np.ndarray
    sentence: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    texts: np.ndarray
    row: np.ndarray
    document: np.ndarray
    first_sentence: np.ndarray


_Columns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def corpus_words(stores: SequenceOf[BlockStore]) -> CorpusWords:
    """The words of one corpus, or of two with the same wordpieces."""
    rows, documents = _rows_by_document(stores)
    starts = np.cumsum([0, *map(len, stores)])
    bodies, tables, texts = [np.empty(0, np.uint16)], [np.empty((0, 2), np.int64)], [np.empty(0, np.uint64)]
    pieces = sentences = 0
    first_sentence = np.full(int(starts[-1]), -1, np.int64)
    for row, corpus in zip(rows.tolist(), (np.searchsorted(starts, rows, side="right") - 1).tolist(), strict=True):
        store, local = stores[corpus], row - int(starts[corpus])
        table = store.sentences(local)
        first_sentence[row] = sentences
        bodies.append(store.token_ids(local))
        tables.append(table.tokens + np.int64(pieces))
        texts.append(table.hashes)
        pieces, sentences = pieces + len(bodies[-1]), sentences + len(table.tokens)
    counts = np.array([len(table) for table in tables[1:]], np.int64)
    places = np.concatenate(tables)
    words = _words(_Pieces.of(stores[0].tokenizer), np.concatenate(bodies), places[:, 0])
    of_row, of_document = np.repeat(rows, counts).astype(np.int32), np.repeat(documents, counts)
    return CorpusWords(*words, places[:, 0], places[:, 1], np.concatenate(texts), of_row, of_document, first_sentence)


def _words(vocabulary: "_Pieces", ids: np.ndarray, begins: np.ndarray) -> _Columns:
    """The first five columns of ``CorpusWords``, of wordpieces [t] whose sentences begin at ``begins`` [s]."""
    cuts = vocabulary.starts[ids]
    cuts[begins[begins < len(ids)]] = True  # a sentence may begin in the middle of a word that was cut
    cuts[:1] = True
    firsts = np.flatnonzero(cuts)
    pieces = np.append(firsts, len(ids))
    if not len(ids):
        return np.empty(0, np.uint64), cuts, cuts, pieces, firsts.astype(np.int32)
    hashes, letters = vocabulary.hash(ids, pieces), np.logical_or.reduceat(vocabulary.letters[ids], firsts)
    unknown = np.flatnonzero(np.isin(ids[firsts], vocabulary.special))
    hashes[unknown], letters[unknown] = unknown, False  # nobody knows whether two unknown words are the same
    sentence = np.searchsorted(begins, firsts, side="right") - 1
    return hashes, letters, vocabulary.spaced[ids[firsts]], pieces, sentence.astype(np.int32)


def _rows_by_document(stores: SequenceOf[BlockStore]) -> tuple[np.ndarray, np.ndarray]:
    """Live rows of all corpora, those of a document together, and the number of each one's document."""
    numbers: dict[str, int] = {}
    rows: list[int] = []
    documents: list[int] = []
    start = 0
    for store in stores:
        live = np.flatnonzero(store.live).tolist()
        rows += [start + row for row in live]
        documents += [numbers.setdefault(store.doc_id(row), len(numbers)) for row in live]
        start += len(store)
    order = np.argsort(documents, kind="stable")
    return np.array(rows, np.int64)[order], np.array(documents, np.int32)[order]


@dataclass(frozen=True)
class _Pieces:
    """Word start, letters, spaced script, hash and weight of every id of a vocabulary, and the ids that spell nothing."""

    starts: np.ndarray
    letters: np.ndarray
    spaced: np.ndarray
    hashes: np.ndarray
    weights: np.ndarray
    special: np.ndarray

    @classmethod
    def of(cls, tokenizer: TextTokenizer) -> "_Pieces":
        words = word_table(tokenizer)
        hashes, weights, spaced = [], [], []
        for number in range(len(words.starts)):
            text = bare_entry(tokenizer, number).lower()
            value, weight = 0, 1
            for character in text:
                value = (value * GOLDEN + ord(character) + 1) % 2**64
                weight = weight * GOLDEN % 2**64
            hashes.append(value)
            weights.append(weight)
            spaced.append(not text or not (max(map(ord, text)) >= FIRST_UNSPACED or (tokenizer.cuts_characters and has_characters(text))))
        special = np.array(astuple(tokenizer.special))
        return cls(words.starts, words.letters, np.array(spaced), np.array(hashes, np.uint64), np.array(weights, np.uint64), special)

    def hash(self, ids: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """uint64 [w]: of each word between two bounds, equal however its letters were cut into wordpieces."""
        firsts, lengths = bounds[:-1], np.diff(bounds)
        values = self.hashes[ids[firsts]]
        longer = np.flatnonzero(lengths > 1)
        at = 1
        while len(longer):
            piece = ids[firsts[longer] + at]
            values[longer] = values[longer] * self.weights[piece] + self.hashes[piece]
            at += 1
            longer = longer[lengths[longer] > at]
        return mixed(values)


STOP_SHARE, STOP_LEAST = 0.04, 20
"""A word in more than this share of all blocks, and in more blocks than this number, is a stopword."""
COMMON_SHARE, COMMON_LEAST = 0.01, 20
"""A run in more than this share of all documents, and in more of them than this number, says nothing about any of them."""


@dataclass(frozen=True)
class Grams:
    """Runs of words that recur, and their m places, ordered by ``first`` and length.

    ``gram`` int32 [m], the run's number; ``first``, ``stop`` int64 [m], words; ``reach`` int64 [w], end of the longest run that begins at a
    word, else 0; ``edges`` bool [w], words that a run may begin or end with; ``grams``: number of runs."""

    gram: np.ndarray
    first: np.ndarray
    stop: np.ndarray
    reach: np.ndarray
    edges: np.ndarray
    grams: int


def recurring_grams(words: CorpusWords, knowledge: int, most: int) -> Grams:
    """Runs of whole words in two documents or more, at most ``most`` wordpieces long.

    A run stands in one sentence, begins and ends with a word that says something, and is in few enough documents. Where sentences and
    knowledge are two corpora, both must hold it; ``knowledge``: rows of the latter."""
    of_word = words.sentence
    document, row = words.document[of_word], words.row[of_word]
    known = row < knowledge
    both = bool(len(known)) and not known.all()
    blocks, documents = _distinct(row[known]), _distinct(document[known])
    limit = min(TOO_COMMON, max(COMMON_LEAST, int(COMMON_SHARE * documents)))
    places, hashes = np.arange(len(of_word)), words.hashes.copy()
    reach = np.zeros(len(of_word), np.int64)
    edges = telling = np.zeros(0, bool)
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    grams = 0
    for length in range(1, most + 1):
        if length > 1:
            places, hashes = _longer(words, places, hashes, length)
        short = words.pieces[places + length] - words.pieces[places] <= most
        places, hashes = places[short], hashes[short]
        if not len(places):
            break
        order = np.argsort(hashes, kind="stable")  # stable: within a run, by document
        ordered = hashes[order]
        run = np.cumsum(np.append(False, ordered[1:] != ordered[:-1]))
        at = places[order]
        in_documents = _count(run, document[at], known[at])
        alive = _count(run, document[at], np.ones(len(at), bool)) >= 2
        if both:
            alive &= (in_documents >= 1) & (np.bincount(run[~known[at]], minlength=len(alive)) > 0)
        if length == 1:
            frequent = _count(run, row[at], known[at]) > max(STOP_LEAST, STOP_SHARE * blocks)
            stopword = np.zeros(len(of_word), bool)
            stopword[at] = frequent[run]
            edges = words.letters & ~(stopword & words.spaced)
            telling = np.cumsum(np.append(0, words.letters & ~stopword))
        last = at + length - 1
        usable = alive[run] & (in_documents[run] <= limit) & edges[at] & edges[last] & (telling[last + 1] > telling[at])
        usable &= (length > 1) | words.spaced[at]  # where every character counts as a word, one of them says little
        numbers = np.cumsum(np.bincount(run[usable], minlength=len(alive)) > 0)
        found.append(((grams + numbers[run[usable]] - 1).astype(np.int32), at[usable], np.full(int(usable.sum()), length)))
        reach[at[usable]] = last[usable] + 1
        grams += int(numbers[-1])
        going_on = np.sort(order[alive[run]])
        places, hashes = places[going_on], hashes[going_on]
    gram, first, lengths = (
        (np.concatenate([np.empty(0, np.int64), *parts]) for parts in zip(*found, strict=True)) if found else [np.empty(0, np.int64)] * 3
    )
    order = np.lexsort((lengths, first))
    return Grams(gram[order].astype(np.int32), first[order], (first + lengths)[order], reach, edges, grams)


def _longer(words: CorpusWords, places: np.ndarray, hashes: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Places where the next word's run of length - 1 words recurs, too, with the hash of the whole."""
    recurs = np.zeros(len(words.hashes) + 1, bool)
    recurs[places] = True
    here = recurs[places + 1]
    places, hashes = places[here], hashes[here]
    last = places + length - 1
    whole = (last < len(words.hashes)) & (words.sentence[np.minimum(last, len(words.hashes) - 1)] == words.sentence[places])
    return places[whole], hashes[whole] * np.uint64(GOLDEN) + words.hashes[last[whole]]


def _count(run: np.ndarray, of: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Number of different values of ``of`` at each run's places where ``where`` is True; ordered by run, then ``of``."""
    runs, values = run[where], of[where]
    fresh = np.ones(len(runs), bool)
    fresh[1:] = (runs[1:] != runs[:-1]) | (values[1:] != values[:-1])
    return np.bincount(runs[fresh], minlength=int(run[-1]) + 1)


def _distinct(values: np.ndarray) -> int:
    return len(np.unique(values))
