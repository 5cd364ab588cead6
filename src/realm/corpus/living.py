"""A corpus that changes after it was built: documents come. Every change is a new version."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from realm import paths
from realm.corpus import manifest as manifests
from realm.corpus.appending import append_segment, block_key, merged_statistics
from realm.corpus.blocks import BlockStore
from realm.corpus.intake import Progress, RejectedList, Spool, nothing_usable, take_in
from realm.corpus.manifest import CorpusManifest
from realm.corpus.salient import load_tagger
from realm.corpus.sources import LOOK, SourceOptions


def add_documents(
    corpus: Path,
    sources: Sequence[Path],
    *,
    strict: bool = False,
    progress: Progress | None = None,
    source_options: SourceOptions = LOOK,
) -> CorpusManifest:
    """Add documents as a new segment and publish a new version. Tokenizer and tagger stay those of the corpus.

    A document whose id is in the corpus already is rejected ("duplicate id").

    Args:
        corpus: the corpus directory.
        sources, strict, progress, source_options: as for ``build_corpus``.

    Raises:
        CorpusError: no corpus here, a damaged one, no document is usable, or another process is changing it. Nothing is changed.
        DataError: as for ``build_corpus``.
    """
    corpus = Path(corpus)
    manifests.current_version(corpus)  # before the lock file is made: this may not be a corpus at all
    with manifests.writer_lock(corpus):
        paths.remove_staging(corpus)
        try:
            return _add_locked(corpus, [Path(source) for source in sources], RejectedList(strict), progress, source_options)
        finally:
            paths.remove_staging(corpus)


def _add_locked(
    corpus: Path, sources: list[Path], rejected: RejectedList, progress: Progress | None, source_options: SourceOptions
) -> CorpusManifest:
    store = BlockStore.open(corpus)
    tagger = load_tagger(corpus / manifests.TAGGER_FILE)
    staging = corpus / f"add{paths.STAGING_SUFFIX}"
    (staging / manifests.SEGMENTS_DIRECTORY).mkdir(parents=True)
    spool = Spool(staging / "documents.arrow")
    take_in(sources, spool, rejected, set(store.documents()), progress, source_options)
    seen = {block_key(block.title, block.text) for block in map(store.block, range(len(store)))}
    manifest = append_segment(staging, store.manifest, spool, store.tokenizer, tagger, seen, progress)
    if manifest.blocks == store.manifest.blocks:
        raise nothing_usable(sources, rejected, manifest.duplicates - store.manifest.duplicates)
    counts = Counter(store.manifest.rejected) + rejected.counts
    manifest = replace(manifest, version=manifest.version + 1, rejected=dict(sorted(counts.items())))
    manifest = replace(manifest, span_statistics=merged_statistics(store, staging, manifest))
    # From here on: new files under new names, then the manifest, then CURRENT. A crash in between leaves the old version.
    name = manifest.segments[-1].name
    paths.fsync_tree(staging)
    os.replace(staging / manifests.SEGMENTS_DIRECTORY / name, corpus / manifests.SEGMENTS_DIRECTORY / name)
    paths.fsync_directory(corpus / manifests.SEGMENTS_DIRECTORY)
    manifests.write_manifest(corpus, manifest)
    listing = corpus / manifests.REJECTED_FILE
    paths.write_atomic(listing, listing.read_bytes() + rejected.text())
    return manifest
