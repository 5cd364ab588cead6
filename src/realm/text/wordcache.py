"""Encoding by words: text repeats its words, so most are looked up. Exact where ``splits_at_spaces`` holds, as for BERT's tokenizers.

Arrow splits texts and numbers their words, numpy gathers the ids; Python sees only words that were not met before."""

import json
import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Encoding, Token, Tokenizer

from realm.text.alphabet import CHARACTER_PATTERN

# Characters of the words in the cache, about 50 MB. Beyond them it starts again: the frequent words are back after the next batch.
MAX_CHARS = 2_000_000
# Code points of longer "words" (addresses, sentences of scripts without spaces) are not kept: they do not repeat.
_LONGEST_KEPT = 40
# What BERT's pre-tokenizer makes of a printable ASCII word: letters and digits in a row, and every other character alone.
_PIECES = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]")
Offsets = list[tuple[int, int]]
_ONE: Offsets = [(0, 1)]


@dataclass(frozen=True)
class Tokenized:
    """Wordpieces of several texts.

    Attributes:
        ids: uint32 [tokens], of all texts, one after the other.
        starts: int64 [texts + 1]: ``ids[starts[i]:starts[i + 1]]`` are those of text i.
        offsets: of text i, (start, end) in code points of the text of every id.
        words: of text i, the number of the word that every id is of."""

    ids: np.ndarray
    starts: np.ndarray
    offsets: Callable[[int], Offsets]
    words: Callable[[int], Sequence[int | None]]

    @classmethod
    def of(cls, encodings: Sequence[Encoding]) -> "Tokenized":
        ids = [encoding.ids for encoding in encodings]
        starts = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        flat = np.fromiter(chain.from_iterable(ids), np.uint32, count=int(starts[-1]))
        return cls(flat, starts, lambda index: encodings[index].offsets, lambda index: encodings[index].word_ids)


class WordCache:
    """Encodes texts word by word, with a tokenizer for which ``splits_at_spaces`` holds."""

    def __init__(self, backend: Tokenizer):
        self._backend = backend
        self._model = backend.model
        parts = json.loads(backend.to_str())
        self._lowercase = bool(parts["normalizer"]["lowercase"])
        added = [token["content"] for token in parts["added_tokens"]]
        normalised = [backend.normalizer.normalize_str(content) for content in added]
        first = {form[0] for content in (*added, *normalised) if content for form in (content.lower(), content.upper())}
        self._plain = re.compile("[" + "".join(re.escape(chr(code)) for code in range(0x21, 0x7F) if chr(code) not in first) + "]*")
        self._pieces: dict[str, tuple[int, ...]] = {}
        self._pieces_chars = 0
        self._start_anew()

    def tokenize(self, texts: Sequence[str]) -> Tokenized:
        """The wordpieces of each text, without special tokens: what the tokenizer itself gives."""
        from pyarrow import compute as pc  # a tenth of a second that a question need not wait for

        words = pc.split_pattern(pa.array(texts, pa.string()), " ")
        coded = words.flatten().dictionary_encode()
        rows = self._rows_of(coded.dictionary.to_pylist())[np.asarray(coded.indices)]
        word_starts = np.array(self._starts)
        first = word_starts[rows]
        counts = word_starts[rows + 1] - first
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        ids = np.array(self._ids)[np.arange(total) + np.repeat(first - (ends - counts), counts)]
        starts = np.concatenate([[0], ends])[np.asarray(words.offsets)]

        def word_ids(index: int) -> list[int | None]:
            return self._backend.encode(texts[index], add_special_tokens=False).word_ids

        return Tokenized(ids, starts, lambda index: self._offsets_in(texts[index]), word_ids)

    def _start_anew(self) -> None:
        self._rows: dict[str, int] = {}
        self._ids = array("I")
        self._starts = array("q", [0])
        self._chars = 0
        self._offsets: dict[str, Offsets] = {}

    def _rows_of(self, words: list[str]) -> np.ndarray:
        """int64 [words]: where the ids of each are, once the cache holds them."""
        if self._chars >= MAX_CHARS:
            self._start_anew()
        missing = [word for word in words if word not in self._rows]
        plain = list(map(self._plain.fullmatch, missing))
        others = [word for word, match in zip(missing, plain, strict=True) if match is None]
        encoded = iter(self._backend.encode_batch_fast(others, add_special_tokens=False))
        for word, match in zip(missing, plain, strict=True):
            if match is None:
                self._ids.extend(next(encoded).ids)
            else:
                for piece in _PIECES.findall(word):
                    self._ids.extend(self._piece_ids(piece))
            self._rows[word] = len(self._starts) - 1
            self._starts.append(len(self._ids))
            self._chars += len(word)
        return np.fromiter(map(self._rows.__getitem__, words), np.int64, count=len(words))

    def _piece_ids(self, piece: str) -> tuple[int, ...]:
        ids = self._pieces.get(piece)
        if ids is None:
            if self._pieces_chars >= MAX_CHARS:
                self._pieces, self._pieces_chars = {}, 0
            ids = self._pieces[piece] = tuple(token.id for token in self._wordpieces(piece))
            self._pieces_chars += len(piece)
        return ids

    def _piece_offsets(self, piece: str) -> Offsets:
        return [token.offsets for token in self._wordpieces(piece)] if len(piece) > 1 else _ONE

    def _wordpieces(self, piece: str) -> list[Token]:
        return self._model.tokenize(piece.lower() if self._lowercase else piece)

    def _offsets_in(self, text: str) -> Offsets:
        found: Offsets = []
        position = 0
        for word in text.split(" "):
            found += [(position + start, position + end) for start, end in self._word_offsets(word)]
            position += len(word) + 1
        return found

    def _word_offsets(self, word: str) -> Offsets:
        offsets = self._offsets.get(word)
        if offsets is None:
            if self._plain.fullmatch(word):
                pieces = ((match.start(), self._piece_offsets(match[0])) for match in _PIECES.finditer(word))
                offsets = [(at + start, at + end) for at, places in pieces for start, end in places]
            else:
                offsets = self._backend.encode(word, add_special_tokens=False).offsets
            if len(word) <= _LONGEST_KEPT:
                self._offsets[word] = offsets
        return offsets


def splits_at_spaces(backend: Tokenizer) -> bool:
    """Return whether the tokens of a text are those of its words between spaces: true of BERT's tokenizers and of what ``tokenizer.py``
    trains for scripts without spaces."""
    parts = json.loads(backend.to_str())
    kinds = [(parts[name] or {}).get("type") for name in ("normalizer", "model")]
    added = parts["added_tokens"]
    pre_tokenizer = parts["pre_tokenizer"]
    return (
        kinds == ["BertNormalizer", "WordPiece"]
        and ((pre_tokenizer or {}).get("type") == "BertPreTokenizer" or cuts_characters(pre_tokenizer))
        and not any(token["lstrip"] or token["rstrip"] or " " in token["content"] for token in added)
    )


def cuts_characters(pre_tokenizer: Any) -> bool:
    """Return whether a pre-tokenizer of tokenizer.json cuts scripts without spaces into characters, as ``tokenizer.py`` makes it."""
    if (pre_tokenizer or {}).get("type") != "Sequence":
        return False
    steps = pre_tokenizer["pretokenizers"]
    cut = {"type": "Split", "pattern": {"Regex": CHARACTER_PATTERN}, "behavior": "Isolated", "invert": False}
    return len(steps) == 2 and steps[0].get("type") == "BertPreTokenizer" and steps[1] == cut
