"""Runs of words that several documents of a corpus have, found by counting all runs of one length after another.

A run of n words is in two documents only if both runs of n - 1 words in it are, so that little is left to be counted beyond three words.
"""

from dataclasses import dataclass

import numpy as np

from realm.data.held_out import GOLDEN
from realm.data.masking.corpus_words import CorpusWords
from realm.data.masking.partners import TOO_COMMON

STOP_SHARE, STOP_LEAST = 0.04, 20
"""A word in more than this share of all blocks, and in more blocks than this number, is a stopword."""
COMMON_SHARE, COMMON_LEAST = 0.01, 20
"""A run in more than this share of all documents, and in more of them than this number, says nothing about any of them."""


@dataclass(frozen=True)
class Grams:
    """The runs of words that recur, and every place where one stands; m places in the order of ``first`` and length.

    Attributes:
        gram: int32 [m], the number of the run; equal runs have one number.
        first: int64 [m], the word at which the place begins.
        stop: int64 [m], the word behind it.
        reach: int64 [w], of every word the end of the longest run that begins there, 0 where none does.
        edges: bool [w], words that a run may begin or end with: no punctuation, no stopwords.
        grams: how many runs there are.
    """

    gram: np.ndarray
    first: np.ndarray
    stop: np.ndarray
    reach: np.ndarray
    edges: np.ndarray
    grams: int


def recurring_grams(words: CorpusWords, knowledge: int, most: int) -> Grams:
    """The runs of whole words that stand in two documents or more.

    A run stands in one sentence, begins and ends with a word that says something, and is in few enough documents to tell something of
    them. Where sentences and knowledge are two corpora, both must hold it.

    Args:
        words: of the knowledge corpus, and of the sentences behind it where they are another corpus.
        knowledge: rows of the knowledge corpus.
        most: longest run in wordpieces.
    """
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
    gram, first, lengths = (np.concatenate([np.empty(0, np.int64), *parts]) for parts in zip(*found, strict=True)) if found else _nothing()
    order = np.lexsort((lengths, first))
    return Grams(gram[order].astype(np.int32), first[order], (first + lengths)[order], reach, edges, grams)


def _longer(words: CorpusWords, places: np.ndarray, hashes: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the places where a run of length - 1 words recurs, those where the next word's run does too; with the hash of the whole."""
    recurs = np.zeros(len(words.hashes) + 1, bool)
    recurs[places] = True
    here = recurs[places + 1]
    places, hashes = places[here], hashes[here]
    last = places + length - 1
    whole = (last < len(words.hashes)) & (words.sentence[np.minimum(last, len(words.hashes) - 1)] == words.sentence[places])
    return places[whole], hashes[whole] * np.uint64(GOLDEN) + words.hashes[last[whole]]


def _count(run: np.ndarray, of: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Of each run, how many different values of ``of`` its places have where ``where`` is True; both are ordered by run and then ``of``."""
    runs, values = run[where], of[where]
    fresh = np.ones(len(runs), bool)
    fresh[1:] = (runs[1:] != runs[:-1]) | (values[1:] != values[:-1])
    return np.bincount(runs[fresh], minlength=int(run[-1]) + 1)


def _distinct(values: np.ndarray) -> int:
    return len(np.unique(values))


def _nothing() -> tuple[np.ndarray, ...]:
    return tuple(np.empty(0, np.int64) for _ in range(3))
