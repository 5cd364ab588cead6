"""Build a corpus from sources, in three passes: sources to canonical documents, with casing statistics (intake.py); if no tokenizer is
given, a vocabulary; documents to blocks: new segments below a corpus directory, and the manifest that counts them. Everything is staged
beside the target and renamed at the end (staging.py). docs/corpus.md says how much memory that takes."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from realm.documents.ingest.intake import Progress, RejectedList, nothing_usable, take_in
from realm.documents.ingest.packed import PackedBatch, Packer, SegmentFile, packer_elsewhere
from realm.documents.ingest.packing import PackingCounts
from realm.documents.ingest.spool import Spool
from realm.documents.ingest.staging import CORPUS, SPOOL, staged_build
from realm.documents.records import TextKeys
from realm.documents.sources import LOOK, SourceOptions
from realm.documents.spans.collocations import CollocationCounts
from realm.documents.spans.spans import SpanTagger
from realm.documents.spans.specs import DEFAULT as DEFAULT_TAGGER, TaggerPlan, give_tagger, write_state
from realm.documents.spans.truecase import CasingCounts
from realm.documents.store import manifest as manifests
from realm.documents.store.info import span_repetition
from realm.documents.store.manifest import CorpusManifest, SpanStatistics
from realm.documents.store.segments import SEGMENT_ROWS, finish_segment, token_dtype
from realm.documents.store.views import Segment
from realm.documents.workers import Workers, started
from realm.errors import ConfigError, CorpusError
from realm.storage.manifests import seal
from realm.text.alphabet import MAX_TRAINING_CHARS
from realm.text.tokenizer import TextTokenizer, train_wordpiece


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
    path = directory / manifests.SEGMENTS_DIRECTORY / f"{len(manifest.segments) + 1:06d}.arrow"
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


SHORTEST_BLOCK = 16


@dataclass(frozen=True)
class BuildOptions:
    """The options of one build.

    Args:
        tokenizer: a tokenizer, a directory or file with one, a corpus, or a hub name. None trains a WordPiece vocabulary on the documents.
        block_length: most wordpieces of a block, its title and three special tokens counted in.
        tagger: kinds of salient spans, as ``spans.specs`` says. Without spans a corpus can be searched, not pre-trained on.
        gazetteer: file of phrases to tag besides names, dates and numbers, one a line.
        strict: stop at the first bad record. Raises ConfigError: ``block_length`` is too small."""

    tokenizer: TextTokenizer | str | Path | None = None
    vocab_size: int = 8000
    lowercase: bool = True
    block_length: int = 288
    tagger: str = DEFAULT_TAGGER
    gazetteer: Path | None = None
    strict: bool = False
    source_options: SourceOptions = LOOK

    def __post_init__(self) -> None:
        if self.block_length < SHORTEST_BLOCK:
            raise ConfigError(f"block_length = {self.block_length} is below {SHORTEST_BLOCK}")

    def given_tokenizer(self) -> TextTokenizer | None:
        """The tokenizer that was asked for; None if one is to be trained. Raises DataError: it cannot be read."""
        if self.tokenizer is None or isinstance(self.tokenizer, TextTokenizer):
            return self.tokenizer
        path = Path(self.tokenizer)
        if path.is_file():
            return TextTokenizer.load(path)
        if (path / manifests.TOKENIZER_DIRECTORY).is_dir():
            return TextTokenizer.load(path / manifests.TOKENIZER_DIRECTORY)
        return TextTokenizer.from_pretrained(str(self.tokenizer))


def build_corpus(
    sources: Sequence[Path],
    out: Path,
    options: BuildOptions | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> CorpusManifest:
    """Make a corpus directory. The same input gives the same bytes, with any number of workers.

    Called with enough text, it starts processes that import the calling script: guard that with ``if __name__ == "__main__":``.

    Args:
        sources: files and folders that ``sources.iter_documents`` reads.
        out: the corpus directory; must not exist.
        options: the defaults if not given; ``changes`` are fields of them by name.
        workers: processes; None takes as many as cores may be used. Little text is done in this process alone.

    Raises CorpusError: ``out`` exists, another process is building it, or no document is usable; DataError: a source, tokenizer, tagger or
    gazetteer cannot be read, or a bad record under ``strict``; Interrupted: the disk is full or a worker process died."""
    out, sources = Path(out), [Path(source) for source in sources]
    options = replace(options or BuildOptions(), **changes)
    processes = started(workers)
    _check(out)
    plan = TaggerPlan(options.tagger, options.gazetteer)
    given = options.given_tokenizer()
    with staged_build(out) as staging, processes:
        corpus, spool = staging / CORPUS, Spool(staging / SPOOL)
        casing, rejected = CasingCounts() if plan.learns_casing else None, RejectedList(options.strict)
        take_in(sources, spool, rejected, TextKeys(), progress, options.source_options, casing=casing, workers=processes)
        if not spool.documents:
            raise nothing_usable(sources, rejected)
        rejected.save(corpus / manifests.REJECTED_FILE)
        tokenizer = given or train_wordpiece(_training_texts(spool), options.vocab_size, options.lowercase)
        tokenizer.save(corpus / manifests.TOKENIZER_DIRECTORY)
        seal(corpus / manifests.TOKENIZER_DIRECTORY)
        learned = _learned_tagger(plan, spool, casing)
        write_state(corpus / manifests.TAGGER_FILE, learned.state())
        packer = Packer(tokenizer, learned, options.block_length)
        packing = Packing(spool, packer, corpus, workers=processes, progress=progress)
        manifest = _empty_manifest(tokenizer, options.block_length, rejected)
        while not packing.ended:
            manifest = write_segment(corpus, manifest, packing, tokenizer.vocab_size, SEGMENT_ROWS)
        if not manifest.blocks:
            raise nothing_usable(sources, rejected)
        return _publish_first_version(corpus, manifest)


def _check(out: Path) -> None:
    if os.path.lexists(out):
        kind = "a corpus" if (out / manifests.CURRENT_FILE).exists() else "something else"
        cure = "Choose another --out, or use 'realm corpus add'"
        raise CorpusError(f"{kind} already exists here and was not changed", path=out, cure=cure)


def _learned_tagger(plan: TaggerPlan, spool: Spool, casing: CasingCounts | None) -> SpanTagger:
    """The tagger, with the terms of documents in scripts without letter case; the others are not read again."""
    collocations = CollocationCounts()
    if plan.learns_collocations:
        for document in chain.from_iterable(batch.caseless_documents() for batch in spool.tasks()):
            collocations.add(document.text[start:end] for start, end in document.sentences)
    return plan.tagger(casing or CasingCounts(), collocations)


def _training_texts(spool: Spool) -> Iterator[str]:
    """The training text of a vocabulary, titles and texts: of a large corpus every n-th document, so that all of it has a say."""
    every = 1 + spool.text_bytes // MAX_TRAINING_CHARS
    for document in islice(chain.from_iterable(batch.documents() for batch in spool.tasks()), 0, None, every):
        yield document.title
        yield document.text


def _publish_first_version(directory: Path, manifest: CorpusManifest) -> CorpusManifest:
    """Name the corpus after its content, count how spans repeat, and write the manifest. Returns it."""
    content = "\n".join([*(info.sha256 for info in manifest.segments), manifest.tokenizer_sha256, str(manifest.block_length)])
    corpus_id = hashlib.sha256(content.encode("ascii")).hexdigest()[:32]
    manifest = replace(manifest, corpus_id=corpus_id, span_statistics=first_statistics(directory, manifest))
    give_tagger(directory, corpus_id)
    manifests.write_manifest(directory, manifest)
    return manifest


def _empty_manifest(tokenizer: TextTokenizer, block_length: int, rejected: RejectedList) -> CorpusManifest:
    return CorpusManifest(
        format=manifests.FORMAT, version=1, corpus_id="", tokenizer_sha256=tokenizer.sha256, vocab_size=tokenizer.vocab_size,
        block_length=block_length, segments=(), next_block_id=0, documents=0, blocks=0, spans=0, removed=0, sentences_cut=0,
        rejected=rejected.by_reason(), span_statistics=SpanStatistics(0, 0, 0, 0)
    )  # fmt: skip
