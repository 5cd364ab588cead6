"""Of which blocks a reader is told whether they hold an answer, and what it says of them.

"When was the bridge built?" names no bridge. Asked of notes on one bridge, it has an answer there; asked of an encyclopaedia, a block
about another bridge looks the same and holds a wrong one. A reader that learns "not here" for all those abstains on the notes, too. So
a question that does not name its subject is judged within the documents that it was asked about, and those of the same title.
"""

from collections.abc import Sequence

import numpy as np
import regex
from torch import Tensor

from realm.documents.store.blocks import BlockStore
from realm.models.reader import SpanScores
from realm.models.types import Question
from realm.text.words import words

_NAME = regex.compile(r"(?<=\s)[^\s\p{L}\p{N}]*[\p{Lu}\p{N}]")
"""A word that begins with a capital letter or a digit, but for the first."""


class Subjects:
    """What questions were asked about.

    Args:
        questions: those without documents of their own are judged in every block, and so are those of documents without a title.
    """

    def __init__(self, store: BlockStore, questions: Sequence[Question]):
        self._store = store
        self._within = [_titles(store, question) for question in questions]

    def known(self, items: Sequence[int], rows: np.ndarray) -> np.ndarray:
        """Bool [b, k]: the blocks of rows [b, k] that answer a question or do not, as it is asked. NO_ROW is neither."""
        return np.array([[self._tells(item, row) for row in found] for item, found in zip(items, rows.tolist(), strict=True)])

    def _tells(self, item: int, row: int) -> bool:
        within = self._within[item]
        return row >= 0 and (within is None or self._store.block(row).title in within)


def _titles(store: BlockStore, question: Question) -> frozenset[str] | None:
    """Titles of the documents that a question is judged in; None: in all."""
    rows = [rows[0] for name in question.positive_ids if len(rows := store.rows_of_document(name))]
    titles = frozenset(store.block(int(row)).title for row in rows)
    return titles if titles and all(titles) and not names_subject(question.text, titles) else None


def names_subject(question: str, titles: frozenset[str]) -> bool:
    """Whether a question says what it is about: a name, a number, or more than half of the words of its document's title."""
    asked = set(words(question))
    return bool(_NAME.search(question)) or any(2 * len(asked & named) > len(named) for title in titles if (named := set(words(title))))


def presence_scores(spans: SpanScores, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of a reader that points: of a block's spans together and of "not here", [b, k] each; 0 where there are no spans."""
    here = spans.logits.flatten(2).masked_fill(~spans.valid.flatten(2), float("-inf")).logsumexp(-1) - relevance
    return here.masked_fill(~blocks_read(spans), 0.0), spans.not_here


def blocks_read(spans: SpanScores) -> Tensor:
    """The blocks that have spans, [b, k]."""
    return spans.valid.flatten(2).any(-1)
