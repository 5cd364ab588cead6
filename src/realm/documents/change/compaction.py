"""Compaction: segments without the rows under tombstones, small ones merged. Block ids stay; row numbers change.

Memory: a few record batches, whatever the size of the corpus."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import regex

from realm.documents.ingest.staging import remove_finished
from realm.documents.spans.specs import read_state, write_state
from realm.documents.store import manifest as manifests, segments as layout
from realm.documents.store.blocks import BlockStore
from realm.documents.store.manifest import CorpusManifest, SegmentInfo, writer_lock
from realm.documents.store.segments import finish_segment, lookup_of
from realm.documents.store.views import Segment
from realm.errors import CorpusError
from realm.storage import files
from realm.storage.arrays import publish_array
from realm.storage.files import array_sum, full_disk_ends_cleanly
from realm.storage.generations import delete_unnamed, trailing


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
    tombstones = f"tombstones-{manifest.version:06d}.npy" if len(removed) else None
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


Part = tuple[Segment, np.ndarray]
"""A segment, and which of its rows are kept, bool [rows]."""


def compact_corpus(corpus: Path, *, purge: bool = False) -> CorpusManifest:
    """Write the segments that have tombstones, or are small, again without the removed rows, and publish that as a new version.

    Nothing is published where there is nothing to do. Files of the version before stay until the next change, for processes that are just
    opening it; ``purge`` deletes them now, so that no removed text is left in the directory. Raises CorpusError: no corpus here, a damaged
    one, or another process is changing it. Nothing is changed."""
    with changing(Path(corpus)) as (store, staging):
        manifest = store.manifest
        groups = list(_groups(store))
        if any(_needs_rewriting(store, group) for group in groups):
            manifest = _rewrite(store, staging, groups)
        sweep(store.path, manifest.version if purge else manifest.version - 1)
        return manifest


def _live_parts(store: BlockStore) -> list[np.ndarray]:
    return np.split(store.live, np.cumsum([segment.rows for segment in store.segments])[:-1]) if store.segments else []


def _groups(store: BlockStore) -> Iterator[list[int]]:
    """Numbers of segments that become one, in order of their block ids. One half full and without a tombstone stays as it is."""
    group: list[int] = []
    rows = 0
    for number, live in enumerate(_live_parts(store)):
        count = int(live.sum())
        stays = count == len(live) and count >= layout.SEGMENT_ROWS // 2
        if group and (stays or rows + count > layout.SEGMENT_ROWS):
            yield group
            group, rows = [], 0
        group.append(number)
        rows += count
        if stays:
            yield group
            group, rows = [], 0
    if group:
        yield group


def _needs_rewriting(store: BlockStore, group: Sequence[int]) -> bool:
    return len(group) > 1 or not _live_parts(store)[group[0]].all()


def _rewrite(store: BlockStore, staging: Path, groups: Sequence[Sequence[int]]) -> CorpusManifest:
    """Stage the merged segments and publish the version that names them."""
    # From the first segment that changes on all get new names, so that those which stay come first in the manifest: ids must ascend.
    first = next(position for position, group in enumerate(groups) if _needs_rewriting(store, group))
    kept = tuple(store.manifest.segments[number] for group in groups[:first] for number in group)
    parts = list(zip(store.segments, _live_parts(store), strict=True))
    files = [staging / manifests.SEGMENTS_DIRECTORY / f"{place}.arrow" for place in range(len(groups) - first)]
    vocab = store.manifest.vocab_size
    merged = [write_merged([parts[number] for number in group], file, vocab) for group, file in zip(groups[first:], files, strict=True)]
    forget_words(store)
    manifest = replace(
        store.manifest, version=store.version + 1, segments=(*kept, *(info for info in merged if info.rows)), removed_tokens=0
    )
    return publish_version(store.path, staging, manifest, len(kept), np.empty(0, np.int64))


def write_merged(parts: Sequence[Part], path: Path, vocab_size: int) -> SegmentInfo:
    """Write the kept rows of neighbouring segments, in order of their ids, as one file with its look-up file."""
    tokens = 0
    schema = layout.segment_schema(layout.token_dtype(vocab_size))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in _batches(parts, schema.names):
            tokens += len(batch.column("token_ids").flatten())
            writer.write_batch(batch)
    return finish_segment(path, tokens)


def _batches(parts: Sequence[Part], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows that are kept of some segments, of these columns, in full batches but for the last of all."""
    pending: list[pa.RecordBatch] = []
    for segment, keep in parts:
        start = 0
        for view in segment.batches:
            pending.append(view.select(keep[start : start + view.rows]).select(columns))
            start += view.rows
            if sum(len(batch) for batch in pending) >= layout.BATCH_ROWS:
                whole = pa.concat_batches(pending)
                yield whole.slice(0, layout.BATCH_ROWS)
                pending = [whole.slice(layout.BATCH_ROWS)]
    last = pa.concat_batches(pending)
    if len(last):
        yield last


_WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*")


def forget_words(store: BlockStore) -> None:
    """Take words and terms that only removed blocks hold out of what the corpus's tagger learnt; later additions meet them as unknown. The
    tokenizer's vocabulary cannot forget: another one would change all token ids. Raises CorpusError: the tagger cannot be read."""
    path = store.path / manifests.TAGGER_FILE
    try:
        state = read_state(path)
        words = {word for part in _parts(state, "truecase") for word in part["table"]}
        terms = {term for part in _parts(state, "collocations") for term in part["terms"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"cannot read the corpus's tagger: {error}", path=path, cure="Build the corpus again") from error
    other_words, other_terms = _not_held(store, np.flatnonzero(~store.live), words, terms)
    gone_words, gone_terms = _not_held(store, np.flatnonzero(store.live), words - other_words, terms - other_terms)
    if not gone_words and not gone_terms:
        return
    for part in _parts(state, "truecase"):
        part["table"] = {word: counts for word, counts in part["table"].items() if word not in gone_words}
    for part in _parts(state, "collocations"):
        part["terms"] = [term for term in part["terms"] if term not in gone_terms]
    write_state(path, state)


def _not_held(store: BlockStore, rows: np.ndarray, words: set[str], terms: set[str]) -> tuple[set[str], set[str]]:
    """Those of ``words`` and ``terms`` that stand in none of the blocks at ``rows``."""
    words, terms = set(words), set(terms)
    for row in rows.tolist():
        if not words and not terms:
            break
        text = store.block(row).text
        if words:
            words -= {word.lower() for word in _WORD.findall(text)}  # cut as the casing table has them
        terms -= {term for term in terms if term in text}
    return words, terms


def _parts(state: Any, kind: str) -> Iterator[dict[str, Any]]:
    """Parts of a tagger's state that are of one type. A gazetteer is the user's, not learnt from documents."""
    if isinstance(state, dict) and state.get("type") == kind:
        yield state
    elif isinstance(state, dict | list):
        for part in state.values() if isinstance(state, dict) else state:
            yield from _parts(part, kind)


LEAST_REMOVED = 1024
"""Blocks under tombstones from which on compaction pays, however small the corpus is."""


def needs_tidying(store: BlockStore) -> bool:
    """True where ``tidy_corpus`` has something to do, by counts alone."""
    return _too_many_removed(store.manifest) or _small(store.manifest) > 0


def tidy_corpus(corpus: Path) -> CorpusManifest:
    """Merge the small segments at the end if there are many; compact the corpus if a fifth of it is removed blocks.

    Each segment costs a process that has the corpus open some 25 KiB and a look into its files at every question for a document. A row is
    rewritten a few times in its life, since a segment is merged only with ones together at least as large. Raises as ``compact_corpus``."""
    with changing(Path(corpus)) as (store, staging):
        if not _too_many_removed(store.manifest):
            return _merge_tail(store, staging)
    return compact_corpus(corpus)


def _too_many_removed(manifest: CorpusManifest) -> bool:
    return manifest.removed > max(LEAST_REMOVED, manifest.blocks // 4)


def _small(manifest: CorpusManifest) -> int:
    """The number of last segments that should become one."""
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
