"""Documents to blocks: new segments below a corpus directory, and the manifest that counts them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from realm.documents.ingest.intake import Progress
from realm.documents.ingest.packed import PackedBatch, Packer, SegmentFile, packer_elsewhere
from realm.documents.ingest.packing import PackingCounts
from realm.documents.ingest.spool import Spool
from realm.documents.store import manifest as manifests
from realm.documents.store.info import span_repetition
from realm.documents.store.lookup import finish_segment
from realm.documents.store.manifest import CorpusManifest, SpanStatistics
from realm.documents.store.segments import token_dtype
from realm.documents.store.views import Segment
from realm.documents.workers import Workers


class Packing:
    """The batches of a spool on their way to segments: packed in order, by several processes, which make packers of their own from the
    tokenizer and tagger in ``corpus``. ``progress`` is called with ("packed documents", count, documents of the spool)."""

    def __init__(self, spool: Spool, packer: Packer, corpus: Path, *, workers: Workers | None = None, progress: Progress | None = None):
        self._total = spool.documents
        self._progress = progress
        self._documents = 0
        arguments = (str(corpus), packer.block_length)
        self._results = (workers or Workers(1)).in_order(spool.tasks(), packer, packer_elsewhere, arguments)

    def __iter__(self) -> Iterator[PackedBatch]:
        for task, batch in self._results:
            self._documents += task.rows
            if self._progress is not None:
                self._progress("packed documents", self._documents, self._total)
            yield batch

    @property
    def ended(self) -> bool:
        return self._documents == self._total


def write_segment(directory: Path, manifest: CorpusManifest, packing: Packing, vocab_size: int, rows: int | None = None) -> CorpusManifest:
    """Write the next segment below ``directory``: up to the batch that reaches ``rows`` rows, or all that ``packing`` gives. Returns
    ``manifest`` with that segment and its counts added. Raises Interrupted: a worker process died."""
    name = f"{len(manifest.segments) + 1:06d}.arrow"
    path = directory / manifests.SEGMENTS_DIRECTORY / name
    documents, counts = 0, PackingCounts()
    with SegmentFile(path, token_dtype(vocab_size), manifest.next_block_id) as file:
        for batch in packing:
            file.add(batch.rows)
            documents += len(np.unique(batch.documents))
            counts += batch.counts
            if rows is not None and file.rows >= rows:
                break
    if not file.rows and manifest.segments:
        path.unlink()
        return manifest
    info = finish_segment(path, file.tokens)
    statistics = manifest.span_statistics
    return replace(
        manifest,
        segments=(*manifest.segments, info),
        next_block_id=file.next_block_id,
        documents=manifest.documents + documents,
        blocks=manifest.blocks + file.rows,
        spans=manifest.spans + file.spans,
        sentences_cut=manifest.sentences_cut + counts.sentences_cut,
        span_statistics=replace(statistics, unaligned=statistics.unaligned + counts.spans_unaligned, cut=statistics.cut + counts.spans_cut),
    )


def first_statistics(directory: Path, manifest: CorpusManifest) -> SpanStatistics:
    starts = accumulate((info.rows for info in manifest.segments), initial=0)
    segments = (Segment(directory / manifests.SEGMENTS_DIRECTORY, info) for info in manifest.segments)
    parts = [segment.flat("span_hashes", start) for segment, start in zip(segments, starts, strict=False)]
    distinct, single_block = span_repetition(parts)
    return replace(manifest.span_statistics, distinct=distinct, single_block=single_block)
