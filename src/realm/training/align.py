"""Sentences beside the documents that raise their likelihood: what a trained retriever and encoder say belongs together."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from realm.answering.cloze import MASK, words_left
from realm.answering.opening import OpenRun
from realm.answering.records import DocumentEffect
from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError, RunError
from realm.models.featurize import searched_ids
from realm.models.types import MaskedQuery
from realm.recipe.seeds import generator
from realm.search.retriever import NULL_INDEX, Retriever
from realm.storage.metrics import MetricsLog
from realm.training.context import StageContext
from realm.training.pretrain.monitor import ReadSentence, read_sentences
from realm.training.pretrain.sentences import pretraining_sentences

BATCH = 16
Row = dict[str, Any]


@dataclass(frozen=True)
class AlignOptions:
    """Sentences that are drawn evenly (0: all), documents read with each, the null one counted, and the utility that one must exceed."""

    limit: int = 1000
    k: int = 8
    least: float = 0.0


@torch.inference_mode()
def align(run: OpenRun, options: AlignOptions, write: Callable[[Row], None], progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Read masked sentences of the pre-training corpus with retrieved documents; write those that documents make likelier, in corpus order.

    The same span is masked at every call; blocks that hold the sentence are not retrieved. Rows are {"sentence", "masked", "targets",
    "doc_id", "block_id", "p_y", "p_y_null", "documents": [{"doc_id", "block_id", "title", "text", "p_z", "p_y_given_z", "r", "utility"}]},
    the most useful first. Returns {"sentences": read, "aligned": rows, "documents": kept, "utility": their mean or None}.

    Raises ConfigError: an option out of range; RunError: the model cannot fill masks; CorpusError: no sentence can be masked.
    """
    _check(run, options)
    device = next(run.pretrained.parameters()).device
    context = StageContext(run.paths, run.recipe, run.inputs, device, MetricsLog(run.paths.metrics), lambda *_: None)
    sentences = pretraining_sentences(context)
    items = _chosen(len(sentences), options.limit)
    retriever = Retriever(run.generation.queries.embed_questions, run.generation.index, run.hybrid)
    utilities: list[float] = []
    aligned = 0
    for at in range(0, len(items), BATCH):
        queries = [sentences.query(item, generator("align", context.seed, item)) for item in items[at : at + BATCH]]
        embedded = [run.inputs.featurizer.query(searched_ids(query, pointer=run.recipe.pretrain.fill == "pointer")) for query in queries]
        excluded = [query.excluded for query in queries]
        texts = [] if run.hybrid is None else words_left(sentences.store, queries)
        retrieved = retriever.retrieve(embedded, options.k, null=True, exclude=excluded, texts=texts)
        read = read_sentences(context, run.pretrained, sentences.store, queries, retrieved)
        for query, found in zip(queries, read, strict=True):
            helping = _helping(found, options.least)
            if helping:
                write(_row(run.inputs.store, sentences.store, query, found, helping))
                aligned += 1
                utilities += [utility for utility, _ in helping]
        progress(at + len(queries), len(items))
    mean = float(np.mean(utilities)) if utilities else None
    return {"sentences": len(items), "aligned": aligned, "documents": len(utilities), "utility": mean}


def _check(run: OpenRun, options: AlignOptions) -> None:
    if options.limit < 0 or options.k < 2:
        cure = "Give at least two: the null document and one more. A limit of 0 takes every sentence."
        raise ConfigError(f"limit = {options.limit} and k = {options.k} align nothing", cure=cure)
    if not run.pretrained.has("embedder") or not (run.pretrained.has("encoder") or run.pretrained.has("reader")):
        problem = "this run's model cannot fill masks: it lacks an embedder, or what reads"
        raise RunError(problem, path=run.paths.stage("pretrain"), cure="Align with a run of its own pre-training.")


def _chosen(count: int, limit: int) -> list[int]:
    """All sentences, or so many, evenly spread."""
    if not limit or limit >= count:
        return list(range(count))
    return np.linspace(0, count - 1, limit).round().astype(int).tolist()


def _helping(found: ReadSentence, least: float) -> list[tuple[float, DocumentEffect]]:
    """(utility, document) of those above the threshold, the most useful first."""
    known = [(c.utility, c) for c in found.candidates if not c.null and c.utility is not None and c.utility > least]
    return sorted(known, key=lambda pair: (-pair[0], pair[1].block_id))


def _row(
    store: BlockStore, sentences: BlockStore, query: MaskedQuery, found: ReadSentence, helping: list[tuple[float, DocumentEffect]]
) -> dict[str, Any]:
    sentence = found.text
    for target in found.targets:
        sentence = sentence.replace(MASK, target, 1)
    documents = []
    for _, candidate in helping:
        numbers = {name: value for name, value in asdict(candidate).items() if name != "null"}
        documents.append({"doc_id": _document(store, candidate.block_id), **numbers})
    return {
        "sentence": sentence,
        "masked": found.text,
        "targets": list(found.targets),
        "doc_id": _document(sentences, query.origin),
        "block_id": query.origin,
        "p_y": found.p_y,
        "p_y_null": found.candidates[NULL_INDEX].p_y_given_z,
        "documents": documents,
    }


def _document(store: BlockStore, block_id: int) -> str:
    return store.doc_id(int(store.rows_of(np.array([block_id]))[0]))
