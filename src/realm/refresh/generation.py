"""An opened generation: the index, and the embedder that made it."""

import logging
from dataclasses import dataclass

import numpy as np
import torch

from realm.config import run_index_kind
from realm.data.blocks import BlockInputs
from realm.errors import RealmError, SnapshotError
from realm.index.generations import generation_path, published_generations, quarantine
from realm.index.live import LiveIndex
from realm.index.mips import MipsIndex
from realm.index.snapshot import Snapshot
from realm.nn.embedder import Embedder
from realm.nn.model import RealmModel, state_sha256
from realm.paths import RunPaths
from realm.refresh.parameters import parameters_path, read_facts

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Generation:
    """An opened generation: the published document embedder, in evaluation mode and frozen, and the index it made.

    ``query_embedder`` is there when queries have an embedder of their own.
    """

    snapshot: Snapshot
    embedder: Embedder
    index: MipsIndex
    query_embedder: Embedder | None = None

    @property
    def queries(self) -> Embedder:
        """The embedder of the query side: the document side's own, unless there are two."""
        return self.query_embedder or self.embedder

    @property
    def number(self) -> int:
        return self.snapshot.manifest.generation

    @property
    def step(self) -> int:
        """Optimiser steps behind the parameters that made it."""
        return self.snapshot.manifest.step


def open_generation(
    paths: RunPaths,
    inputs: BlockInputs,
    number: int | None = None,
    *,
    document_embedder_sha256: str | None = None,
    device: torch.device | str = "cpu",
    previous: Generation | None = None,
) -> Generation:
    """Open a published generation (the newest valid one by default) with the embedder that made it.

    A damaged index, or one whose parameters are damaged or gone, is put aside, and the next older one is taken unless ``number`` is given.

    Args:
        previous: the generation before, or this one before a delta: a clustered index starts from its clusters. What such an index finds
            then depends on it; None where a resumed run must find the same.

    Raises:
        SnapshotError: none is there, or it belongs to another corpus, tokenizer or embedder.
        RunError: the parameters of the only one cannot be read.
    """
    store = inputs.store
    snapshot = Snapshot.open(
        paths.index,
        number,
        corpus_id=store.manifest.corpus_id,
        tokenizer_sha256=store.manifest.tokenizer_sha256,
        document_embedder_sha256=document_embedder_sha256,
    )
    opened = snapshot.manifest.generation
    try:
        published = load_parameters(paths, snapshot)
    except RealmError as error:
        older = [other for other in published_generations(paths.index) if other < opened]
        cause = error.__cause__
        refused = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)  # no damage as far as we know
        if number is not None or not older or refused:
            raise
        quarantine(generation_path(paths.index, opened), error)
        return open_generation(paths, inputs, document_embedder_sha256=document_embedder_sha256, device=device, previous=previous)
    published = published.to(torch.device(device)).eval().requires_grad_(False)
    vectors = snapshot.vectors if torch.device(device).type == "cpu" else torch.from_numpy(np.asarray(snapshot.vectors)).to(device)
    queries = None if published.document_embedder is None else published.embedder
    before = previous.index if previous is not None and isinstance(previous.index, LiveIndex) else None
    ids, kind = np.asarray(snapshot.block_ids), run_index_kind(paths.config)
    index = LiveIndex(vectors, ids, store, kind=kind, codes=snapshot.codes, previous=before)
    return Generation(snapshot, published.documents, index, queries)


def load_parameters(paths: RunPaths, snapshot: Snapshot) -> RealmModel:
    """The parameters that made a snapshot.

    Raises:
        SnapshotError: they are others.
        RunError: they are gone or cannot be read.
    """
    directory = parameters_path(paths, snapshot.manifest.params_generation)
    published = RealmModel.from_pretrained(directory)
    facts = read_facts(directory)
    foreign = state_sha256(published.documents) != snapshot.manifest.document_embedder_sha256
    if foreign or (facts is not None and facts.sha256 != state_sha256(published)):
        raise SnapshotError("the parameters are not those that embedded the index", path=directory, cure="Run: realm index build RUN")
    return published
