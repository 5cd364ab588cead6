"""Batch records and the legend of dimensions.

b examples, k candidates (null at 0), q query length, c block length, j joint length, m mask slots, d projection, h hidden, v vocabulary,
n blocks in the corpus, s candidate spans, t any length."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

TokenIds = list[int]


@dataclass(frozen=True)
class Sequence:
    """One unpadded model input: wordpiece ids and segment ids of the same length."""

    ids: TokenIds
    segments: list[int]

    def __len__(self) -> int:
        return len(self.ids)


class Embedding(Protocol):
    """An embedder as search and publishing call it: ``models/embedder.py`` by torch, ``models/runtime/networks.py`` without."""

    @property
    def unit(self) -> bool:
        """True if vectors have length 1."""

    def embed_questions(self, sequences: SequenceOf[Sequence]) -> np.ndarray:
        """Embeddings float32 [n, d], scaled so that inner products with those of blocks are relevance scores."""

    def embed_blocks(self, sequences: SequenceOf[Sequence], *, bf16: bool = False) -> np.ndarray:
        """Embeddings float32 [n, d]; ``bf16``: multiply in bfloat16 where that is possible."""


@dataclass(frozen=True)
class Spans:
    """Spans of n blocks, or of [b, k] candidates, in a padded body frame: from body wordpiece t with w + 1 wordpieces."""

    scores: np.ndarray  # float32 [n, t, w]
    not_here: np.ndarray  # float32 [n], score of an absent span
    valid: np.ndarray  # bool [n, t, w], inside the body


class Reading(Protocol):
    """A reader as an answerer calls it; ``spec`` is its ReaderSpec."""

    @property
    def spec(self) -> Any: ...

    def read(self, sequences: SequenceOf[Sequence], body_starts: SequenceOf[int]) -> Spans:
        """Scores of the spans of n joint inputs, whose bodies start at ``body_starts``."""


@dataclass(frozen=True)
class MaskedQuery:
    """A sentence with masked wordpieces: one salient span, unless the recipe says otherwise (REALM, section 3.4).

    >>> MaskedQuery(ids=[7, 4, 4, 9], positions=[1, 2], targets=[5, 6], origin=0).whole
    [7, 5, 6, 9]

    A sentence made a question (``training/masking/statements.py``) has the question's ``ids``, no ``positions``, and its answer as targets.
    """

    ids: TokenIds  # with [MASK] for hidden wordpieces, without special tokens
    positions: list[int]  # of the masks in ``ids``, ascending
    targets: TokenIds  # hidden wordpieces
    origin: int  # block of the pre-training corpus
    sentence: int = 0  # number of the sentence in that block
    # Knowledge blocks that must not be retrieved: its own, and those with this sentence.
    excluded: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    others: tuple[tuple[int, ...], ...] = ()  # wordpieces of the sentence's other listed spans
    shown: bool = False  # the retriever, but never the reader, sees the hidden span
    begun: tuple[str, str] = ("", "")  # text of ``ids`` and of the sentence's rest, where a language model continues it

    @property
    def pointed(self) -> TokenIds:
        """The sentence with ONE [MASK] for its one hidden span, so that its length is hidden, too; a question unchanged."""
        if not self.positions:
            return self.ids
        first, last = self.positions[0], self.positions[-1]
        return [*self.ids[: first + 1], *self.ids[last + 1 :]]

    def as_question(self, ids: TokenIds, excluded: np.ndarray) -> "MaskedQuery":
        """Question with the hidden span as its answer; ``excluded`` are block ids that must not be retrieved for it."""
        return replace(self, ids=ids, positions=[], excluded=excluded, others=(), shown=False)

    @property
    def whole(self) -> TokenIds:
        """Wordpieces of the sentence before masking, as far as a query holds them; of a question, its own."""
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
    """One question with its accepted answers.

    >>> Question("1", "Who built it?", ("Eiffel", "Gustave Eiffel")).answer_type
    'string'

    Without ``places`` every occurrence of an answer in ``context`` counts; a question with a paragraph and no ``answers`` has none there.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    positive_ids: tuple[str, ...] = ()  # document ids
    answer_type: str = "string"  # "string" or "regex"
    context: str = ""  # the question's paragraph
    title: str = ""  # of the paragraph
    places: tuple[tuple[int, int], ...] = ()  # (start, end) code points of the marked answers in ``context``
