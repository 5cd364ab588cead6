"""New generations of the index, and documents added to one that is there."""

import copy
import logging

import numpy as np

from realm.corpus.store.blocks import BlockStore
from realm.data.blocks import BlockInputs
from realm.errors import SnapshotError
from realm.index.delta import append_delta
from realm.index.manifest import require_whole
from realm.index.merging import merge_shards
from realm.index.snapshot import Snapshot, SnapshotFacts, current_generation, publish_snapshot
from realm.nn.embedder import Embedder
from realm.nn.model import RealmModel, state_sha256
from realm.paths import RunPaths
from realm.refresh.embedding import EmbedOptions, PartsOf, Progress, embed_parts
from realm.refresh.generation import Generation, extended, open_generation
from realm.refresh.locks import publishing
from realm.refresh.mixing import Mixed
from realm.refresh.parameters import Partial, answering, parameters_path, prune_run, read_partial, request_index
from realm.storage.generations import generation_path

ALONE = EmbedOptions()
logger = logging.getLogger(__name__)


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

    Where the parameters ask for a part of the blocks, the others are taken from the base that they name, and the generation is mixed; if
    the base cannot be used, all are embedded after all, with a warning, and the generation is whole.

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
    mixed, visible = _mixed(paths, number, block_ids, facts), answering(paths, number)
    if mixed is None:
        parts = parts_of(embedder, parameters_path(paths, number), inputs, rows, options, progress)
        publish_snapshot(paths.index, parts, block_ids, facts, generation=number, visible=visible)
    else:
        parts = parts_of(embedder, parameters_path(paths, number), inputs, rows[mixed.now], options, progress)
        vectors, row_params = mixed.parts(parts), mixed.row_params
        publish_snapshot(paths.index, vectors, block_ids, mixed.facts, generation=number, row_params=row_params, visible=visible)


def _mixed(paths: RunPaths, number: int, block_ids: np.ndarray, facts: SnapshotFacts) -> Mixed | None:
    """What generation ``number`` is made of if a part of its blocks is asked for; None if all are, or if the base cannot be used."""
    partial = read_partial(parameters_path(paths, number))
    if partial is None:
        return None
    corpus, tokenizer = facts.corpus_id, facts.tokenizer_sha256
    try:
        base = Snapshot.open(paths.index, partial.base, corpus_id=corpus, tokenizer_sha256=tokenizer, document_embedder_sha256=None)
    except SnapshotError as error:
        logger.warning("generation %d is embedded whole: it cannot go on from generation %d: %s", number, partial.base, error)
        return None
    return Mixed(base, block_ids, partial.block_ids, facts) if len(base.block_ids) else None


def refresh_index(
    model: RealmModel,
    inputs: BlockInputs,
    paths: RunPaths,
    *,
    step: int,
    protect: frozenset[int] = frozenset(),
    options: EmbedOptions = ALONE,
    progress: Progress | None = None,
    partial: Partial | None = None,
) -> Generation:
    """Publish the parameters of the document side, the embeddings of every live block under them, and open the result: all in here.

    Args:
        step: optimiser step of the parameters, for the staleness metric.
        protect: generations that kept checkpoints still need.
        options: how to embed.
        partial: what to embed; None: everything.
    """
    embedder = copy.deepcopy(model.documents).eval().requires_grad_(False)
    with publishing(paths.index):
        number = request_index(model, paths, step, instead=True, partial=partial)
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
    """``embed_difference`` of a generation that is open.

    Raises:
        MixedGeneration: several parameters embedded it: there is no embedder whose vectors could be added.
    """
    require_whole(generation.snapshot.manifest, generation_path(paths.index, generation.number))
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
