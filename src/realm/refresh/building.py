"""New generations of the index, and documents added to one that is there."""

import copy

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.data.blocks import BlockInputs
from realm.errors import SnapshotError
from realm.index.delta import append_delta
from realm.index.merging import merge_shards
from realm.index.snapshot import SnapshotFacts, current_generation, publish_snapshot
from realm.nn.embedder import Embedder
from realm.nn.model import RealmModel, state_sha256
from realm.paths import RunPaths
from realm.refresh.embedding import EmbedOptions, PartsOf, Progress, embed_parts
from realm.refresh.generation import Generation, extended, open_generation
from realm.refresh.locks import publishing
from realm.refresh.parameters import answering, parameters_path, prune_run, request_index

ALONE = EmbedOptions()


def snapshot_facts(store: BlockStore, rows: np.ndarray, embedder: Embedder, *, params_generation: int, step: int) -> SnapshotFacts:
    """The facts of an index of ``rows`` of a corpus under a document embedder."""
    return SnapshotFacts(
        params_generation=params_generation,
        step=step,
        document_embedder_sha256=state_sha256(embedder),
        corpus_id=store.manifest.corpus_id,
        tokenizer_sha256=store.manifest.tokenizer_sha256,
        corpus_version=store.version,
        tombstone_version=store.version,
        segments=_segments(store, rows),
    )


def _segments(store: BlockStore, rows: np.ndarray) -> tuple[tuple[str, int], ...]:
    """(segment, how many of ``rows``) in row order; ``rows`` ascend."""
    ends = np.cumsum([segment.rows for segment in store.segments])
    counts = np.diff(np.searchsorted(rows, ends), prepend=0)
    return tuple((s.info.name, int(n)) for s, n in zip(store.segments, counts, strict=True) if n)


def build_generation(
    paths: RunPaths,
    inputs: BlockInputs,
    number: int,
    embedder: Embedder,
    step: int,
    options: EmbedOptions,
    progress: Progress | None = None,
    parts_of: PartsOf = embed_parts,
) -> None:
    """Embed every live block under published parameters and publish the index of the same number. A killed call is taken up again.

    Args:
        number: of the parameters; ``embedder`` is their document side, on the device where it is to be used.
        step: optimiser steps behind them.
        options: by how many processes, where, how precisely.
        parts_of: who embeds.

    Raises:
        SnapshotError: the disk refuses, a vector is not finite, the corpus was compacted meanwhile, or the request was taken back.
    """
    store = inputs.store
    rows = np.flatnonzero(store.live)
    facts = snapshot_facts(store, rows, embedder, params_generation=number, step=step)
    block_ids = np.asarray(store.block_ids)[rows]
    parts = parts_of(embedder, parameters_path(paths, number), inputs, rows, options, progress)
    publish_snapshot(paths.index, parts, block_ids, facts, generation=number, visible=answering(paths, number))


def refresh_index(
    model: RealmModel,
    inputs: BlockInputs,
    paths: RunPaths,
    *,
    step: int,
    protect: frozenset[int] = frozenset(),
    options: EmbedOptions = ALONE,
    progress: Progress | None = None,
) -> Generation:
    """Publish the parameters of the document side, the embeddings of every live block under them, and open the result: all in here.

    Args:
        step: optimiser step of the parameters, for the staleness metric.
        protect: generations that kept checkpoints still need.
        options: how to embed.
    """
    embedder = copy.deepcopy(model.documents).eval().requires_grad_(False)
    with publishing(paths.index):
        number = request_index(model, paths, step, instead=True)
        build_generation(paths, inputs, number, embedder, step, options, progress)
        prune_run(paths, protect)
    return open_generation(paths, inputs, number, device=next(embedder.parameters()).device)


def missing_rows(generation: Generation, inputs: BlockInputs) -> np.ndarray:
    """Live rows of the corpus that the generation does not hold yet: documents added or changed since. int64 [n]."""
    store = inputs.store
    held_already = np.isin(np.asarray(store.block_ids), generation.snapshot.block_ids)
    return np.flatnonzero(store.live & ~held_already)


def embed_difference(
    paths: RunPaths, inputs: BlockInputs, progress: Progress | None = None, *, number: int | None = None, options: EmbedOptions = ALONE
) -> tuple[Generation, int]:
    """Embed blocks added since a generation (the newest by default) with its own embedder, as a delta of the same generation.

    A changed document is removed blocks, which every search hides, and added ones. Parts go to disk as they are done, and a killed call
    is taken up again.

    Args:
        options: by how many processes, where; vectors that outlive training are float32 products.

    Returns:
        The generation with them, and how many blocks were embedded.
    """
    if current_generation(paths.index) is None:
        raise SnapshotError("no index yet", path=paths.index, cure="Train first: realm run RECIPE.toml")
    return add_difference(open_generation(paths, inputs, number), paths, inputs, progress, options=options)


def add_difference(
    generation: Generation, paths: RunPaths, inputs: BlockInputs, progress: Progress | None = None, *, options: EmbedOptions = ALONE
) -> tuple[Generation, int]:
    """``embed_difference`` of a generation that is open."""
    if not len(missing_rows(generation, inputs)):
        return generation, 0
    with publishing(paths.index):
        generation = extended(generation, paths, inputs)  # somebody else may have added the same blocks before we held the index
        store, rows = inputs.store, missing_rows(generation, inputs)
        if len(rows):
            parts = embed_parts(generation.embedder, parameters_path(paths, generation.number), inputs, rows, options, progress)
            versions = {"corpus_version": store.version, "tombstone_version": store.version}
            ids = np.asarray(store.block_ids)[rows]
            append_delta(paths.index, generation.number, parts, ids, segments=_segments(store, rows), **versions)
            merge_shards(paths.index, generation.number)
            generation = extended(generation, paths, inputs)
    return generation, len(rows)
