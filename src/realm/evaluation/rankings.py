"""Retrieval measured against judgements: documents ranked by their best block, scored by ir-measures (nDCG@10, reciprocal rank, recall)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from realm.documents.store.blocks import BlockStore
from realm.errors import DataError, MissingExtra
from realm.evaluation.judged import Judged
from realm.evaluation.measures import bootstrap_interval
from realm.progress import Counting
from realm.search.candidates import Source

BATCH = 64


def evaluate_judged(
    source: Source, store: BlockStore, judged: Judged, depths: Sequence[int], *, counting: Counting | None = None
) -> dict[str, Any]:
    """{"n", "ndcg_10", "ndcg_10_interval", "mrr", "mrr_interval", "recall": {depth: value}, "unknown_documents"}: means over queries.

    Args and errors are those of :func:`judged_values`.
    """
    values, unknown = judged_values(source, store, judged, depths, counting=counting)
    means = {name: float(np.mean(found)) for name, found in values.items()}
    return {
        "n": len(judged.queries),
        "ndcg_10": means["ndcg_10"],
        "ndcg_10_interval": list(bootstrap_interval(values["ndcg_10"].tolist())),
        "mrr": means["mrr"],
        "mrr_interval": list(bootstrap_interval(values["mrr"].tolist())),
        "recall": {str(depth): means[f"recall_{depth}"] for depth in depths},
        "unknown_documents": unknown,
    }


def judged_values(
    source: Source, store: BlockStore, judged: Judged, depths: Sequence[int], *, counting: Counting | None = None
) -> tuple[dict[str, np.ndarray], int]:
    """Measures of each query, [n] each in the order of ``judged.queries``, and how many judged documents are unknown.

    They are "ndcg_10", "mrr" and "recall_DEPTH": ``mrr`` is the reciprocal rank within the deepest of ``depths``, at least 10, and recall
    the share of a query's relevant documents. Judged documents that the corpus does not have count as not found.

    Raises:
        DataError: the corpus has none of the judged documents.
        MissingExtra: ir-measures is not installed.
    """
    try:
        import ir_measures
        from ir_measures import RR, R, nDCG
    except ImportError:
        raise MissingExtra("measuring retrieval against judgements", "eval") from None
    wanted = {document for grades in judged.grades.values() for document in grades}
    unknown = wanted - set(store.documents())
    if unknown == wanted:
        raise DataError(
            "the corpus has none of the judged documents", path=store.path, cure="Build it from the collection's own documents."
        )
    ranked = rank_documents(source, store, judged.queries, max(10, *depths), counting=counting)
    run = {query: dict(zip(documents, falling(scores), strict=True)) for query, (documents, scores) in ranked.items()}
    names: dict[Any, str] = {nDCG @ 10: "ndcg_10", RR: "mrr", **{R @ depth: f"recall_{depth}" for depth in depths}}
    place = {query: at for at, query in enumerate(judged.queries)}
    values = {name: np.zeros(len(place)) for name in names.values()}
    for found in ir_measures.iter_calc(list(names), judged.grades, run):
        values[names[found.measure]][place[found.query_id]] = found.value
    return values, len(unknown)


@torch.inference_mode()
def rank_documents(
    source: Source, store: BlockStore, queries: Mapping[str, str], depth: int, *, counting: Counting | None = None
) -> dict[str, tuple[list[str], list[float]]]:
    """For each query at most ``depth`` documents, best first, and the scores of their best blocks.

    Deeper and deeper, until each query has so many documents or all blocks have been looked at.
    """
    source.eval()
    names = list(queries)
    ranked: dict[str, tuple[list[str], list[float]]] = {}
    for at in range(0, len(names), BATCH):
        part = names[at : at + BATCH]
        texts = [queries[name] for name in part]
        tokens = store.tokenizer.encode(texts)
        blocks = 2 * depth
        while True:
            found = source(texts, tokens, blocks)
            lists = [best_of_documents(store, *pair, depth) for pair in zip(found.rows, found.scores.float().cpu().numpy(), strict=True)]
            if blocks >= len(store) or all(len(documents) == depth for documents, _ in lists):
                break
            blocks *= 2
        ranked.update(zip(part, lists, strict=True))
        if counting:
            counting("eval: judged queries searched", len(ranked), len(names))
    return ranked


def best_of_documents(store: BlockStore, rows: np.ndarray, scores: np.ndarray, depth: int | None = None) -> tuple[list[str], list[float]]:
    """The documents of ranked blocks [k], each once, at its best block."""
    found: dict[str, float] = {}
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        if row >= 0 and len(found) != depth:
            found.setdefault(store.doc_id(row), score)
    return list(found), list(found.values())


def falling(scores: Sequence[float]) -> list[float]:
    """Scores that fall strictly, as little changed as float32 allows: outside tools sort by score alone, and break ties otherwise."""
    strict: list[float] = []
    last = np.float32(np.inf)
    for score in np.asarray(scores, np.float32):
        last = score if score < last else np.nextafter(last, np.float32(-np.inf))
        strict.append(float(last))
    return strict
