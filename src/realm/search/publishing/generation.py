"""A generation: the index with its embedder; and the verification of all of a run's generations."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.errors import RealmError, RunError, SnapshotError
from realm.models.runtime.model import learning_model
from realm.recipe import run_index_kind
from realm.search.blocks import BlockInputs
from realm.search.index.choice import LiveIndex
from realm.search.index.mips import MipsIndex
from realm.search.publishing.parameters import check_parameters, parameters_path, read_facts
from realm.search.publishing.snapshot import REBUILD_CURE, Snapshot, read_generation, read_manifest
from realm.search.sparse import verify_sparse
from realm.storage.generations import generation_path, published_generations, quarantine
from realm.storage.layout import RunPaths
from realm.storage.manifests import is_sealed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Generation:
    """An opened generation: the published document embedder, frozen, and its index; embedders are as ``models.types.Embedding``.
    ``query_embedder`` exists if queries have an embedder of their own; ``make_index`` is called when ``index`` is first used."""

    snapshot: Snapshot
    embedder: Any
    make_index: Callable[[Snapshot], MipsIndex]
    query_embedder: Any = None
    device: str = "cpu"  # that scans the vectors

    @cached_property
    def index(self) -> MipsIndex:
        return self.make_index(self.snapshot)

    @property
    def queries(self) -> Any:
        """The embedder of the query side: the document side's own, unless there are two."""
        return self.query_embedder or self.embedder

    @property
    def number(self) -> int:
        return self.snapshot.manifest.generation

    @property
    def step(self) -> int:
        """Optimiser steps behind its parameters."""
        return self.snapshot.manifest.step


def _owner(store: BlockStore) -> dict[str, str]:
    return {"corpus_id": store.manifest.corpus_id, "tokenizer_sha256": store.manifest.tokenizer_sha256}


def open_generation(
    paths: RunPaths,
    inputs: BlockInputs,
    number: int | None = None,
    *,
    document_embedder_sha256: str | None = None,
    device: Any = "cpu",
    model: Any = None,
    load: Callable[[Path], Any] = learning_model,
    verify: bool = True,
) -> Generation:
    """Open a published generation with its embedder.

    A damaged index, or one with damaged or missing parameters, is moved aside, and the next older one is used unless ``number`` is given.

    Args:
        number: of the generation; None: the newest valid one.
        document_embedder_sha256: of the embedder that it must belong to.
        device: of the embedder and the index.
        model: the embedders, a RealmModel or a RuntimeModel; None: they are read from the published parameters, by ``load``.
        verify: compare the checksum of every file; False right after writing them.

    Raises SnapshotError: none is there, it belongs to another corpus, tokenizer or embedder, or the parameters of the only one are damaged.
    """
    store = inputs.store
    snapshot = Snapshot.open(paths.index, number, **_owner(store), document_embedder_sha256=document_embedder_sha256, verify=verify)
    opened = snapshot.manifest.generation
    try:
        published = load_parameters(paths, snapshot, load) if model is None else model
    except RealmError as error:
        older = [other for other in published_generations(paths.index) if other < opened]
        cause = error.__cause__
        refused = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)  # no damage as far as we know
        if number is not None or not older or refused:
            raise
        quarantine(generation_path(paths.index, opened), error)
        return open_generation(paths, inputs, document_embedder_sha256=document_embedder_sha256, device=device, load=load)
    if hasattr(published, "requires_grad_"):
        published = published.to(device).eval().requires_grad_(False)
    queries = None if not published.has("document_embedder") else published.embedder
    make_index = _index_maker(paths, store, str(device))
    return Generation(snapshot, published.documents, make_index, queries, str(device))


def extended(generation: Generation, paths: RunPaths, inputs: BlockInputs) -> Generation:
    """Reopen the generation if its manifest has changed, and verify it again: its files may have been damaged since it was opened. Raises
    SnapshotError: it is gone or damaged."""
    if read_manifest(generation_path(paths.index, generation.number), generation.number) == generation.snapshot.manifest:
        return generation
    sha256 = generation.snapshot.manifest.document_embedder_sha256
    snapshot = Snapshot.open(paths.index, generation.number, **_owner(inputs.store), document_embedder_sha256=sha256, verify=True)
    return replace(generation, snapshot=snapshot, make_index=_index_maker(paths, inputs.store, generation.device))


def _index_maker(paths: RunPaths, store: BlockStore, device: str) -> Callable[[Snapshot], MipsIndex]:
    def make(snapshot: Snapshot) -> MipsIndex:
        return LiveIndex(snapshot.vectors, np.asarray(snapshot.block_ids), store, run_index_kind(paths.config), device)

    return make


def load_parameters(paths: RunPaths, snapshot: Snapshot, load: Callable[[Path], Any] = learning_model) -> Any:
    """The parameters that made a snapshot. Raises SnapshotError: they are others, damaged, or gone."""
    directory = parameters_path(paths, snapshot.manifest.params_generation)
    try:
        published = load(directory)
    except RunError as error:  # the index is of no use then, and both are made again together
        raise SnapshotError(error.problem, path=error.path, cure=REBUILD_CURE) from error.__cause__ or error
    facts = read_facts(directory) if is_sealed(directory) else None  # then the weights are those that it speaks of
    documents = published.documents_sha256() if facts is None else facts.documents
    if documents != snapshot.manifest.document_embedder_sha256:
        raise SnapshotError("the parameters are not those that embedded the index", path=directory, cure="Run: realm index build RUN")
    return published


def read_through(paths: RunPaths, inputs: BlockInputs, number: int) -> tuple[int | None, list[RealmError]]:
    """Read every byte of a generation, its parameters and its sparse index: its blocks, None if unknown, and the errors found."""
    blocks: int | None = None
    found: list[RealmError] = []
    try:
        snapshot = read_generation(generation_path(paths.index, number), number, dict(_owner(inputs.store)), verify=True)
        blocks = len(snapshot.block_ids)
        if not paths.wrapped.exists():
            load_parameters(paths, snapshot)
            check_parameters(parameters_path(paths, snapshot.manifest.params_generation))
    except RealmError as error:
        found.append(error)
    try:
        verify_sparse(paths.index, number)
    except RealmError as error:
        found.append(error)
    return blocks, found
