"""Encoding by words: text repeats its words, so most of them are looked up instead of being computed again.

Exact only where a tokenizer treats the words between spaces one by one, as BERT's do; ``splits_at_spaces`` says whether it does.
"""

import json
from collections.abc import Sequence
from itertools import chain, compress

from tokenizers import Encoding, Tokenizer

# About 60 MB. Beyond it the cache starts anew: the frequent words are back after the next batch.
MAX_WORDS = 200_000
# Longer "words" are addresses and the like, which do not repeat.
MAX_WORD_LENGTH = 40


class WordEncoding:
    """Ids of one text and, computed when asked for, their code points. Stands in for the library's ``Encoding``."""

    __slots__ = ("_backend", "_offsets", "_words", "ids")

    def __init__(self, ids: list[int], words: list[str], offsets: dict[str, list[tuple[int, int]]], backend: Tokenizer):
        self.ids = ids
        self._words = words
        self._offsets = offsets
        self._backend = backend

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """(start, end) of every id."""
        found: list[tuple[int, int]] = []
        position = 0
        for word in self._words:
            found += [(position + start, position + end) for start, end in self._offsets[word]]
            position += len(word) + 1
        return found

    @property
    def word_ids(self) -> list[int | None]:
        """The word of every id, as the library counts words."""
        return self._backend.encode(" ".join(self._words), add_special_tokens=False).word_ids


class WordCache:
    """Encodes texts word by word.

    Args:
        backend: a tokenizer for which ``splits_at_spaces`` holds.
    """

    def __init__(self, backend: Tokenizer):
        self._backend = backend
        self._ids: dict[str, list[int]] = {}
        self._offsets: dict[str, list[tuple[int, int]]] = {}

    def encodings(self, texts: Sequence[str]) -> list[Encoding | WordEncoding]:
        """Ids and offsets of each text, without special tokens: what the tokenizer itself gives."""
        split = [text.split(" ") for text in texts]
        common = [max(map(len, words)) <= MAX_WORD_LENGTH for words in split]
        self._learn(set().union(*compress(split, common)))
        unusual = [text for text, usual in zip(texts, common, strict=True) if not usual]
        rare = iter(self._backend.encode_batch(unusual, add_special_tokens=False))
        found: list[Encoding | WordEncoding] = []
        for words, usual in zip(split, common, strict=True):
            if usual:
                ids = list(chain.from_iterable(map(self._ids.__getitem__, words)))
                found.append(WordEncoding(ids, words, self._offsets, self._backend))
            else:
                found.append(next(rare))
        return found

    def _learn(self, words: set[str]) -> None:
        """See to it that the cache holds ``words``."""
        if len(self._ids) >= MAX_WORDS:  # new dictionaries: encodings made before still read the old ones
            self._ids, self._offsets = {}, {}
        missing = list(words.difference(self._ids))
        for word, encoding in zip(missing, self._backend.encode_batch(missing, add_special_tokens=False), strict=True):
            self._ids[word], self._offsets[word] = encoding.ids, encoding.offsets


def splits_at_spaces(backend: Tokenizer) -> bool:
    """Whether the tokens of a text are those of its words between spaces, one after the other: BERT's normaliser and pre-tokenizer."""
    parts = json.loads(backend.to_str())
    kinds = [(parts[name] or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model")]
    added = parts["added_tokens"]
    return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"] and not any(
        token["lstrip"] or token["rstrip"] or " " in token["content"] for token in added
    )
