"""Where the answers of a question stand in the corpus, wordpiece by wordpiece."""

from collections.abc import Sequence as SequenceOf

import numpy as np

from realm.corpus.blocks import BlockStore
from realm.data.questions import load_questions
from realm.data.types import Question

__all__ = ["AnswerLocator", "answer_wordpieces", "load_questions"]


class AnswerLocator:
    """Finds wordpiece sequences in the whole corpus through one inverted list, built once.

    A question's answers are then located without tokenising or scanning a block again.

    Args:
        store: the corpus; tombstoned rows are found too, the search never returns them.
    """

    def __init__(self, store: BlockStore):
        self.store = store
        lengths = np.array([len(store.token_ids(row)) for row in range(len(store))], np.int64)
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        self._tokens = np.concatenate([store.token_ids(row) for row in range(len(store))]) if len(store) else np.empty(0, np.uint16)
        self._order = np.argsort(self._tokens, kind="stable")
        counts = np.bincount(self._tokens, minlength=store.tokenizer.vocab_size)
        self._from = np.concatenate([[0], np.cumsum(counts)])

    def occurrences(self, ids: SequenceOf[int]) -> tuple[np.ndarray, np.ndarray]:
        """Rows and body positions at which ``ids`` stands as contiguous wordpieces, both int64 [n], in corpus order."""
        if not ids or max(ids) >= len(self._from) - 1:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        counts = [int(self._from[i + 1] - self._from[i]) for i in ids]
        rarest = int(np.argmin(counts))
        at = np.sort(self._order[self._from[ids[rarest]] : self._from[ids[rarest] + 1]]) - rarest
        at = at[(at >= 0) & (at + len(ids) <= len(self._tokens))]
        for offset, wordpiece in enumerate(ids):
            at = at[self._tokens[at + offset] == wordpiece]
        rows = np.searchsorted(self._starts, at, side="right") - 1
        inside = at + len(ids) <= self._starts[rows + 1]
        return rows[inside], (at - self._starts[rows])[inside]

    def spans(self, answers: SequenceOf[SequenceOf[int]]) -> dict[int, list[tuple[int, int]]]:
        """Row -> (start, end) wordpiece spans in its body that equal one of the answers, each once."""
        found: dict[int, list[tuple[int, int]]] = {}
        for ids in dict.fromkeys(map(tuple, answers)):
            for row, start in zip(*(part.tolist() for part in self.occurrences(ids)), strict=True):
                found.setdefault(row, []).append((start, start + len(ids)))
        return found


def answer_wordpieces(store: BlockStore, question: Question) -> list[list[int]]:
    """The wordpieces of a question's string answers; [] for regex answers, which have none."""
    if question.answer_type == "regex":
        return []
    return [ids for ids in store.tokenizer.encode(list(question.answers)) if ids]
