"""A corpus that changes after it was built: documents come, change and go. Every change is a new version.

An update is a tombstone on the document's blocks plus new blocks with new ids. Nothing that is published is rewritten; compaction
(compaction.py) drops the rows under tombstones."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np

from realm.documents.change.compaction import changing, publish_version, sweep
from realm.documents.ingest.builder import Packing, write_segment
from realm.documents.ingest.intake import Progress, RejectedList, nothing_usable, take_in
from realm.documents.ingest.packed import Packer
from realm.documents.ingest.spool import Document, Spool
from realm.documents.outline import paths_within
from realm.documents.records import Rejected
from realm.documents.sources import LOOK, SourceOptions
from realm.documents.spans.specs import corpus_tagger
from realm.documents.store import manifest as manifests
from realm.documents.store.blocks import BlockStore
from realm.documents.store.info import changed_statistics
from realm.documents.store.manifest import CorpusManifest
from realm.documents.store.views import Segment
from realm.documents.workers import Workers, started
from realm.errors import CorpusError
from realm.storage import files
from realm.text.lines import canonical_line

UNKNOWN_ID = "unknown id"
_NAMED_IDS = 5
_NO_ROWS = np.empty(0, np.int64)


class Reading(TypedDict, total=False):
    """Options of reading, as for ``build_corpus``."""

    strict: bool
    workers: int | None
    progress: Progress | None
    source_options: SourceOptions


@dataclass(frozen=True)
class _Change:
    """A corpus that is held for writing: the version in force, the staging directory, and what the sources hold. ``append`` packs a spool
    into a staged segment and returns the next manifest, with live rows that were deleted not counted any more."""

    store: BlockStore
    staging: Path
    found: Spool
    rejected: RejectedList
    append: Callable[[Spool, np.ndarray], CorpusManifest]


@contextmanager
def _taken_in(
    corpus: Path,
    sources: Sequence[Path],
    *,
    adding: bool = False,
    strict: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    source_options: SourceOptions = LOOK,
) -> Iterator[_Change]:
    """Hold a corpus and read the sources; ``adding``: documents that it has are rejected. Raises CorpusError: nothing is usable."""
    with changing(Path(corpus)) as (store, staging), started(workers) as processes:
        rejected, found = RejectedList(strict), Spool(staging / "found.arrow")
        ids, corpus_ids = (_KnownDocuments(store), None) if adding else (set[str](), _KnownDocuments(store))
        take_in(sources, found, rejected, ids, progress, source_options, workers=processes, corpus=corpus_ids)
        yield _Change(store, staging, found, rejected, partial(_append, store, staging, workers=processes, progress=progress))


def add_documents(corpus: Path, sources: Sequence[Path], **reading: Unpack[Reading]) -> CorpusManifest:
    """Add documents as a new segment and publish a new version; one whose id is in the corpus already is rejected ("duplicate id").

    Arguments as for ``build_corpus``; tokenizer and tagger stay those of the corpus. Raises CorpusError: no corpus here, a damaged one, no
    document is usable, or another process is changing it. Nothing is changed; DataError: as for ``build_corpus``."""
    with _taken_in(corpus, sources, adding=True, **reading) as change:
        manifest = change.append(change.found, _NO_ROWS)
        if manifest.blocks == change.store.manifest.blocks:
            raise nothing_usable(sources, change.rejected)
        return _publish_documents(change, manifest, _NO_ROWS)


def update_documents(corpus: Path, sources: Sequence[Path], **reading: Unpack[Reading]) -> CorpusManifest:
    """Replace documents by what the sources hold under their ids, and publish a new version.

    A document that is not in the corpus is rejected ("unknown id"): ``add_documents`` takes those. One whose title and text have not
    changed keeps its blocks, so that nothing is embedded twice; if that is so for all, and none is rejected, no version is published.
    Raises CorpusError, DataError: as for ``add_documents``."""
    with _taken_in(corpus, sources, **reading) as change:
        store, rejected, spool = change.store, change.rejected, Spool(change.staging / "documents.arrow")
        gone = _changed_documents(store, change.found, spool, rejected)
        if not change.found.documents - rejected.counts[UNKNOWN_ID]:
            raise nothing_usable(sources, rejected)
        if not len(gone) and not rejected.counts:
            return store.manifest
        return _publish_documents(change, change.append(spool, gone) if len(gone) else store.manifest, gone)


def sync_documents(corpus: Path, sources: Sequence[Path], **reading: Unpack[Reading]) -> CorpusManifest:
    """Make the corpus hold what the sources hold, and nothing else, in one new version.

    New documents come, changed ones are replaced, those that the sources hold no more go; what is as it was keeps its blocks, and so does
    what lies in a file or folder that cannot be read now. If nothing differs, no version is published. The list of what was rejected is
    that of these sources. Raises CorpusError, DataError: as for ``add_documents``. A source without a usable document empties no corpus."""
    with _taken_in(corpus, sources, **reading) as change:
        store, found, rejected = change.store, change.found, change.rejected
        if not found.documents:
            raise nothing_usable(sources, rejected)
        spool = Spool(change.staging / "documents.arrow")
        gone = np.union1d(_changed_documents(store, found, spool, None), _absent(store, found, rejected.unreadable))
        manifest = replace(change.append(spool, gone), rejected=rejected.by_reason())
        if len(gone) or manifest.blocks != store.manifest.blocks or manifest.rejected != store.manifest.rejected:
            manifest = _publish(store, change.staging, manifest, gone)
        else:
            manifest = store.manifest
        listing = store.path / manifests.REJECTED_FILE
        if listing.read_bytes() != (text := rejected.text()):
            files.write_atomic(listing, text)
        return manifest


def remove_documents(corpus: Path, doc_ids: Iterable[str]) -> CorpusManifest:
    """Put tombstones on documents and publish a new version: no search returns them from then on. An id given twice counts once. Raises
    CorpusError: an id is not in the corpus, or none is given, or as for ``add_documents``. Nothing is changed."""
    ids = list(dict.fromkeys(canonical_line(doc_id) for doc_id in doc_ids))
    if not ids:
        raise CorpusError("no id is given, so nothing is removed", path=corpus, cure="Name documents, or a file with --ids")
    with changing(Path(corpus)) as (store, staging):
        rows = [store.live_rows_of_document(doc_id) for doc_id in ids]
        unknown = [repr(doc_id) for doc_id, found in zip(ids, rows, strict=True) if not len(found)]
        if unknown:
            more = f" and {len(unknown) - _NAMED_IDS} more" if len(unknown) > _NAMED_IDS else ""
            problem = f"no document {', '.join(unknown[:_NAMED_IDS])}{more}; nothing is removed"
            raise CorpusError(problem, path=corpus, cure="Give ids of documents, not titles")
        gone = np.sort(np.concatenate(rows))
        return _publish(store, staging, _without(store, gone), gone)


class _KnownDocuments:
    """Ids that are taken: documents of the corpus, found on disk, and those met since."""

    def __init__(self, store: BlockStore):
        self._store = store
        self._new: set[str] = set()

    def __contains__(self, doc_id: str) -> bool:
        return doc_id in self._new or len(self._store.live_rows_of_document(doc_id)) > 0

    def add(self, doc_id: str) -> None:
        self._new.add(doc_id)


def _absent(store: BlockStore, found: Spool, unreadable: set[str]) -> np.ndarray:
    """Live rows, ascending, of documents that are not among those found and do not lie in what is unreadable."""
    here = {*found.doc_ids()}
    absent = ((row, Path(store.block(row).source)) for row in np.flatnonzero(store.live).tolist() if store.doc_id(row) not in here)
    return np.array([row for row, path in absent if unreadable.isdisjoint(map(str, (path, *path.parents)))], np.int64)


def _changed_documents(store: BlockStore, found: Spool, spool: Spool, rejected: RejectedList | None) -> np.ndarray:
    """Put those of the documents found that differ from the corpus into ``spool``. Returns the live rows they replace, ascending.

    Those that the corpus does not have are rejected, or put into ``spool``, too, if no list takes them."""
    gone = [_NO_ROWS]
    for batch in found.tasks():
        changed = []
        for document in batch.documents():
            rows = store.live_rows_of_document(document.doc_id)
            known = len(rows) > 0
            changed.append(not _holds(store, rows, document) if known else rejected is None)
            if known and changed[-1]:
                gone.append(rows)
            elif not known and rejected is not None:
                rejected.add(Rejected(document.source, document.line, UNKNOWN_ID))
        spool.add(batch.columns(), changed)
    spool.add_redirects(found.redirects())
    spool.close()
    return np.sort(np.concatenate(gone))


def _holds(store: BlockStore, rows: np.ndarray, document: Document) -> bool:
    """Compare a document with the blocks at ``rows``: True if only white space lies before, between and after them."""
    position = 0
    for block in map(store.block, rows.tolist()):
        end = block.char_start + len(block.text)
        if block.title != document.title or document.text[block.char_start : end] != block.text:
            return False
        headings = paths_within(document.places, block.char_start, end)
        if (block.media, block.media_sum, block.headings) != (document.media, document.media_sum, headings):
            return False
        if document.text[position : block.char_start].strip():
            return False
        position = end
    return not document.text[position:].strip()


def _append(
    store: BlockStore, staging: Path, spool: Spool, gone: np.ndarray, *, workers: Workers, progress: Progress | None
) -> CorpusManifest:
    """Pack the spool into a staged segment. Returns the next manifest, the rows in ``gone`` not counted any more."""
    packer = Packer(store.tokenizer, corpus_tagger(store.path, store.manifest), store.manifest.block_length)
    packing = Packing(spool, packer, store.path, workers=workers, progress=progress)
    return write_segment(staging, _without(store, gone), packing, store.tokenizer.vocab_size)


def _without(store: BlockStore, gone: np.ndarray) -> CorpusManifest:
    """The manifest with the live rows in ``gone`` not counted any more."""
    rows, manifest = gone.tolist(), store.manifest
    return replace(
        manifest,
        documents=manifest.documents - len({store.doc_id(row) for row in rows}),
        blocks=manifest.blocks - len(rows),
        spans=manifest.spans - sum(len(store.spans(row).chars) for row in rows),
        removed_tokens=manifest.removed_tokens + sum(len(store.token_ids(row)) for row in rows),
    )


def _publish_documents(change: _Change, manifest: CorpusManifest, gone: np.ndarray) -> CorpusManifest:
    """Publish a version with new segments, and list what was rejected on the way."""
    store, rejected = change.store, change.rejected
    counts = Counter(store.manifest.rejected) + rejected.counts
    manifest = _publish(store, change.staging, replace(manifest, rejected=dict(sorted(counts.items()))), gone)
    listing = store.path / manifests.REJECTED_FILE
    files.write_atomic(listing, listing.read_bytes() + rejected.text())
    return manifest


def _publish(store: BlockStore, staging: Path, manifest: CorpusManifest, gone: np.ndarray) -> CorpusManifest:
    """Publish the version after ``store``: the segments that ``manifest`` has more, and tombstones on the rows in ``gone``."""
    kept = len(store.manifest.segments)
    old, new = manifest.segments[:kept], [info for info in manifest.segments[kept:] if info.rows]
    staged = [Segment(staging / manifests.SEGMENTS_DIRECTORY, info) for info in new]
    live = store.live.copy()
    live[gone] = False
    statistics = changed_statistics(store, live, staged, manifest.span_statistics)
    manifest = replace(manifest, version=manifest.version + 1, segments=(*old, *new), span_statistics=statistics)
    manifest = publish_version(store.path, staging, manifest, kept, store.block_ids[~live])
    sweep(store.path, manifest.version - 1)
    return manifest
