"""Build a corpus from sources, and add documents to it.

Three passes: sources to canonical documents (intake.py); casing statistics and, if none is given, a vocabulary; documents to blocks.
Everything is staged beside the target and renamed at the end.
"""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

from realm import paths
from realm.corpus import manifest as manifests
from realm.corpus.blocks import BlockStore
from realm.corpus.gazetteer import GazetteerTagger
from realm.corpus.info import corpus_info, span_repetition
from realm.corpus.intake import Document, Progress, RejectedList, Spool, take_in
from realm.corpus.manifest import CorpusManifest, SegmentInfo, SpanStatistics
from realm.corpus.packing import SPECIAL_TOKENS_PER_BLOCK, PackedBlock, PackingCounts, make_sentences, pack
from realm.corpus.salient import CasingCounts, default_tagger, load_tagger, save_tagger
from realm.corpus.segments import Segment, SegmentWriter, segment_span_hashes, token_dtype
from realm.corpus.tagging import SpanTagger
from realm.errors import ConfigError, CorpusError
from realm.text.tokenizer import TextTokenizer, train_wordpiece

__all__ = ["add_documents", "build_corpus", "corpus_info"]

SHORTEST_BLOCK = 16


def build_corpus(
    sources: Sequence[Path],
    out: Path,
    *,
    tokenizer: TextTokenizer | str | Path | None = None,
    vocab_size: int = 8000,
    lowercase: bool = True,
    block_length: int = 288,
    gazetteer: Path | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> CorpusManifest:
    """Make a corpus directory. The same input gives the same bytes.

    Args:
        sources: files and folders that ``sources.iter_documents`` reads.
        out: the corpus directory; must not exist.
        tokenizer: a tokenizer, a directory or file with one, or a hub name. None trains a WordPiece vocabulary on the documents.
        vocab_size: of a trained vocabulary.
        lowercase: whether a trained vocabulary folds case.
        block_length: most wordpieces of a block, its title and three special tokens counted in.
        gazetteer: file of phrases to tag besides names, dates and numbers, one a line.
        strict: stop at the first bad record instead of leaving it out.
        progress: called with (what is counted, count) now and then.

    Raises:
        CorpusError: ``out`` exists, or no document is usable.
        DataError: a source is missing or of no known type; a bad record under ``strict``; the tokenizer or gazetteer cannot be read.
        ConfigError: ``block_length`` is too small.
    """
    out = Path(out)
    if block_length < SHORTEST_BLOCK:
        raise ConfigError(f"block_length = {block_length} is below {SHORTEST_BLOCK}")
    if out.exists():
        kind = "a corpus" if (out / manifests.CURRENT_FILE).exists() else "something else"
        cure = "Choose another --out, or use 'realm corpus add'"
        raise CorpusError(f"there is {kind} here already, and it is left as it is", path=out, cure=cure)
    phrases = None if gazetteer is None else GazetteerTagger.from_file(Path(gazetteer))
    if tokenizer is not None:
        tokenizer = _given_tokenizer(tokenizer)
    with _staged(out) as staging:
        rejected = RejectedList(strict)
        spool = Spool(staging / "documents.arrow")
        take_in([Path(source) for source in sources], spool, rejected, set(), progress)
        if not spool.documents:
            raise _nothing_usable(sources, rejected)
        tagger = default_tagger(_learn_casing(spool, progress), phrases)
        if tokenizer is None:
            tokenizer = train_wordpiece(_training_texts(spool), vocab_size, lowercase)
        manifest = _write_first_version(staging, spool, tokenizer, tagger, rejected, block_length, progress)
        if not manifest.blocks:
            raise _nothing_usable(sources, rejected)
        spool.remove()
    return manifest


def _write_first_version(
    staging: Path,
    spool: Spool,
    tokenizer: TextTokenizer,
    tagger: SpanTagger,
    rejected: RejectedList,
    block_length: int,
    progress: Progress | None,
) -> CorpusManifest:
    """Fill an empty directory with everything a corpus has."""
    (staging / manifests.SEGMENTS_DIRECTORY).mkdir()
    tokenizer.save(staging / manifests.TOKENIZER_DIRECTORY)
    save_tagger(tagger, staging / manifests.TAGGER_FILE)
    (staging / manifests.REJECTED_FILE).write_bytes(rejected.text())
    manifest = _append(staging, _empty_manifest(tokenizer, block_length, rejected), spool, tokenizer, tagger, set(), progress)
    content = "\n".join([manifest.segments[0].sha256, tokenizer.sha256, str(block_length)])
    corpus_id = hashlib.sha256(content.encode("ascii")).hexdigest()[:32]
    manifest = replace(manifest, corpus_id=corpus_id, span_statistics=_merged_statistics(None, staging, manifest))
    manifests.write_manifest(staging, manifest)
    return manifest


def add_documents(corpus: Path, sources: Sequence[Path], *, strict: bool = False, progress: Progress | None = None) -> CorpusManifest:
    """Add documents as a new segment and publish a new version. Tokenizer and tagger stay those of the corpus.

    A document whose id is in the corpus already is rejected ("duplicate id").

    Args:
        corpus: the corpus directory.
        sources, strict, progress: as for ``build_corpus``.

    Raises:
        CorpusError: no corpus here, a damaged one, no document is usable, or another process is changing it. Nothing is changed.
        DataError: as for ``build_corpus``.
    """
    corpus = Path(corpus)
    manifests.current_version(corpus)  # before the lock file is made: this may not be a corpus at all
    with manifests.writer_lock(corpus):
        paths.remove_staging(corpus)
        try:
            return _add_locked(corpus, [Path(source) for source in sources], RejectedList(strict), progress)
        finally:
            paths.remove_staging(corpus)


def _add_locked(corpus: Path, sources: list[Path], rejected: RejectedList, progress: Progress | None) -> CorpusManifest:
    store = BlockStore.open(corpus)
    tagger = load_tagger(corpus / manifests.TAGGER_FILE)
    staging = corpus / f"add{paths.STAGING_SUFFIX}"
    (staging / manifests.SEGMENTS_DIRECTORY).mkdir(parents=True)
    spool = Spool(staging / "documents.arrow")
    take_in(sources, spool, rejected, set(store.documents()), progress)
    seen = {_block_key(block.title, block.text) for block in map(store.block, range(len(store)))}
    manifest = _append(staging, store.manifest, spool, store.tokenizer, tagger, seen, progress)
    if manifest.blocks == store.manifest.blocks:
        raise _nothing_usable(sources, rejected, manifest.duplicates - store.manifest.duplicates)
    counts = Counter(store.manifest.rejected) + rejected.counts
    manifest = replace(manifest, version=manifest.version + 1, rejected=dict(sorted(counts.items())))
    manifest = replace(manifest, span_statistics=_merged_statistics(store, staging, manifest))
    # From here on: new files under new names, then the manifest, then CURRENT. A crash in between leaves the old version.
    name = manifest.segments[-1].name
    paths.fsync_tree(staging)
    os.replace(staging / manifests.SEGMENTS_DIRECTORY / name, corpus / manifests.SEGMENTS_DIRECTORY / name)
    paths.fsync_directory(corpus / manifests.SEGMENTS_DIRECTORY)
    manifests.write_manifest(corpus, manifest)
    listing = corpus / manifests.REJECTED_FILE
    paths.write_atomic(listing, listing.read_bytes() + rejected.text())
    return manifest


def _given_tokenizer(tokenizer: TextTokenizer | str | Path) -> TextTokenizer:
    """A tokenizer from what the caller gave: a tokenizer.json, a corpus, or whatever AutoTokenizer takes."""
    if isinstance(tokenizer, TextTokenizer):
        return tokenizer
    path = Path(tokenizer)
    if path.is_file():
        return TextTokenizer.load(path)
    if (path / manifests.TOKENIZER_DIRECTORY).is_dir():
        return TextTokenizer.load(path / manifests.TOKENIZER_DIRECTORY)
    return TextTokenizer.from_pretrained(str(tokenizer))


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """``paths.publish_directory``, which leaves nothing behind when the build stops with an error."""
    try:
        with paths.publish_directory(out) as staging:
            yield staging
    except BaseException:
        shutil.rmtree(out.with_name(f"{out.name}{paths.STAGING_SUFFIX}"), ignore_errors=True)
        raise


def _learn_casing(spool: Spool, progress: Progress | None) -> CasingCounts:
    """The casing pass."""
    casing = CasingCounts()
    for number, documents in enumerate(spool.batches(), 1):
        for document in documents:
            casing.add(document.text[start:end] for start, end in document.sentences)
        if progress is not None:
            progress("casing batches", number)
    return casing


def _training_texts(spool: Spool) -> Iterator[str]:
    """What a vocabulary is trained on: titles and texts."""
    for document in chain.from_iterable(spool.batches()):
        yield document.title
        yield document.text


def _append(
    directory: Path,
    manifest: CorpusManifest,
    spool: Spool,
    tokenizer: TextTokenizer,
    tagger: SpanTagger,
    seen: set[bytes],
    progress: Progress | None,
) -> CorpusManifest:
    """Write the spool's documents to the next segment below ``directory``. Returns ``manifest`` with that segment and its counts added.

    Args:
        seen: keys of the blocks that are there already; grows.
    """
    name = f"{len(manifest.segments) + 1:06d}.arrow"
    path = directory / manifests.SEGMENTS_DIRECTORY / name
    counts = PackingCounts()
    documents, duplicates = 0, 0
    with SegmentWriter(path, token_dtype(tokenizer.vocab_size), manifest.next_block_id) as writer:
        for batch in spool.batches():
            for document, title_ids, blocks in _pack_batch(batch, tokenizer, tagger, manifest.block_length, counts):
                rows = writer.rows
                for block in blocks:
                    key = _block_key(document.title, document.text[block.start : block.end])
                    if key in seen:
                        duplicates += 1
                        continue
                    seen.add(key)
                    writer.add(document.doc_id, document.title, title_ids, document.text, block)
                documents += writer.rows > rows
            if progress is not None:
                progress("blocks", writer.rows)
    info = SegmentInfo(name, writer.rows, path.stat().st_size, paths.sha256_file(path), writer.tokens)
    statistics = manifest.span_statistics
    return replace(
        manifest,
        segments=(*manifest.segments, info),
        next_block_id=manifest.next_block_id + writer.rows,
        documents=manifest.documents + documents,
        blocks=manifest.blocks + writer.rows,
        spans=manifest.spans + writer.spans,
        duplicates=manifest.duplicates + duplicates,
        sentences_cut=manifest.sentences_cut + counts.sentences_cut,
        span_statistics=replace(statistics, unaligned=statistics.unaligned + counts.spans_unaligned, cut=statistics.cut + counts.spans_cut),
    )


def _pack_batch(
    documents: list[Document], tokenizer: TextTokenizer, tagger: SpanTagger, block_length: int, counts: PackingCounts
) -> Iterator[tuple[Document, list[int], list[PackedBlock]]]:
    """(document, title ids, blocks) of each document; one call of the tokenizer for all sentences."""
    titles = tokenizer.encode([document.title for document in documents])
    sentences = [document.text[start:end] for document in documents for start, end in document.sentences]
    encodings = tokenizer.encodings(sentences)
    position = 0
    for document, title in zip(documents, titles, strict=True):
        title_ids = title[: block_length // 4]
        room = block_length - SPECIAL_TOKENS_PER_BLOCK - len(title_ids)
        stop = position + len(document.sentences)
        tagged = [tagger.tag(sentence) for sentence in sentences[position:stop]]
        made = make_sentences(document.text, document.sentences, encodings[position:stop], tagged, room, counts)
        yield document, title_ids, [block for block in pack(made, room) if block.token_count]
        position = stop


def _block_key(title: str, text: str) -> bytes:
    """What makes two blocks identical: title and text. 16 bytes a block in memory."""
    return hashlib.blake2b(f"{title}\n{text}".encode(), digest_size=16).digest()


def _empty_manifest(tokenizer: TextTokenizer, block_length: int, rejected: RejectedList) -> CorpusManifest:
    return CorpusManifest(
        format=manifests.FORMAT, version=1, corpus_id="", tokenizer_sha256=tokenizer.sha256, vocab_size=tokenizer.vocab_size,
        block_length=block_length, segments=(), next_block_id=0, documents=0, blocks=0, spans=0, removed=0, duplicates=0,
        sentences_cut=0, rejected=rejected.by_reason(), span_statistics=SpanStatistics(0, 0, 0, 0),
    )  # fmt: skip


def _merged_statistics(store: BlockStore | None, directory: Path, manifest: CorpusManifest) -> SpanStatistics:
    """Span statistics of the old blocks and the newest segment together."""
    parts = [] if store is None else [store.live_span_hashes()]
    newest = manifest.segments[-1]
    segment = Segment(directory / manifests.SEGMENTS_DIRECTORY / newest.name, newest.rows)
    parts.append(segment_span_hashes(segment, first_row=manifest.next_block_id - newest.rows))
    distinct, single_block = span_repetition(parts)
    return replace(manifest.span_statistics, distinct=distinct, single_block=single_block)


def _nothing_usable(sources: Sequence[Path], rejected: RejectedList, duplicates: int = 0) -> CorpusError:
    counts = [f"{count} {reason}" for reason, count in rejected.by_reason().items()]
    counts += [f"{duplicates} identical to blocks that are there"] if duplicates else []
    where = ", ".join(str(source) for source in sources) or "no source"
    return CorpusError(f"no usable document in {where} ({'; '.join(counts) or 'nothing found'})", cure="Check the sources")
