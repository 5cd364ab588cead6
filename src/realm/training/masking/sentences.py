"""Sentences with hidden wordpieces, and the blocks that they must not be given (REALM, section 3.4).

A span that the query cannot hold whole is a counted drop, never a cut target. Blocks that hold a sentence verbatim are known beforehand."""

from array import array
from collections import Counter
from dataclasses import replace

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.models.featurize import Featurizer
from realm.models.types import MaskedQuery
from realm.training.masking.kinds import MaskKind, Span, salient_spans


class Exclusion:
    """Blocks of Z that hold a sentence of X verbatim, its own included.

    ``exclude`` as in ``pretrain.exclude``: "document" and "reading" add all blocks of their and its documents; False excludes nothing."""

    def __init__(self, sentences: BlockStore, blocks: BlockStore, exclude: bool | str = True):
        self._own = sentences is blocks
        self._sentences, self._blocks = sentences, blocks
        self._exclude = exclude

    def blocks(self, row: int, sentence_hash: int) -> np.ndarray:
        """int64 [n], ascending: ids of the blocks, by the sentence's hash in ``SentenceTable.hashes``."""
        if not self._exclude:
            return np.empty(0, np.int64)
        rows = self._blocks.rows_with_sentence(sentence_hash)
        if self._own:
            rows = np.union1d(np.asarray(rows, np.int64), np.asarray([row], np.int64))
        if self._exclude in ("document", "reading"):
            names = sorted({self._sentences.doc_id(row), *(self._blocks.doc_id(int(held)) for held in rows)})
            rows = np.unique(np.concatenate([rows, *(self._blocks.rows_of_document(name) for name in names)]).astype(np.int64))
        return np.asarray(self._blocks.block_ids)[rows]


class MaskedSentences:
    """Every sentence with something to hide: ``kind`` (default: a salient span), ``exclusion`` (default: Z is X), ``dropped`` by reason."""

    def __init__(self, store: BlockStore, featurizer: Featurizer, kind: MaskKind | None = None, exclusion: Exclusion | None = None):
        self.store = store
        self.featurizer = featurizer
        self.kind = kind or salient_spans(store)
        self.exclusion = exclusion or Exclusion(store, store)
        self.dropped: Counter[str] = Counter()
        # Columns, not objects: there may be tens of millions of sentences.
        self._rows, self._sentences, self._ends, self._spans = array("q"), array("i"), array("q"), array("i")
        for row in np.flatnonzero(store.live).tolist():
            for sentence, spans in self.kind.maskable(row, self._shown, self.dropped):
                self._rows.append(row)
                self._sentences.append(sentence)
                self._spans.extend(border for span in spans for border in span)
                self._ends.append(len(self._spans))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def keys(self) -> np.ndarray:
        """int64 [n, 2]: block id and number in its block of every sentence, whatever is hidden in it."""
        rows, sentences = np.array(self._rows, np.int64), np.array(self._sentences, np.int64)
        return np.stack([np.asarray(self.store.block_ids)[rows], sentences], 1)

    @property
    def spans(self) -> int:
        """Maskable spans over all sentences; one each where they are drawn and not listed."""
        return len(self._spans) // 2

    @property
    def summary(self) -> str:
        """Number of sentences, and what was left out, for people."""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.dropped.items()))
        return f"{len(self):,} sentences with something to hide; left out: {reasons or 'nothing'}"

    @property
    def _shown(self) -> int:
        """Wordpieces of a sentence that a query holds."""
        return self.featurizer.query_length - 2

    def spans_of(self, item: int) -> list[Span]:
        """Spans that can be hidden in sentence ``item``, in wordpieces from its first."""
        flat = self._spans[self._ends[item - 1] if item else 0 : self._ends[item]]
        return list(zip(flat[::2], flat[1::2], strict=True))

    def query(self, item: int, rng: np.random.Generator) -> MaskedQuery:
        """The sentence ``item`` with what ``rng`` draws hidden."""
        row, sentence = self._rows[item], self._sentences[item]
        table = self.store.sentences(row)
        first, last = (int(v) for v in table.tokens[sentence])
        ids = self.store.token_ids(row)[first:last].tolist()[: self._shown]
        hidden, rest = self.kind.hide(ids, self.spans_of(item), rng)
        others = tuple(tuple(ids[a:b]) for a, b in rest)
        positions = [p for start, end in hidden for p in range(start, end)]
        targets = [ids[p] for p in positions]
        for p in positions:
            ids[p] = self.featurizer.mask
        origin = int(self.store.block_ids[row])
        excluded = self.exclusion.blocks(row, int(table.hashes[sentence]))
        return MaskedQuery(ids, positions, targets, origin, sentence, excluded, others)


def hide_more(query: MaskedQuery, rate: float, mask: int, rng: np.random.Generator) -> MaskedQuery:
    """The query with each of its other wordpieces hidden too at ``rate``: more to fill from one sentence when the block is given."""
    whole = query.whole
    draw = rng.random(len(whole)) < rate
    positions = [p for p in range(len(whole)) if draw[p] or p in query.positions]
    ids = [mask if p in set(positions) else wordpiece for p, wordpiece in enumerate(whole)]
    return replace(query, ids=ids, positions=positions, targets=[whole[p] for p in positions])
