"""Entries of a vocabulary: those that begin a word, those with letters or digits."""

from dataclasses import dataclass

import numpy as np

from realm.text.tokenizer import TextTokenizer

MAX_TITLE_LENGTH = 32
"""Wordpieces of a title that a reader of titles reads."""
CONTINUES = "##"
BEGINS = ("▁", "Ġ")
FIRST_UNSPACED = 0x2E80
"""From here on, Unicode has the scripts of East Asia, which put no space between words: each of their pieces counts as a word."""


@dataclass(frozen=True)
class WordTable:
    """Of every id of a vocabulary, bool [v]: whether it begins a word, whether it has a letter or a digit."""

    starts: np.ndarray
    letters: np.ndarray


def word_table(tokenizer: TextTokenizer) -> WordTable:
    """Read off the marks that tokenizers put on their entries: ``##`` before what continues a word (BERT), ``▁`` or ``Ġ`` before what
    begins one (SentencePiece, byte-level BPE). Without any such mark every entry counts as a word."""
    entries = [entry_of(tokenizer, number) for number in range(tokenizer.vocab_size)]
    if any(entry.startswith(CONTINUES) and entry != CONTINUES for entry in entries):
        starts = [not entry.startswith(CONTINUES) for entry in entries]
    elif any(entry.startswith(BEGINS) for entry in entries):
        starts = [entry.startswith(BEGINS) or not _has_letters(entry) or max(map(ord, entry)) >= FIRST_UNSPACED for entry in entries]
    else:
        starts = [True] * len(entries)
    return WordTable(np.array(starts, bool), np.array([_has_letters(entry) for entry in entries], bool))


def entry_of(tokenizer: TextTokenizer, number: int) -> str:
    """The vocabulary entry of an id; empty where the ids have a gap."""
    try:
        return tokenizer.token(number)
    except KeyError:  # ids need not be without gaps
        return ""


def bare_entry(tokenizer: TextTokenizer, number: int) -> str:
    """The spelling of an id's entry, without the mark of a word's beginning or continuation."""
    entry = entry_of(tokenizer, number)
    for mark in (CONTINUES, *BEGINS):
        if entry.startswith(mark) and entry != mark:
            return entry[len(mark) :]
    return entry


def _has_letters(entry: str) -> bool:
    return any(character.isalnum() for character in entry)
