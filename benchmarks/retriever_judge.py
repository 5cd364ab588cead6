"""What a retriever finds, dense search alone: of sentences that nobody trained on the hidden span, of questions an answer."""

from pathlib import Path

import numpy as np
import torch

from realm.data.featurize import searched_ids
from realm.data.matching import locate_answers
from realm.data.questions import load_questions
from realm.data.types import MaskedQuery, Sequence
from realm.nn.embedder import Embedder
from realm.nn.precision import multiplying
from realm.recipes.pretrain.task import PretrainTask

DEPTHS = (1, 5, 20)
DEEP = 60
"""Blocks searched for a sentence, of which those that it must not be given are left out."""
AT_ONCE = 64


def searched(task: PretrainTask, queries: list[MaskedQuery]) -> list[Sequence]:
    return [task.context.inputs.featurizer.query(searched_ids(query, pointer=True)) for query in queries]


def embedded(embedder: Embedder, sequences: list[Sequence]) -> np.ndarray:
    """float32 [n, d] of what is asked."""
    embedder.eval()
    with torch.inference_mode(), multiplying("cpu", bf16=True):
        parts = [embedder.embed_queries(sequences[at : at + AT_ONCE]).float() for at in range(0, len(sequences), AT_ONCE)]
    return torch.cat(parts).numpy()


def held_out_hits(
    task: PretrainTask, queries: list[MaskedQuery], embedder: Embedder, block_ids: np.ndarray, vectors: np.ndarray
) -> np.ndarray:
    """bool [n, depths]: whether a block that a sentence may be given and that holds its hidden span is among the best."""
    rows, places = task.context.store.rows_of(block_ids), task.context.inputs.span_places
    found = []
    for query, row in zip(queries, embedded(embedder, searched(task, queries)) @ vectors.T, strict=True):
        best = np.argsort(-row)[:DEEP]
        best = best[~np.isin(block_ids[best], query.excluded)][: max(DEPTHS)]
        held = np.array([bool(places.places(int(rows[at]), query.targets)) for at in best])
        found.append([held[:k].any() for k in DEPTHS])
    return np.array(found)


class Judge:
    """Recall of held-out sentences and of questions."""

    def __init__(self, task: PretrainTask, questions: Path, held_out: int):
        self.task, self.store = task, task.context.store
        self.held_out = task.held_out_queries()[:held_out]
        asked = load_questions(questions)
        self.spans = locate_answers(self.store, asked, "wordpiece")
        features = task.context.inputs.featurizer
        self.asked = [features.query(ids) for ids in self.store.tokenizer.encode([q.text for q in asked])]

    def hits(self, embedder: Embedder, block_ids: np.ndarray, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """bool [n, depths] of sentences and of questions."""
        rows = self.store.rows_of(block_ids)
        scores = embedded(embedder, self.asked) @ vectors.T
        answered = [np.isin(rows[np.argsort(-row)[: max(DEPTHS)]], spans.rows) for row, spans in zip(scores, self.spans, strict=True)]
        questions = np.array([[hit[:k].any() for k in DEPTHS] for hit in answered])
        return {"held_out": held_out_hits(self.task, self.held_out, embedder, block_ids, vectors), "questions": questions}
