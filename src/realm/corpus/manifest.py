"""The manifest of one corpus version, and ``CURRENT``, which names the version in force.

A version is published by writing its new files, then its manifest, then ``CURRENT``: a crash in between leaves the old version.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from realm import paths
from realm.errors import CorpusError

FORMAT = "realm-corpus/1"
CURRENT_FILE = "CURRENT"
LOCK_FILE = "LOCK"
TAGGER_FILE = "tagger.json"
TOKENIZER_DIRECTORY = "tokenizer"
REJECTED_FILE = "rejected.jsonl"
SEGMENTS_DIRECTORY = "segments"


@dataclass(frozen=True)
class SegmentInfo:
    """One Arrow file: name below segments/, rows, size in bytes, SHA-256 in hex, tokens of all blocks (titles not counted)."""

    name: str
    rows: int
    bytes: int
    sha256: str
    tokens: int


@dataclass(frozen=True)
class SpanStatistics:
    """How salient spans repeat.

    Attributes:
        distinct: different normalised texts.
        single_block: occurrences whose text is in one block only: no other document can help to predict those.
        unaligned: tagged spans dropped because wordpieces do not cover them exactly.
        cut: tagged spans dropped because an over-long sentence was cut inside them.
    """

    distinct: int
    single_block: int
    unaligned: int
    cut: int


@dataclass(frozen=True)
class CorpusManifest:
    """What one version of a corpus holds.

    Attributes:
        format: layout of the directory.
        version: counts up from 1 with every change.
        corpus_id: hash of the first version's content; kept by later versions.
        tokenizer_sha256: of tokenizer/tokenizer.json.
        vocab_size: of the tokenizer; decides whether token ids are uint16 or uint32.
        block_length: most wordpieces of a block, with its title and three special tokens.
        segments: in order of their block ids.
        next_block_id: the id that the next block gets; ids are never reused.
        documents, blocks, spans: in all segments, removed ones not counted.
        removed: blocks with a tombstone.
        duplicates: blocks left out because title and text equal another block's.
        sentences_cut: sentences too long for a block, cut into pieces.
        rejected: records left out, by reason.
        span_statistics: how spans repeat.
        tombstones: name of the .npy file of removed block ids (int64, ascending), or None.
    """

    format: str
    version: int
    corpus_id: str
    tokenizer_sha256: str
    vocab_size: int
    block_length: int
    segments: tuple[SegmentInfo, ...]
    next_block_id: int
    documents: int
    blocks: int
    spans: int
    removed: int
    duplicates: int
    sentences_cut: int
    rejected: dict[str, int]
    span_statistics: SpanStatistics
    tombstones: str | None = None


def manifest_path(corpus: Path, version: int) -> Path:
    """Where the manifest of ``version`` lies."""
    return corpus / f"manifest-{version:06d}.json"


def current_version(corpus: Path) -> int:
    """The version in force.

    Raises:
        CorpusError: there is no corpus here, or ``CURRENT`` is damaged.
    """
    path = corpus / CURRENT_FILE
    try:
        return int(path.read_text(encoding="ascii"))
    except OSError as error:
        raise CorpusError("no corpus here", path=corpus, cure="Make one with: realm corpus build SOURCE --out CORPUS") from error
    except ValueError as error:
        raise CorpusError("damaged: not a version number", path=path, cure="Build the corpus again") from error


def read_manifest(corpus: Path) -> CorpusManifest:
    """The manifest of the version in force.

    Raises:
        CorpusError: missing, damaged, or written by another version of this package.
    """
    path = manifest_path(corpus, current_version(corpus))
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if value.get("format") != FORMAT:
            cure = "Build the corpus again with this version"
            raise CorpusError(f"the corpus has format {value.get('format')!r}, this version reads {FORMAT!r}", path=path, cure=cure)
        return manifest_from_json(value)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"damaged manifest: {error}", path=path, cure="Build the corpus again") from error


def manifest_from_json(value: dict[str, Any]) -> CorpusManifest:
    """The manifest whose ``asdict`` gave ``value``."""
    segments = tuple(SegmentInfo(**entry) for entry in value["segments"])
    return CorpusManifest(**value | {"segments": segments, "span_statistics": SpanStatistics(**value["span_statistics"])})


def write_manifest(corpus: Path, manifest: CorpusManifest) -> None:
    """Publish ``manifest``: its file first, then ``CURRENT``."""
    paths.write_json(manifest_path(corpus, manifest.version), asdict(manifest))
    paths.write_atomic(corpus / CURRENT_FILE, f"{manifest.version}\n")


@contextmanager
def writer_lock(corpus: Path) -> Iterator[None]:
    """Hold the corpus for writing. The lock dies with its process.

    Raises:
        CorpusError: another process is writing.
    """
    import fcntl

    with open(corpus / LOCK_FILE, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CorpusError("another process is changing this corpus", path=corpus, cure="Try again when it has ended") from error
        yield
