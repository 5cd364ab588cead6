"""Names permuted in a question and its documents, so that a reader learns to read and not to remember.

A few thousand questions name a few hundred things, which are soon known by heart (after the entity markers of Hermann et al. 2015,
"Teaching machines to read and comprehend").
"""

from collections import defaultdict

import numpy as np

from realm.documents.store.blocks import BlockStore


class Renaming:
    """Permutations of wordpieces that mostly stand inside salient spans: first pieces with first pieces, digits with digits."""

    def __init__(self, store: BlockStore):
        self.size = store.tokenizer.vocab_size
        total, inside = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        for row in np.flatnonzero(store.live).tolist():
            ids, named = np.asarray(store.token_ids(row), np.int64), np.zeros(len(store.token_ids(row)), bool)
            for start, end in store.spans(row).tokens.tolist():
                named[start:end] = True
            total += np.bincount(ids, minlength=self.size)
            inside += np.bincount(ids[named], minlength=self.size)
        like: dict[tuple[bool, bool], list[int]] = defaultdict(list)
        for wordpiece in np.flatnonzero(2 * inside > total).tolist():
            text = store.tokenizer.token(wordpiece)
            like[text.startswith("##"), any(c.isdigit() for c in text)].append(wordpiece)
        self.groups = [np.asarray(group) for _, group in sorted(like.items())]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A permutation of the vocabulary, int64 [v]: entry w is the wordpiece that stands for w."""
        renamed = np.arange(self.size)
        for group in self.groups:
            renamed[group] = rng.permutation(group)
        return renamed
