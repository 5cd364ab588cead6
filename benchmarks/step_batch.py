"""Batches for ``bench_step.py``: b masked sentences with k candidates each, of full lengths or as a corpus has them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from realm.corpus.store.blocks import NULL_BLOCK
from realm.data.blocks import BlockInputs
from realm.data.featurize import Featurizer, mask_slots, pad_batch
from realm.data.loader import generator
from realm.data.masking import MaskedSentences
from realm.data.types import MaskedQuery, Sequence, TokenInputs
from realm.retrieval import Retrieved

VOCABULARY = 30522
"""BERT's and the published REALM's."""
FIRST_WORD = 1000
MASKS = 2


class FullBlocks:
    """Stands in for a corpus whose every block fills the block input and the joint input; what it says is drawn by the row."""

    def __init__(self, featurizer: Featurizer):
        self.featurizer = featurizer

    def rows(self, block_ids: np.ndarray) -> np.ndarray:
        return block_ids

    def _words(self, row: int) -> list[int]:
        return generator("full blocks", row).integers(FIRST_WORD, VOCABULARY, self.featurizer.block_length).tolist()

    def blocks(self, rows: list[int]) -> list[Sequence]:
        return [self.featurizer.block(self._words(row)[:8], self._words(row)) for row in rows]

    def joint(self, query: list[int], row: int) -> Sequence:
        return self.featurizer.joint(query, self._words(row))


@dataclass(frozen=True)
class Workload:
    """One batch before it is featurised, as pre-training has it: where blocks come from, the queries and their candidates."""

    inputs: Any
    queries: list[MaskedQuery]
    retrieved: Retrieved

    def joint(self) -> list[Sequence]:
        """b * k joint inputs, candidates of one query together."""
        rows = self.inputs.rows(self.retrieved.block_ids)
        return [self.inputs.joint(q.ids, int(row)) for q, own in zip(self.queries, rows, strict=True) for row in own]

    def blocks(self) -> list[Sequence]:
        """b * k block inputs, one for each candidate even where a document repeats."""
        return self.inputs.blocks(self.inputs.rows(self.retrieved.block_ids).ravel().tolist())

    def different_blocks(self) -> tuple[list[Sequence], torch.Tensor]:
        """Each document once, and for each of the b * k candidates which one it is."""
        rows, place = np.unique(self.inputs.rows(self.retrieved.block_ids), return_inverse=True)
        return self.inputs.blocks(rows.tolist()), torch.from_numpy(place.reshape(-1))

    def query_inputs(self) -> list[Sequence]:
        return [self.inputs.featurizer.query(q.ids) for q in self.queries]

    def masks(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Positions, targets and real slots, [b, m] each."""
        return mask_slots([q.positions for q in self.queries], [q.targets for q in self.queries])

    def first(self, b: int) -> "Workload":
        """The first ``b`` queries."""
        kept = Retrieved(self.retrieved.block_ids[:b], self.retrieved.valid[:b], self.retrieved.scores[:b])
        return Workload(self.inputs, self.queries[:b], kept)


def retrieved(block_ids: np.ndarray) -> Retrieved:
    return Retrieved(block_ids, np.ones(block_ids.shape, np.bool_), np.zeros(block_ids.shape, np.float32))


def full_workload(b: int, k: int, *, query_length: int, block_length: int) -> Workload:
    """Every input of its greatest length, every candidate another document: nothing to save by packing or sharing."""
    inputs = FullBlocks(Featurizer(cls=2, sep=3, mask=4, pad=0, query_length=query_length, block_length=block_length))
    queries = []
    for i in range(b):
        rng = generator("full query", i)
        ids = rng.integers(FIRST_WORD, VOCABULARY, query_length - 2).tolist()
        start = int(rng.integers(len(ids) - MASKS))
        positions = list(range(start, start + MASKS))
        targets = [ids[p] for p in positions]
        for p in positions:
            ids[p] = inputs.featurizer.mask
        queries.append(MaskedQuery(ids, positions, targets, origin=-2))
    return Workload(inputs, queries, retrieved(np.arange(b * k).reshape(b, k)))


def corpus_workload(inputs: BlockInputs, sentences: MaskedSentences, b: int, k: int) -> Workload:
    """Salient sentences of a corpus with the null document and k - 1 other blocks drawn at random, so that hardly one repeats."""
    rng = generator("corpus batch")
    queries = [sentences.query(int(item), rng) for item in rng.permutation(len(sentences))[:b]]
    drawn = rng.choice(np.asarray(inputs.store.block_ids), (b, k - 1), replace=False)
    return Workload(inputs, queries, retrieved(np.concatenate([np.full((b, 1), NULL_BLOCK), drawn], axis=1)))


def padded(sequences: list[Sequence], length: int) -> TokenInputs:
    """[n, length], whatever the longest is."""
    inputs = pad_batch([*sequences, Sequence([0] * length, [0] * length)], 0)
    return TokenInputs(inputs.ids[:-1], inputs.mask[:-1], inputs.segments[:-1])


def histogram(lengths: list[int], step: int = 32) -> dict[str, int]:
    """How many of each length, in groups of ``step``."""
    counts = np.bincount(np.asarray(lengths) // step)
    return {f"{i * step}-{i * step + step - 1}": int(count) for i, count in enumerate(counts)}
