"""Documents to blocks: one new segment below a corpus directory, and the manifest that counts it."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from realm import paths
from realm.corpus import manifest as manifests
from realm.corpus.blocks import BlockStore
from realm.corpus.info import span_repetition
from realm.corpus.intake import Document, Progress, Spool
from realm.corpus.manifest import CorpusManifest, SegmentInfo, SpanStatistics
from realm.corpus.packing import SPECIAL_TOKENS_PER_BLOCK, PackedBlock, PackingCounts, make_sentences, pack
from realm.corpus.segments import Segment, SegmentWriter, segment_span_hashes, token_dtype
from realm.corpus.tagging import SpanTagger, tag_all
from realm.text.tokenizer import TextTokenizer


def append_segment(
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
                    key = block_key(document.title, document.text[block.start : block.end])
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


def merged_statistics(store: BlockStore | None, directory: Path, manifest: CorpusManifest) -> SpanStatistics:
    """Span statistics of the old blocks and the newest segment together."""
    parts = [] if store is None else [store.live_span_hashes()]
    newest = manifest.segments[-1]
    segment = Segment(directory / manifests.SEGMENTS_DIRECTORY / newest.name, newest.rows)
    parts.append(segment_span_hashes(segment, first_row=manifest.next_block_id - newest.rows))
    distinct, single_block = span_repetition(parts)
    return replace(manifest.span_statistics, distinct=distinct, single_block=single_block)


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
        tagged = tag_all(tagger, sentences[position:stop])
        made = make_sentences(document.text, document.sentences, encodings[position:stop], tagged, room, counts)
        yield document, title_ids, [block for block in pack(made, room) if block.token_count]
        position = stop


def block_key(title: str, text: str) -> bytes:
    """What makes two blocks identical: title and text. 16 bytes a block in memory."""
    return hashlib.blake2b(f"{title}\n{text}".encode(), digest_size=16).digest()
