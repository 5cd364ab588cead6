"""A corpus of published blocks: each record is one block, whatever its length, and its number is its block id.

The published embeddings belong to records by position, so nothing is packed anew, left out as a duplicate or dropped because it is empty.
Records come one at a time and are read twice: first some of them for the statistics of the salient spans, then all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa

from realm.corpus.build.builder import empty_manifest, publish_first_version
from realm.corpus.build.intake import Progress
from realm.corpus.build.packed import SegmentFile
from realm.corpus.build.packing import SPECIAL_TOKENS_PER_BLOCK, PackingCounts, make_pieces
from realm.corpus.build.rejected import RejectedList
from realm.corpus.build.rows import BlockRows
from realm.corpus.build.spool import Document
from realm.corpus.sources.provenance import source_name
from realm.corpus.store import manifest as manifests
from realm.corpus.store.lookup import finish_segment
from realm.corpus.store.manifest import CorpusManifest
from realm.corpus.store.segments import token_dtype
from realm.corpus.tagging.saved import save_tagger
from realm.corpus.tagging.spans import SpanTagger, tag_all
from realm.corpus.tagging.specs import TaggerPlan
from realm.corpus.workers import in_portions
from realm.errors import CorpusError, DataError
from realm.storage import files
from realm.text.canonical import canonical_text
from realm.text.sentences import split_sentences
from realm.text.tokenizer import TextTokenizer

TAGGER_RECORDS = 20_000
"""Records from which the tagger learns letter case and terms; more of them change little."""
BATCH = 1_000
SEGMENT = "000001.arrow"


def corpus_from_records(
    records: Iterable[bytes],
    out: Path,
    *,
    tokenizer: TextTokenizer,
    block_length: int,
    origin: Path,
    progress: Progress | None = None,
) -> CorpusManifest:
    """Make a corpus directory of published blocks. Block i is record i; its document has that number as id and no title.

    Args:
        records: UTF-8 texts; iterated twice.
        out: the corpus directory; must not exist.
        tokenizer: of the published model.
        block_length: wordpieces that a model input holds; longer records are kept whole and cut in the input, as the published models do.
        origin: where the records come from, for messages.
        progress: called with ("blocks", count, None) now and then.

    Raises:
        CorpusError: there is no record.
        DataError: a record that is not UTF-8, or what reading the records raises.
    """
    with files.publish_directory(out) as staging:
        (staging / manifests.SEGMENTS_DIRECTORY).mkdir()
        tagger = TaggerPlan().learned_from(_first_sentences(records, origin))
        tokenizer.save(staging / manifests.TOKENIZER_DIRECTORY)
        save_tagger(tagger, staging / manifests.TAGGER_FILE)
        (staging / manifests.REJECTED_FILE).write_bytes(b"")
        path = staging / manifests.SEGMENTS_DIRECTORY / SEGMENT
        counts, room, source = PackingCounts(), block_length - SPECIAL_TOKENS_PER_BLOCK, source_name(str(origin))
        with SegmentFile(path, token_dtype(tokenizer.vocab_size), 0) as file:
            for texts in in_portions(_texts(records, origin), lambda _: 1, BATCH):
                numbered = enumerate(texts, file.rows)
                documents = [Document(str(number), "", text, source, number + 1, split_sentences(text)) for number, text in numbered]
                file.add(_rows(documents, tokenizer, tagger, room, counts))
                if progress is not None:
                    progress("blocks", file.rows, None)
        if not file.rows:
            raise CorpusError("there is no record in it", path=origin, cure="Use the block_records.npy of a published model.")
        empty = empty_manifest(tokenizer, block_length, RejectedList(strict=False))
        statistics = replace(empty.span_statistics, unaligned=counts.spans_unaligned, cut=counts.spans_cut)
        segment = finish_segment(path, file.tokens)
        filled = replace(
            empty, segments=(segment,), next_block_id=file.rows, documents=file.rows, blocks=file.rows, spans=file.spans,
            sentences_cut=counts.sentences_cut, span_statistics=statistics,
        )  # fmt: skip
        return publish_first_version(staging, filled)


def _texts(records: Iterable[bytes], origin: Path) -> Iterator[str]:
    """Canonical texts."""
    for number, record in enumerate(records):
        try:
            yield canonical_text(record.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise DataError(f"record {number} is not UTF-8 ({error.reason})", path=origin, cure="Fetch the file again.") from error


def _first_sentences(records: Iterable[bytes], origin: Path) -> Iterator[str]:
    """What the tagger learns from."""
    for text in islice(_texts(records, origin), TAGGER_RECORDS):
        yield from (text[start:end] for start, end in split_sentences(text))


def _rows(documents: list[Document], tokenizer: TextTokenizer, tagger: SpanTagger, room: int, counts: PackingCounts) -> pa.RecordBatch:
    """One block of each document; one call of the tokenizer for all sentences."""
    sentences = [document.text[start:end] for document in documents for start, end in document.sentences]
    tokens, rows, position = tokenizer.tokenize(sentences), BlockRows(), 0
    for document in documents:
        stop = position + len(document.sentences)
        tagged = tag_all(tagger, sentences[position:stop])
        pieces = make_pieces(document.text, document.sentences, tokens, position, tagged, room, counts)
        if not len(pieces):
            pieces.add(0, 0, 0)
        rows.add(document, [], pieces, [(0, len(pieces))])
        position = stop
    return rows.to_arrow(tokens.ids, token_dtype(tokenizer.vocab_size))
