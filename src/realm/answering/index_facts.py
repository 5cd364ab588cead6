"""Facts of ``realm index info``: the index of a run, its kind of search, and its recall against exact search."""

from typing import Any

import numpy as np

from realm.answering.opening import OpenRun
from realm.search.index.choice import LiveIndex
from realm.search.index.mips import recall_against
from realm.storage.files import bytes_below

RECALL_DEPTHS = (5, 20, 100)
RECALL_QUERIES = 64  # queries that measure the recall of an index


def index_facts(opened: OpenRun) -> dict[str, Any]:
    """Facts printed by ``realm index build``."""
    manifest = opened.generation.snapshot.manifest
    size = bytes_below(opened.paths.index / f"{opened.generation.number:06d}")
    return {
        "generation": manifest.generation,
        "step": manifest.step,
        "blocks": int(np.sum(np.isin(opened.inputs.store.block_ids[opened.inputs.store.live], opened.generation.snapshot.block_ids))),
        "missing": opened.unsearchable,
        "dim": manifest.dim,
        "dtype": manifest.dtype,
        "bytes": size,
        "document_embedder_sha256": manifest.document_embedder_sha256,
        "versions": opened.versions,
    }


def searching_facts(opened: OpenRun) -> dict[str, Any]:
    """Further facts of ``realm index info``: the kind of search, and its recall against exact search.

    Recall is measured now, on RECALL_QUERIES sentences spread evenly over the run's own blocks, each as a query without its own block."""
    index, store = opened.generation.index, opened.inputs.store
    facts = index.info()
    rows = np.flatnonzero(store.newest().is_live(store.block_ids) & store.live)
    rows = rows[np.linspace(0, len(rows) - 1, min(RECALL_QUERIES, len(rows))).astype(np.int64)]
    rows = rows[[len(store.sentences(int(row)).tokens) > 0 for row in rows]]
    measured: dict[str, float] = {}
    if len(rows):
        exact = LiveIndex(opened.generation.snapshot.vectors, opened.generation.snapshot.block_ids, store, kind="exact")
        own = [np.array([block_id]) for block_id in store.block_ids[rows]]
        recall = recall_against(exact, index, _sentence_queries(opened, rows), RECALL_DEPTHS, own)
        measured = {str(k): round(value, 4) for k, value in recall.items()}
    return {
        **{name: value for name, value in facts.items() if name not in ("dim", "bytes")},
        "memory_bytes": facts["bytes"],
        "recall": measured,
        "recall_measured_on": f"{len(rows)} sentences of the run's own blocks, each searched without its block, against exact search",
    }


def _sentence_queries(opened: OpenRun, rows: np.ndarray) -> np.ndarray:
    """Embedded queries [r,d]: the middle sentence of each block, which must have one."""
    store, featurizer = opened.inputs.store, opened.inputs.featurizer
    queries = []
    for row in rows.tolist():
        sentences = store.sentences(row).tokens
        start, end = (int(place) for place in sentences[len(sentences) // 2])
        queries.append(featurizer.query(store.token_ids(row)[start:end].tolist()))
    return opened.source.embedder.embed_questions(queries)
