"""Masked sentences asked as questions, made of what was retrieved for them or of themselves (``data/statements.py``)."""

import numpy as np

from realm.data.statements import Statements
from realm.data.types import MaskedQuery
from realm.recipes.pretrain.view import PretrainView


def asked_of_own_blocks(statements: Statements, queries: list[MaskedQuery], rngs: dict[int, np.random.Generator]) -> list[MaskedQuery]:
    """The queries, some of them thinned and asked of the blocks that they stand in, of which none is excluded any more.

    Args:
        statements: makes the questions.
        queries: b masked sentences of the knowledge corpus.
        rngs: of those that are asked so, by their number.
    """
    found = list(queries)
    for i, rng in rngs.items():
        found[i] = queries[i].as_question(statements.of_itself(queries[i], rng), excluded=np.empty(0, np.int64))
    return found


def asked_instead(
    view: PretrainView, statements: Statements, queries: list[MaskedQuery], rngs: dict[int, np.random.Generator]
) -> list[MaskedQuery]:
    """The queries, some of them replaced by questions with the same answer. What nothing states that was retrieved stays as it is.

    Args:
        view: the index in use.
        statements: makes the questions.
        queries: b masked sentences.
        rngs: of those that are to be asked, by their number.
    """
    if not rngs:
        return queries
    chosen = [queries[i] for i in rngs]
    retrieved = view.retrieve(chosen)
    places, rows = view.inputs.span_places, view.inputs.rows(retrieved.block_ids)
    found = list(queries)
    for i, query, real, row in zip(rngs, chosen, retrieved.real, rows, strict=True):
        stating = {one: spans for one in row[real].tolist() if (spans := places.places(one, query.targets))}
        asked = statements.as_question(query, list(stating), list(stating.values()), rngs[i])
        if asked is not None:
            found[i] = query.as_question(asked.ids, asked.excluded)
    return found
