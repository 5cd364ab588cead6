"""A corpus that takes in single documents all day keeps few segments: the small ones at its end are merged beside its readers.

Every change that adds documents is a segment of its own, and each costs whoever has the corpus open some 25 KiB and a look into its files
at every question for a document. Merging is cheap and often: it drops nothing and reads no text. Compaction (compaction.py) is dear and
rare: it also drops what was removed.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from realm.corpus.change.compaction import compact_corpus, write_merged
from realm.corpus.change.publishing import changing, publish_version, sweep
from realm.corpus.store import manifest as manifests, segments as layout
from realm.corpus.store.blocks import BlockStore
from realm.corpus.store.manifest import CorpusManifest
from realm.storage.tails import trailing

LEAST_REMOVED = 1024
"""Blocks under tombstones for which compaction is worth while, however small the corpus is."""


def needs_tidying(store: BlockStore) -> bool:
    """Whether ``tidy_corpus`` has something to do. Looks at counts alone."""
    return _too_many_removed(store.manifest) or _small(store.manifest) > 0


def tidy_corpus(corpus: Path) -> CorpusManifest:
    """Merge the small segments at the end if there are many (``storage.tails``); compact the corpus if a fifth of it is removed blocks.

    A row is rewritten a few times in its life, since a segment is merged only with ones that are together at least as large. Nothing is
    published where there is nothing to do. Files of the version before stay until the next change, as with ``compact_corpus``.

    Args:
        corpus: the corpus directory.

    Raises:
        CorpusError: no corpus here, a damaged one, or another process is changing it. Nothing is changed.
    """
    with changing(Path(corpus)) as (store, staging):
        if not _too_many_removed(store.manifest):
            return _merge_tail(store, staging)
    return compact_corpus(corpus)


def _too_many_removed(manifest: CorpusManifest) -> bool:
    return manifest.removed > max(LEAST_REMOVED, manifest.blocks // 4)


def _small(manifest: CorpusManifest) -> int:
    """How many of the last segments should become one."""
    return trailing([info.rows for info in manifest.segments], layout.SEGMENT_ROWS)


def _merge_tail(store: BlockStore, staging: Path) -> CorpusManifest:
    """Publish the version whose last segments are one; those of removed blocks keep their tombstones."""
    count = _small(store.manifest)
    if not count:
        return store.manifest
    parts = [(segment, np.ones(segment.rows, np.bool_)) for segment in store.segments[-count:]]
    merged = write_merged(parts, staging / manifests.SEGMENTS_DIRECTORY / "0.arrow", store.manifest.vocab_size)
    kept = store.manifest.segments[:-count]
    manifest = replace(store.manifest, version=store.version + 1, segments=(*kept, merged))
    manifest = publish_version(store.path, staging, manifest, len(kept), store.block_ids[~store.live])
    sweep(store.path, manifest.version - 1)
    return manifest
