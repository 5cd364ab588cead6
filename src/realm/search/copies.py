"""Copies and versions of one text among candidates: blocks that share most sequences of words, and the one of them that is read."""

import os
from collections import Counter
from collections.abc import Sequence

import numpy as np

from realm.documents.store.blocks import Block
from realm.text.words import words

SEQUENCE = 5  # wordpieces that follow one another
SHARED = 0.6  # of the shorter block's sequences: a larger share is one text


def groups(texts: Sequence[np.ndarray]) -> list[list[int]]:
    """Positions of texts (wordpieces, int [n] each) grouped by the first that each is a copy or a version of.

    >>> groups([np.arange(30), np.arange(50, 70), np.arange(2, 31)])
    [[0, 2], [1]]
    """
    found: list[list[int]] = []
    holders: dict[bytes, list[int]] = {}  # groups by the sequences of their first
    sizes: list[int] = []
    for position, text in enumerate(texts):
        sequences = _sequences(text)
        shared = Counter(group for sequence in sequences for group in holders.get(sequence, ()))
        same = next((group for group, count in shared.most_common(1) if count >= SHARED * min(len(sequences), sizes[group])), None)
        if same is not None:
            found[same].append(position)
            continue
        for sequence in sequences:
            holders.setdefault(sequence, []).append(len(found))
        found.append([position])
        sizes.append(len(sequences))
    return found


def _sequences(text: np.ndarray) -> set[bytes]:
    length = min(SEQUENCE, max(1, len(text)))
    return {text[at : at + length].tobytes() for at in range(max(1, len(text) - length + 1))}


def newest(question: str, blocks: Sequence[Block]) -> int:
    """Position of the block among copies whose file changed last, the first of those; but what the title of the best, which is the first,
    shares with the question, the title of the newest shares, too: who asks for a version gets it."""
    asked = set(words(question)) & set(words(blocks[0].full_title))
    meant = [at for at, block in enumerate(blocks) if asked <= set(words(block.full_title))]
    return max(meant, key=lambda at: _changed(blocks[at].source))


def _changed(source: str) -> float:
    """The time at which a source changed last; 0 where it is no file here."""
    try:
        return os.stat(source).st_mtime
    except (OSError, ValueError):
        return 0.0
