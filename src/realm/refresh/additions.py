"""Documents added since a generation was made: embedded by its own embedder and appended to it as a delta."""

import numpy as np

from realm.data.blocks import BlockInputs
from realm.index.delta import append_delta, merge_shards
from realm.paths import RunPaths
from realm.refresh.embedding import ALONE, EmbedOptions, Progress, embed_parts
from realm.refresh.generation import Generation, extended
from realm.refresh.locks import publishing
from realm.refresh.parameters import parameters_path
from realm.refresh.refresher import segments_of


def missing_rows(generation: Generation, inputs: BlockInputs) -> np.ndarray:
    """Live rows of the corpus that the generation does not hold yet: documents added or changed since. int64 [n]."""
    store = inputs.store
    held_already = np.isin(np.asarray(store.block_ids), generation.snapshot.block_ids)
    return np.flatnonzero(store.live & ~held_already)


def add_difference(
    generation: Generation, paths: RunPaths, inputs: BlockInputs, progress: Progress | None = None, *, options: EmbedOptions = ALONE
) -> tuple[Generation, int]:
    """Embed blocks added since a generation with its own embedder, as a delta of the same generation.

    A changed document is removed blocks, which every search hides, and added ones. Parts go to disk as they are done, and a killed call
    is continued.

    Args:
        options: by how many processes, where, how precisely.

    Returns:
        The generation with them, and how many blocks were embedded.
    """
    if not len(missing_rows(generation, inputs)):
        return generation, 0
    with publishing(paths.index):
        generation = extended(generation, paths, inputs)  # somebody else may have added the same blocks before we held the index
        store, rows = inputs.store, missing_rows(generation, inputs)
        if len(rows):
            parts = embed_parts(generation.embedder, parameters_path(paths, generation.number), inputs, rows, options, progress)
            versions = {"corpus_version": store.version, "tombstone_version": store.version}
            ids = np.asarray(store.block_ids)[rows]
            append_delta(paths.index, generation.number, parts, ids, segments=segments_of(store, rows), **versions)
            merge_shards(paths.index, generation.number)
            generation = extended(generation, paths, inputs)
    return generation, len(rows)
