"""From one version of a corpus to the next: staged files, fresh names, manifest, ``CURRENT``; and what may be deleted then.

No published file is ever rewritten. A process killed at any point leaves the old version in force, or the new one; files that neither names
are deleted by the next writer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from realm.documents.ingest.staging import remove_finished
from realm.documents.store import manifest as manifests
from realm.documents.store.blocks import BlockStore
from realm.documents.store.lookup import lookup_of
from realm.documents.store.manifest import CorpusManifest, writer_lock
from realm.errors import CorpusError
from realm.storage import files
from realm.storage.arrays import publish_array
from realm.storage.disk import full_disk_ends_cleanly
from realm.storage.files import array_sum
from realm.storage.generations import delete_unnamed


@contextmanager
def changing(corpus: Path) -> Iterator[tuple[BlockStore, Path]]:
    """Hold a corpus for writing. Yields the version in force and a staging directory with an empty segments/ in it. Raises CorpusError: no
    corpus here, a damaged one, or another process is changing it; Interrupted: the disk is full; nothing is changed."""
    manifests.current_version(corpus)  # before the lock file is made: this may not be a corpus at all
    remove_finished(corpus)
    with writer_lock(corpus), full_disk_ends_cleanly(corpus):
        sweep(corpus, manifests.read_manifest(corpus).version - 1)  # nothing is deleted by the word of a damaged CURRENT
        store = BlockStore.open_even_empty(corpus)
        staging = corpus / f"change{files.STAGING_SUFFIX}"
        try:
            (staging / manifests.SEGMENTS_DIRECTORY).mkdir(parents=True)
            yield store, staging
        finally:
            files.remove_staging(corpus)


def publish_version(corpus: Path, staging: Path, manifest: CorpusManifest, kept: int, removed: np.ndarray) -> CorpusManifest:
    """Make ``manifest`` the version in force. Returns it as published, its new segments under fresh names: the first ``kept`` are in the
    corpus already, the others below segments/ in ``staging``. ``removed`` (int64, ascending): ids of all blocks in them that have a
    tombstone."""
    directory = corpus / manifests.SEGMENTS_DIRECTORY
    files.fsync_tree(staging)
    number = max((int(path.stem) for path in directory.glob("*.arrow")), default=0)  # the highest, whatever version it belongs to
    segments = list(manifest.segments[:kept])
    for info in manifest.segments[kept:]:
        number += 1
        staged, final = staging / manifests.SEGMENTS_DIRECTORY / info.name, directory / f"{number:06d}.arrow"
        os.replace(lookup_of(staged), lookup_of(final))
        os.replace(staged, final)
        segments.append(replace(info, name=final.name))
    files.fsync_directory(directory)
    tombstones = manifests.tombstones_name(manifest.version) if len(removed) else None
    if tombstones is not None:
        publish_array(corpus / tombstones, removed)
    found = array_sum(removed) if len(removed) else None
    manifest = replace(manifest, segments=tuple(segments), tombstones=tombstones, tombstones_sum=found, removed=len(removed))
    manifests.write_manifest(corpus, manifest)
    return manifest


def sweep(corpus: Path, oldest: int) -> None:
    """Delete what a killed writer left, and every file that no version from ``oldest`` to that in force names."""
    files.remove_staging(corpus)
    current = manifests.current_version(corpus)
    named = {manifests.manifest_path(corpus, version) for version in range(oldest, current + 1)}
    for manifest in _readable(corpus, range(max(oldest, 1), current + 1)):
        named.add(corpus / str(manifest.tombstones))
        for info in manifest.segments:
            segment = corpus / manifests.SEGMENTS_DIRECTORY / info.name
            named.update((segment, lookup_of(segment)))
    segments = manifests.SEGMENTS_DIRECTORY
    patterns = ("manifest-*.json", "tombstones-*.npy", f"{segments}/*.arrow", f"{segments}/*.npy")  # and nothing that is not ours
    delete_unnamed((path for pattern in patterns for path in corpus.glob(pattern)), named)


def _readable(corpus: Path, versions: range) -> Iterator[CorpusManifest]:
    """Manifests of ``versions``. An older one may be gone or of another format; that in force must be readable."""
    for version in versions:
        try:
            yield manifests.read_manifest(corpus, version)
        except CorpusError:
            if version == versions[-1]:
                raise
