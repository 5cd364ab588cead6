"""A sentence that a person masked: "[MASK]" stands for a whole span and is expanded to the wordpieces of what fills it."""

from collections.abc import Sequence as SequenceOf
from dataclasses import asdict

from realm.data.blocks import BlockInputs
from realm.data.types import TokenIds
from realm.errors import DataError
from realm.text.canonical import canonical_text
from realm.text.sentences import split_sentences

MASK = "[MASK]"


class ClozeText:
    """A text cut at its masks; masks of any lengths can be put back in.

    Args:
        text: with at least one ``[MASK]``, whatever the tokenizer calls its own mask token.

    Raises:
        DataError: no mask, or a text that a query cannot hold even with one wordpiece for each mask.
    """

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

    def fits(self, lengths: SequenceOf[int]) -> bool:
        """Whether a query holds the text with spans of ``lengths`` wordpieces."""
        return sum(len(ids) for ids in self._around) + sum(lengths) <= self._limit

    def spell(self, targets: SequenceOf[str]) -> tuple[tuple[int, ...], ...]:
        """Wordpieces of each target.

        Raises:
            DataError: not one target for each mask, a target without wordpieces or with characters that the vocabulary lacks, or a text
                that a query cannot hold with these targets.
        """
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

    def masked(self, lengths: SequenceOf[int]) -> tuple[TokenIds, list[int]]:
        """Wordpieces with ``lengths`` masks in place of the spans, and the positions of the masks."""
        ids: TokenIds = list(self._around[0])
        positions: list[int] = []
        for length, after in zip(lengths, self._around[1:], strict=True):
            positions += range(len(ids), len(ids) + length)
            ids += [self.inputs.featurizer.mask] * length + list(after)
        return ids, positions

    def filled_sentences(self, targets: SequenceOf[str]) -> list[str]:
        """The sentences of the unmasked text that hold a target, cut as the corpus cuts them."""
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
    """Ids that no span of text holds: padding, unknown, [CLS], [SEP], [MASK]."""
    return list(asdict(inputs.store.tokenizer.special).values())
