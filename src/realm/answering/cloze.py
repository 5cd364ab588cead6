"""Masked sentences for people: "[MASK]" stands for a whole span of any number of wordpieces."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.errors import DataError
from realm.models.types import MaskedQuery, TokenIds
from realm.search.blocks import BlockInputs
from realm.text.lines import canonical_text
from realm.text.sentences import split_sentences

MASK = "[MASK]"
MIN_BEGINNING = 4
"""Wordpieces before a hidden span with which a sentence can be begun; otherwise its first half is."""


def masked_text(store: BlockStore, query: MaskedQuery) -> tuple[str, tuple[str, ...]]:
    """Masked sentence with one ``[MASK]`` for each hidden run of wordpieces, and the hidden words, as the document spells them."""
    runs = hidden_runs(query.positions)
    whole = query.whole
    text, offsets = _written(store, query, whole)
    if offsets is None:
        pieces = [store.tokenizer.decode(whole[start:end]) for start, end in _between(runs, len(whole))]
        hidden = tuple(store.tokenizer.decode(whole[start:end]) for start, end in runs)
        return f" {MASK} ".join(pieces).strip(), hidden
    edges = [(offsets[start][0], offsets[end - 1][1]) for start, end in runs]
    last = offsets[-1][1] if offsets else 0
    return MASK.join(text[start:end] for start, end in _between(edges, last)), tuple(text[start:end] for start, end in edges)


def begun(store: BlockStore, query: MaskedQuery) -> MaskedQuery:
    """The query cut before what it hides: its beginning is searched with, and a language model continues it."""
    whole, first = query.whole, query.positions[0]
    cut = first if first >= MIN_BEGINNING else len(whole) // 2
    text, offsets = _written(store, query, whole)
    if offsets is None:
        parts = store.tokenizer.decode(whole[:cut]), store.tokenizer.decode(whole[cut:])
    else:
        parts = text[: offsets[cut][0]], text[offsets[cut][0] : offsets[-1][1]]
    return replace(query, ids=whole[:cut], positions=[], begun=parts)


def _searched(store: BlockStore, query: MaskedQuery) -> str:
    if not query.shown:
        return masked_text(store, query)[0].replace(MASK, " ")
    whole = query.whole
    text, offsets = _written(store, query, whole)
    return text[: offsets[-1][1]] if offsets else store.tokenizer.decode(whole)


def hidden_runs(positions: list[int]) -> list[tuple[int, int]]:
    """[start, end) of each run of neighbouring positions, which ascend."""
    runs = (list(group) for _, group in groupby(enumerate(positions), lambda pair: pair[1] - pair[0]))
    return [(run[0][1], run[-1][1] + 1) for run in runs]


def _written(store: BlockStore, query: MaskedQuery, whole: list[int]) -> tuple[str, list[tuple[int, int]] | None]:
    """The sentence in its document, and the places of its wordpieces; None if it has others now."""
    if query.origin not in store.block_ids:
        return "", None
    row = int(store.rows_of(np.array([query.origin]))[0])
    places = store.sentences(row).chars
    if query.sentence >= len(places):
        return "", None
    start, end = places[query.sentence].tolist()
    text = store.block(row).text[start:end]
    ids, offsets = store.tokenizer.encode_offsets(text)
    return text, offsets[: len(whole)] if ids[: len(whole)] == whole else None


def _between(runs: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Gaps of the runs in [0, length)."""
    starts, ends = [0, *(end for _, end in runs)], [*(start for start, _ in runs), length]
    return list(zip(starts, ends, strict=True))


def words_left(store: BlockStore, queries: Sequence[MaskedQuery]) -> list[str]:
    """Query text for sparse search: the words of each sentence that are not masked, and hidden ones that are shown."""
    return [_searched(store, query) for query in queries]


class ClozeText:
    """A text cut at its masks, to be filled with masks of any lengths. Raises DataError: no ``[MASK]``, or too long for a query."""

    def __init__(self, inputs: BlockInputs, text: str):
        self.inputs = inputs
        self.pieces = canonical_text(text).split(MASK)
        if self.masks < 1:
            raise DataError(f"no {MASK} in '{text}'", cure=f"Put {MASK} in place of the span to explain.")
        self._around = inputs.store.tokenizer.encode(self.pieces)
        self._limit = inputs.featurizer.query_length - 2
        if not self.fits([1] * self.masks):
            raise self._too_long(self.masks)

    @property
    def masks(self) -> int:
        return len(self.pieces) - 1

    def fits(self, lengths: Sequence[int]) -> bool:
        """True if a query holds the text with spans of ``lengths`` wordpieces."""
        return sum(len(ids) for ids in self._around) + sum(lengths) <= self._limit

    def spell(self, targets: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Wordpieces of each target. Raises DataError: not one per mask, an unknown character, none at all, or too long a text."""
        if len(targets) != self.masks:
            raise DataError(f"{len(targets)} targets for {self.masks} {MASK}", cure=f"Give one target for each {MASK}, in order, or none.")
        spans = tuple(tuple(ids) for ids in self.inputs.store.tokenizer.encode([canonical_text(target) for target in targets]))
        special = set(special_ids(self.inputs))
        for target, ids in zip(targets, spans, strict=True):
            if not ids:
                raise DataError(f"the target '{target}' has no wordpieces", cure="Give a target with letters or digits.")
            if special & set(ids):
                cure = "Choose a target in the script of the documents."
                raise DataError(f"the target '{target}' has characters that the corpus's vocabulary lacks", cure=cure)
        lengths = [len(ids) for ids in spans]
        if not self.fits(lengths):
            raise self._too_long(sum(lengths))
        return spans

    def masked(self, lengths: Sequence[int]) -> tuple[TokenIds, list[int]]:
        """Wordpieces with ``lengths`` masks in place of the spans, and the positions of the masks."""
        ids: TokenIds = list(self._around[0])
        positions: list[int] = []
        for length, after in zip(lengths, self._around[1:], strict=True):
            positions += range(len(ids), len(ids) + length)
            ids += [self.inputs.featurizer.mask] * length + list(after)
        return ids, positions

    def filled_sentences(self, targets: Sequence[str]) -> list[str]:
        """Sentences of the unmasked text with a target, split as in the corpus."""
        whole = self.pieces[0]
        edges: list[tuple[int, int]] = []
        for target, after in zip(targets, self.pieces[1:], strict=True):
            start, whole = len(whole), whole + canonical_text(target)
            edges.append((start, len(whole)))
            whole += after
        return [whole[a:b] for a, b in split_sentences(whole) if any(start < b and end > a for start, end in edges)]

    def _too_long(self, wordpieces: int) -> DataError:
        length = sum(len(ids) for ids in self._around) + wordpieces
        cure = "Shorten the text around the mask."
        return DataError(f"the text has {length} wordpieces and a query holds {self._limit}", cure=cure)


def special_ids(inputs: BlockInputs) -> list[int]:
    """Ids that no span of text has: padding, unknown, [CLS], [SEP], [MASK]."""
    return list(asdict(inputs.store.tokenizer.special).values())
