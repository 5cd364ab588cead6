"""Evaluation of a stage: recall of the retriever before and after fine-tuning, exact match of the answers."""

from collections.abc import Sequence as SequenceOf
from typing import Any

import numpy as np
import torch

from realm.answerer import Answer, Answerer
from realm.candidates import Source
from realm.data.types import Question
from realm.recipes.scoring import Relevance, bootstrap_interval, f1_mean, is_correct, recall_at

SEARCH_BATCH = 64


@torch.inference_mode()
def evaluate_retrieval(source: Source, relevance: Relevance, questions: SequenceOf[Question], depths: SequenceOf[int]) -> dict[str, Any]:
    """Recall by answer string and by gold document: {"recall": {k: share}, "recall_gold": {k: share} or None, "n"}.

    Gold recall is over questions that name positive documents; None when none does.
    """
    source.eval()
    by_answer, by_gold = [], []
    for at in range(0, len(questions), SEARCH_BATCH):
        batch = list(questions[at : at + SEARCH_BATCH])
        tokens = relevance.store.tokenizer.encode([q.text for q in batch])
        found = source([q.text for q in batch], tokens, max(depths))
        for question, rows in zip(batch, found.rows, strict=True):
            by_answer.append(relevance.by_answer(question, rows))
            if question.positive_ids:
                by_gold.append(relevance.by_gold(question, rows))
    gold = recall_at(by_gold, depths) if by_gold else None
    return {"n": len(questions), "recall": recall_at(by_answer, depths), "recall_gold": gold}


def evaluate_answers(answerer: Answerer, relevance: Relevance, questions: SequenceOf[Question], *, read: int) -> dict[str, Any]:
    """Exact match with its bootstrap interval, F1, and the reader oracle (an answer stands in a block that was read)."""
    answers = answerer.answer([q.text for q in questions], k=read)
    hits = [is_correct(a.answer, q) for a, q in zip(answers, questions, strict=True)]
    oracle = []
    for answer, question in zip(answers, questions, strict=True):
        rows = relevance.store.rows_of(_ids(answer))
        oracle.append(bool(relevance.by_answer(question, rows).any()))
    return {
        "n": len(questions),
        "em": sum(hits) / len(hits),
        "em_interval": list(bootstrap_interval(hits)),
        "f1": f1_mean(answers, questions),
        "reader_oracle": sum(oracle) / len(oracle),
    }


def _ids(answer: Answer) -> np.ndarray:
    """Block ids of the blocks that were read. int64 [k]."""
    return np.array([e.block_id for e in answer.evidence], np.int64)
