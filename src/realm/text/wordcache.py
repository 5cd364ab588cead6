"""Encoding by words: text repeats its words, so most of them are looked up instead of being computed again.

Exact only where a tokenizer treats the words between spaces one by one, as BERT's do; ``splits_at_spaces`` says whether it does.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer

# About 60 MB. Beyond it the cache starts anew: the frequent words are back after the next batch.
MAX_WORDS = 200_000
# Longer "words" are addresses and the like, which do not repeat.
MAX_WORD_LENGTH = 40


class _Word(NamedTuple):
    ids: list[int]
    offsets: list[tuple[int, int]]


class WordEncoding:
    """Ids of one text and, computed when asked for, their code points. Stands in for the library's ``Encoding``."""

    __slots__ = ("_backend", "_text", "_words", "ids")

    def __init__(self, text: str, ids: list[int], words: list[_Word], backend: Tokenizer):
        self.ids = ids
        self._text = text
        self._words = words
        self._backend = backend

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """(start, end) of every id."""
        found: list[tuple[int, int]] = []
        position = 0
        for length, word in zip(map(len, self._text.split(" ")), self._words, strict=True):
            found += [(position + start, position + end) for start, end in word.offsets]
            position += length + 1
        return found

    @property
    def word_ids(self) -> list[int | None]:
        """The word of every id, as the library counts words."""
        return self._backend.encode(self._text, add_special_tokens=False).word_ids


class WordCache:
    """Encodes texts word by word.

    Args:
        backend: a tokenizer for which ``splits_at_spaces`` holds.
    """

    def __init__(self, backend: Tokenizer):
        self._backend = backend
        self._known: dict[str, _Word] = {}

    def encodings(self, texts: Sequence[str]) -> list[WordEncoding]:
        """Ids and offsets of each text, without special tokens: what the tokenizer itself gives."""
        split = [text.split(" ") for text in texts]
        known = self._known if len(self._known) < MAX_WORDS else {}
        missing = list({word for words in split for word in words}.difference(known))
        rare: dict[str, _Word] = {}
        for word, encoding in zip(missing, self._backend.encode_batch(missing, add_special_tokens=False), strict=True):
            (known if len(word) <= MAX_WORD_LENGTH else rare)[word] = _Word(encoding.ids, encoding.offsets)
        self._known = known
        found = []
        for text, words in zip(texts, split, strict=True):
            entries = [known.get(word) or rare[word] for word in words]
            ids = [token for entry in entries for token in entry.ids]
            found.append(WordEncoding(text, ids, entries, self._backend))
        return found


def splits_at_spaces(backend: Tokenizer) -> bool:
    """Whether the tokens of a text are those of its words between spaces, one after the other: BERT's normaliser and pre-tokenizer."""
    parts = json.loads(backend.to_str())
    kinds = [(parts[name] or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model")]
    added = parts["added_tokens"]
    return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"] and not any(
        token["lstrip"] or token["rstrip"] or " " in token["content"] for token in added
    )
