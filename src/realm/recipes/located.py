"""Where the answers of questions stand in the corpus: located once for all questions, kept in the run, shared by all stages and ranks."""

import hashlib
import json
from pathlib import Path

import numpy as np

from realm.data import matching
from realm.data.matching import Spans
from realm.data.types import Question
from realm.paths import load_array, publish_file
from realm.recipes.context import StageContext
from realm.train.distributed import on_first

NO_SPAN = (-1, -1)
"""Stands for a row that holds an answer of which no wordpieces can be marked."""


def locate_answers(context: StageContext, questions: list[Question]) -> list[Spans]:
    """The spans of each question's string answers, matched as ``finetune.match`` says.

    They are kept in ``RUN/answers`` under a hash of the corpus, its version, the way to match and the answers; what lies there damaged is
    made anew. The first rank locates, the others read.
    """
    store, match = context.store, context.recipe.finetune.match
    answers = [[q.answer_type, *q.answers] for q in questions]
    known = [store.manifest.corpus_id, store.version, store.manifest.tokenizer_sha256, match, answers]
    key = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    path = context.paths.answers / f"{key}.npy"

    def locate() -> None:
        if _read(path) is None:
            found = matching.locate_answers(store, questions, match)
            rows = [(i, row, *span) for i, spans in enumerate(found) for row, places in spans.items() for span in places or [NO_SPAN]]
            with publish_file(path) as file:
                np.save(file, np.array(rows, np.int64).reshape(-1, 4))

    on_first(locate)
    table = _read(path)
    assert table is not None, path
    spans: list[Spans] = [{} for _ in questions]
    for question, row, start, end in table.tolist():
        spans[question].setdefault(row, []).extend([] if (start, end) == NO_SPAN else [(start, end)])
    return spans


def _read(path: Path) -> np.ndarray | None:
    """[n, 4] question, row, start and end; None where there is no such file or a damaged one."""
    try:
        table = load_array(path)
    except (OSError, ValueError, EOFError):
        return None
    return table if isinstance(table, np.ndarray) and table.ndim == 2 and table.shape[1] == 4 and table.dtype == np.int64 else None
