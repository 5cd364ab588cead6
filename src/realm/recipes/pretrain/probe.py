"""A fixed set of masked sentences whose retrieval is measured at every refresh: the collapse alarm needs no labels."""

import math

from realm.data.blocks import NULL_ROW
from realm.data.loader import generator
from realm.data.masking import MaskedSentences
from realm.recipes.context import StageContext
from realm.recipes.pretrain.view import PretrainView
from realm.retrieval import Retrieved

COLLAPSE_AFTER = 2
MARGIN = 2.0
"""Standard errors of a recall measured on so few sentences: a fall of less is chance, and an alarm that rings for it is not heeded."""


class ProbeSet:
    """Masked sentences drawn once; recall is the share for which a retrieved document holds the hidden span.

    Args:
        context: the run.
        sentences: where to draw from.
        size: how many at most.
    """

    def __init__(self, context: StageContext, sentences: MaskedSentences, size: int):
        rng = generator("probe", context.seed)
        items = rng.permutation(len(sentences))[:size].tolist()
        self.context = context
        self.queries = [sentences.query(item, rng) for item in items]
        self.history: list[float] = []
        self.retrieved: Retrieved | None = None

    def retrieve(self, view: PretrainView) -> Retrieved:
        """What the generation in use finds for the queries; kept in ``retrieved``."""
        self.retrieved = view.retrieve(self.queries)
        return self.retrieved

    def recall(self, retrieved: Retrieved) -> float:
        """The recall of what :meth:`retrieve` found; appended to the history."""
        rows = self.context.inputs.rows(retrieved.block_ids)
        hits = [
            any(_holds(self.context.store.token_ids(int(row)).tolist(), query.targets) for row in candidates if row != NULL_ROW)
            for query, candidates in zip(self.queries, rows, strict=True)
        ]
        value = sum(hits) / len(hits)
        self.history.append(value)
        return value

    def collapse(self) -> bool:
        """Whether the retriever does worse than that of ICT, with which the stage began."""
        return has_collapsed(self.history, len(self.queries))


def has_collapsed(history: list[float], size: int) -> bool:
    """Whether recall on ``size`` sentences stood clearly below its first value at the last refreshes in a row.

    Args:
        history: recall at every refresh; the first is the ICT retriever's.
        size: sentences that it was measured on.
    """
    first, recent = history[0], history[-COLLAPSE_AFTER:]
    margin = MARGIN * math.sqrt(first * (1 - first) / size)
    return len(history) > COLLAPSE_AFTER and all(first - recall > margin for recall in recent)


def _holds(body: list[int], span: list[int]) -> bool:
    return any(body[i : i + len(span)] == span for i in range(len(body) - len(span) + 1))
