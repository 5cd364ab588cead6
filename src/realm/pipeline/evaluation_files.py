"""What an evaluation leaves for others: predictions as JSON lines, rankings and judgements as TREC files."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from realm.recipes.evaluate import JudgedAnswer, Ranking
from realm.recipes.judged import best_of_documents, falling
from realm.recipes.scoring import Relevance
from realm.storage.files import publish_file

NOTHING = "none"
"""Stands for a document in the judgements of a question that has none: tools average over the questions that they find there."""


def write_predictions(path: Path, readings: Mapping[str, Sequence[JudgedAnswer]]) -> None:
    """One object a question: dataset, id, question, prediction, p, confidence, abstained, answers, correct, f1, and what was read.

    ``question`` and ``prediction`` are what the official evaluation reads. A prediction is spelled as its document spells it; in the
    evidence ``start`` and ``end`` count from the beginning of the document.
    """
    rows = ({"dataset": dataset, **_prediction(reading)} for dataset, answered in readings.items() for reading in answered)
    _write(path, (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows))


def _prediction(reading: JudgedAnswer) -> dict[str, Any]:
    answer, question = reading.answer, reading.question
    return {
        "id": question.id,
        "question": question.text,
        "prediction": answer.answer,
        "p": answer.p,
        "confidence": answer.confidence,
        "abstained": answer.abstained,
        "answers": list(question.answers),
        "answer_type": question.answer_type,
        "correct": reading.correct,
        "f1": reading.f1,
        "evidence": [
            {
                "doc_id": e.doc_id,
                "block_id": e.block_id,
                "p_z": e.p_z,
                "p_span": e.p_span,
                "answer": e.answer,
                "start": e.doc_start + e.start,
                "end": e.doc_start + e.end,
            }
            for e in answer.evidence
        ],
    }


def write_trec(directory: Path, name: str, rankings: Sequence[Ranking], relevance: Relevance) -> None:
    """Rankings and judgements of one dataset in TREC's formats, so that outside tools can measure them.

    NAME.run: blocks by block id. NAME.answer.qrels: those of them that hold an answer, so that success at k is recall by answer.
    NAME.gold.qrels: every block of a gold document, so that success at k is gold recall. NAME.documents.run and NAME.documents.qrels: the
    same by document id, at its best block. The gold files are written if any question names documents. White space and % in ids are
    percent-encoded.
    """
    store = relevance.store
    block_ids = store.block_ids
    lists = [(r.question.id, [str(i) for i in block_ids[r.rows[r.rows >= 0]].tolist()], r.scores[r.rows >= 0].tolist()) for r in rankings]
    _write(directory / f"{name}.run", (line for entry in lists for line in _run_lines(*entry)))
    found = ((r.question.id, block_ids[r.rows[r.by_answer & (r.rows >= 0)]].tolist()) for r in rankings)
    _write(directory / f"{name}.answer.qrels", (line for question, ids in found for line in _qrels_lines(question, ids)))
    golden = [r for r in rankings if r.by_gold is not None]
    if not golden:
        return
    blocks = ((r.question.id, block_ids[np.unique(relevance.gold_rows(r.question))].tolist()) for r in golden)
    _write(directory / f"{name}.gold.qrels", (line for question, ids in blocks for line in _qrels_lines(question, ids)))
    documents = ((r.question.id, *best_of_documents(store, r.rows, r.scores)) for r in rankings)
    _write(directory / f"{name}.documents.run", (line for entry in documents for line in _run_lines(*entry)))
    lines = (line for r in golden for line in _qrels_lines(r.question.id, list(dict.fromkeys(r.question.positive_ids))))
    _write(directory / f"{name}.documents.qrels", lines)


def _run_lines(question: str, ids: Sequence[str], scores: Sequence[float]) -> Iterator[str]:
    for rank, (name, score) in enumerate(zip(ids, falling(scores), strict=True), 1):
        yield f"{_token(question)} Q0 {_token(name)} {rank} {score!r} realm"


def _qrels_lines(question: str, ids: Sequence[Any]) -> Iterator[str]:
    """A relevant document a line; a question without any has one that is not relevant."""
    yield from (f"{_token(question)} 0 {_token(str(name))} 1" for name in ids)
    if not len(ids):
        yield f"{_token(question)} 0 {NOTHING} 0"


def _token(name: str) -> str:
    return re.sub(r"[\s%]", lambda found: quote(found.group(), safe=""), name) or "%00"


def _write(path: Path, lines: Iterator[str]) -> None:
    with publish_file(path) as file:
        for line in lines:
            file.write((line + "\n").encode("utf-8", "replace"))
