"""Build a corpus from sources.

Three passes: sources to canonical documents (intake.py); casing statistics and, if none is given, a vocabulary; documents to blocks
(appending.py). Everything is staged beside the target and renamed at the end.
"""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

from realm import paths
from realm.corpus import manifest as manifests
from realm.corpus.appending import append_segment, merged_statistics
from realm.corpus.gazetteer import GazetteerTagger
from realm.corpus.intake import Progress, RejectedList, Spool, nothing_usable, take_in
from realm.corpus.manifest import CorpusManifest, SpanStatistics
from realm.corpus.salient import CasingCounts, default_tagger, save_tagger
from realm.corpus.tagging import SpanTagger
from realm.errors import ConfigError, CorpusError
from realm.text.tokenizer import TextTokenizer, train_wordpiece

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
    with staged(out) as staging:
        rejected = RejectedList(strict)
        spool = Spool(staging / "documents.arrow")
        take_in([Path(source) for source in sources], spool, rejected, set(), progress)
        if not spool.documents:
            raise nothing_usable(sources, rejected)
        tagger = default_tagger(_learn_casing(spool, progress), phrases)
        if tokenizer is None:
            tokenizer = train_wordpiece(_training_texts(spool), vocab_size, lowercase)
        manifest = _write_first_version(staging, spool, tokenizer, tagger, rejected, block_length, progress)
        if not manifest.blocks:
            raise nothing_usable(sources, rejected)
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
    manifest = append_segment(staging, empty_manifest(tokenizer, block_length, rejected), spool, tokenizer, tagger, set(), progress)
    return publish_first_version(staging, manifest)


def publish_first_version(directory: Path, manifest: CorpusManifest) -> CorpusManifest:
    """Name the corpus after its content, count how spans repeat, and write the manifest. Returns it."""
    content = "\n".join([manifest.segments[0].sha256, manifest.tokenizer_sha256, str(manifest.block_length)])
    corpus_id = hashlib.sha256(content.encode("ascii")).hexdigest()[:32]
    manifest = replace(manifest, corpus_id=corpus_id, span_statistics=merged_statistics(None, directory, manifest))
    manifests.write_manifest(directory, manifest)
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
def staged(out: Path) -> Iterator[Path]:
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


def empty_manifest(tokenizer: TextTokenizer, block_length: int, rejected: RejectedList) -> CorpusManifest:
    """The manifest of a corpus before its first segment."""
    return CorpusManifest(
        format=manifests.FORMAT, version=1, corpus_id="", tokenizer_sha256=tokenizer.sha256, vocab_size=tokenizer.vocab_size,
        block_length=block_length, segments=(), next_block_id=0, documents=0, blocks=0, spans=0, removed=0, duplicates=0,
        sentences_cut=0, rejected=rejected.by_reason(), span_statistics=SpanStatistics(0, 0, 0, 0),
    )  # fmt: skip
