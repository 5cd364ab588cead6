"""Masked sentences as people read them: the way back from wordpieces to the document's own words."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.data.types import MaskedQuery

MASK = "[MASK]"


def masked_text(store: BlockStore, query: MaskedQuery) -> tuple[str, tuple[str, ...]]:
    """A masked sentence with one ``[MASK]`` for each hidden run of wordpieces, and the hidden words.

    The words are those of the document where its sentence still gives these wordpieces, and the wordpieces' own otherwise.
    """
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
    """The sentence in its document, and where each of its wordpieces stands; None where it does not give these wordpieces."""
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
    """What the runs leave of [0, length)."""
    starts, ends = [0, *(end for _, end in runs)], [*(start for start, _ in runs), length]
    return list(zip(starts, ends, strict=True))


def words_left(store: BlockStore, queries: Sequence[MaskedQuery]) -> list[str]:
    """What sparse search is asked for: the words of each sentence that are not masked, and the hidden ones too where they are shown."""
    return [_searched(store, query) for query in queries]
