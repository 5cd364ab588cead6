"""All batch records and the dimension legend.

Dimension legend (used in every signature and comment): b examples, k candidates (null at 0), q query length, c block length,
j joint length, m mask slots, d projection, h hidden, v vocabulary, n blocks in the corpus, s candidate spans, t any length.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

TokenIds = list[int]


@dataclass(frozen=True)
class Sequence:
    """One unpadded model input: wordpiece ids and segment ids of the same length."""

    ids: TokenIds
    segments: list[int]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class TokenInputs:
    """A padded batch for a body: ``ids``, ``mask`` (True at real tokens) and ``segments``, each [b, t].

    ``unpadded`` says that the mask is known to be True everywhere; asking the mask itself would wait for a GPU. ``words`` [b, t, h] are the
    embeddings of ``ids`` where they were looked up before.
    """

    ids: Tensor
    mask: Tensor
    segments: Tensor
    unpadded: bool = False
    words: Tensor | None = None

    def to(self, device: torch.device) -> "TokenInputs":
        words = None if self.words is None else self.words.to(device)
        return TokenInputs(self.ids.to(device), self.mask.to(device), self.segments.to(device), self.unpadded, words)


@dataclass(frozen=True)
class MaskedQuery:
    """A sentence with some of its wordpieces masked: one salient span, unless the recipe says otherwise (REALM, section 3.4).

    ``ids`` are the sentence's wordpieces with [MASK] in place of the hidden ones, without special tokens; ``positions`` index into
    ``ids``, ascending; ``targets`` are the hidden wordpieces; ``origin`` is the block of the pre-training corpus the sentence came from
    and ``sentence`` its number there; ``excluded`` are the ids of every block of the knowledge corpus that must not be retrieved for it
    (the blocks that hold the sentence verbatim, and its own); ``others`` are the wordpieces of the sentence's other listed spans;
    ``shown`` says that the retriever gets to see the hidden span; the reader never does. Where the sentence was made a question
    (``training/masking/statements.py``), ``ids`` are that question's and there are no ``positions``; ``targets`` answer it.
    """

    ids: TokenIds
    positions: list[int]
    targets: TokenIds
    origin: int
    sentence: int = 0
    excluded: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    others: tuple[tuple[int, ...], ...] = ()
    shown: bool = False

    @property
    def pointed(self) -> TokenIds:
        """The sentence with ONE [MASK] for its hidden span, so that its length is hidden, too. Only for sentences with one hidden span.

        A question hides nothing, and is itself.
        """
        if not self.positions:
            return self.ids
        first, last = self.positions[0], self.positions[-1]
        return [*self.ids[: first + 1], *self.ids[last + 1 :]]

    def as_question(self, ids: TokenIds, excluded: np.ndarray) -> "MaskedQuery":
        """The question ``ids`` with the hidden span as its answer; ``excluded``: ids of the blocks that must not be retrieved for it."""
        return replace(self, ids=ids, positions=[], excluded=excluded, others=(), shown=False)

    @property
    def whole(self) -> TokenIds:
        """The sentence's wordpieces before masking, as far as a query holds them; a question's own."""
        whole = list(self.ids)
        if not self.positions:
            return whole
        for position, target in zip(self.positions, self.targets, strict=True):
            whole[position] = target
        return whole


@dataclass(frozen=True)
class IctExample:
    """A pseudo-query and its block's body, from which the sentence was removed nine times in ten (ORQA, section 5)."""

    query: TokenIds
    title: TokenIds
    body: TokenIds
    block_id: int


@dataclass(frozen=True)
class Question:
    """One question with its accepted answers; ``positive_ids`` are document ids; ``answer_type`` is "string" or "regex".

    ``context`` is the paragraph that a question brings, ``title`` that paragraph's, and ``places`` are the (start, end) code points in it
    at which its answers were marked; without them every occurrence counts. A question with a paragraph and no ``answers`` has none there.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    positive_ids: tuple[str, ...] = ()
    answer_type: str = "string"
    context: str = ""
    title: str = ""
    places: tuple[tuple[int, int], ...] = ()
