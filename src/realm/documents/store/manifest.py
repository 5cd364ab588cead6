"""The manifest of one corpus version, and ``CURRENT``, which names the version in force.

A version is published by writing its new files, then its manifest, then ``CURRENT``: a crash in between leaves the old version."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from realm.errors import CorpusError, made_earlier
from realm.storage import files
from realm.storage.arrays import read_array
from realm.storage.files import array_sum, bytes_sum, file_sum
from realm.storage.generations import CURRENT
from realm.storage.locks import held
from realm.storage.manifests import Errors, read_object, unsealed, write_sealed

FORMAT = "realm-corpus/5"
CURRENT_FILE = CURRENT
TAGGER_FILE = "tagger.json"
TOKENIZER_DIRECTORY = "tokenizer"
REJECTED_FILE = "rejected.jsonl"
SEGMENTS_DIRECTORY = "segments"


@dataclass(frozen=True)
class SegmentSums:
    """Checksums (``storage.files``) of what is read of a segment at a time: (start, end, checksum) of the bytes before the columns of each
    record batch and of those behind the last; of each batch those of its columns in one string; of its look-up file."""

    frames: tuple[tuple[int, int, str], ...]
    columns: tuple[str, ...]
    documents: str


@dataclass(frozen=True)
class SegmentInfo:
    """One Arrow file below segments/, described so that opening it reads its footer only: rows, bytes and hash of the file; wordpieces of
    all blocks, titles not counted; lowest and highest block id; rows of each record batch; checksums."""

    name: str
    rows: int
    bytes: int
    sha256: str
    tokens: int
    first_id: int
    last_id: int
    batch_rows: tuple[int, ...]
    sums: SegmentSums


@dataclass(frozen=True)
class SpanStatistics:
    """Repetition of salient spans: different normalised texts; occurrences whose text is in one block only, which no other document can
    help to predict; tagged spans that were dropped because wordpieces do not cover them exactly, or because an over-long sentence was cut
    inside them."""

    distinct: int
    single_block: int
    unaligned: int
    cut: int


@dataclass(frozen=True)
class CorpusManifest:
    """The content of one version of a corpus.

    Attributes:
        version: counts up from 1 with every change; ``corpus_id``, the hash of the first version's content, is kept by later ones.
        documents, blocks, spans: in all segments, removed ones not counted; ``removed`` are blocks with a tombstone.
        tombstones: name of the .npy file of removed block ids (int64, ascending), or None."""

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
    sentences_cut: int
    rejected: dict[str, int]
    span_statistics: SpanStatistics
    tombstones: str | None = None
    tombstones_sum: str | None = None
    removed_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Wordpieces of all live blocks, titles not counted."""
        return sum(segment.tokens for segment in self.segments) - self.removed_tokens


CORPUS_CURE = "Build the corpus again; before that, see what realm repair CORPUS (or RUN) can rebuild"


def damage(what: str) -> Errors:
    """Errors over a file of a corpus, ``what`` it is, that is damaged or cannot be read."""
    passing = "Check the permissions, the disk, and how many files may be open (ulimit -n)"
    return Errors(Errors.of(CorpusError, CORPUS_CURE, f"damaged {what}: ").damaged, Errors.of(CorpusError, passing, f"{what}: ").refused)


def manifest_path(corpus: Path, version: int) -> Path:
    return corpus / f"manifest-{version:06d}.json"


def current_version(corpus: Path) -> int:
    """The version in force, by ``CURRENT``. Raises CorpusError: no corpus, one of an earlier version, or a damaged ``CURRENT``."""
    return _current(corpus)[0]


def _current(corpus: Path) -> tuple[int, str]:
    """The version in force, and the checksum of its manifest."""
    path = corpus / CURRENT_FILE
    try:
        text = path.read_text(encoding="ascii")
    except (PermissionError, FileNotFoundError, NotADirectoryError) as error:
        if any(corpus.glob("manifest-*.json")):
            raise CorpusError("missing: the current version is unknown", path=path, cure=f"Run: realm repair {corpus}") from error
        raise CorpusError("no corpus here", path=corpus, cure="Make one with: realm corpus build SOURCE --out CORPUS") from error
    except OSError as error:
        raise damage("version").unreadable(error, path) from error
    except ValueError:
        text = ""
    if found := re.fullmatch(r"([1-9][0-9]{0,8}) ([0-9a-f]+) [0-9a-f]+\n", text):
        number, manifest_sum = found.groups()
        if text == _with_sum(f"{number} {manifest_sum}"):
            return int(number), manifest_sum
    if re.fullmatch(r"[0-9]+( [0-9a-f]+)?\n", text):  # without a checksum of the manifest
        raise made_earlier(CorpusError, path)
    raise CorpusError("damaged: not a version number", path=path, cure=f"Run: realm repair {corpus}")


def _with_sum(text: str) -> str:
    """A line with a checksum of it at its end: another number may be a version that is there."""
    return f"{text} {bytes_sum(text.encode('ascii'))}\n"


def point_at(corpus: Path, version: int) -> None:
    """Make a version whose manifest is there the one in force, with that manifest's checksum: another corpus's is none of this one's."""
    files.write_atomic(corpus / CURRENT_FILE, _with_sum(f"{version} {file_sum(manifest_path(corpus, version))}"))


def _sum_of(path: Path) -> str:
    """The checksum of a manifest's file, which a writer may purge meanwhile. Raises CorpusError."""
    try:
        return file_sum(path)
    except FileNotFoundError:
        raise damage("manifest").damaged("missing", path=path) from None
    except OSError as error:
        raise damage("manifest").unreadable(error, path) from error


def read_manifest(corpus: Path, version: int | None = None) -> CorpusManifest:
    """The manifest of a version, or that in force. Raises CorpusError: missing, damaged, or of an earlier version of this package."""
    number, expected = _current(corpus) if version is None else (version, None)
    path = manifest_path(corpus, number)
    try:
        value = read_object(path, damage("manifest"))
        if value.get("format") != FORMAT:
            raise made_earlier(CorpusError, path)
        manifest = manifest_from_json(unsealed(value, damage("manifest"), path))
        if manifest_path(corpus, manifest.version) != path:
            raise ValueError(f"it is that of version {manifest.version}")
        if expected is not None and _sum_of(path) != expected:
            raise CorpusError("damaged: it is that of another corpus", path=corpus / CURRENT_FILE, cure=f"Run: realm repair {corpus}")
        return manifest
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damage("manifest").damaged(error, path=path) from error


def manifest_from_json(value: dict[str, Any]) -> CorpusManifest:
    """The manifest whose ``asdict`` gave ``value``; keys that are no longer written are left unread."""
    segments = tuple(
        SegmentInfo(**entry | {"batch_rows": tuple(entry["batch_rows"]), "sums": _sums(entry["sums"])}) for entry in value["segments"]
    )
    known = {field.name: value[field.name] for field in fields(CorpusManifest)}
    return CorpusManifest(**known | {"segments": segments, "span_statistics": SpanStatistics(**value["span_statistics"])})


def _sums(value: dict[str, Any]) -> SegmentSums:
    frames = tuple((start, end, found) for start, end, found in value["frames"])
    return SegmentSums(frames, tuple(value["columns"]), value["documents"])


def write_manifest(corpus: Path, manifest: CorpusManifest) -> None:
    """Publish ``manifest``: its file first, then ``CURRENT``."""
    write_sealed(manifest_path(corpus, manifest.version), asdict(manifest))
    point_at(corpus, manifest.version)


def read_tombstones(corpus: Path, manifest: CorpusManifest) -> np.ndarray:
    """int64, ascending: ids of removed blocks. Raises CorpusError: missing or damaged."""
    if manifest.tombstones is None:
        return np.empty(0, np.int64)
    path = corpus / manifest.tombstones
    removed = read_array(path, (manifest.removed,), np.dtype(np.int64), damage("tombstones"))
    if array_sum(removed) != manifest.tombstones_sum:
        raise damage("tombstones").damaged("changed since they were published (checksum differs)", path=path)
    return removed


@contextmanager
def writer_lock(corpus: Path) -> Iterator[None]:
    """Hold the corpus for writing; wait a while for another writer. Raises CorpusError: another process is still writing."""

    def busy(named: str) -> CorpusError:
        return CorpusError(f"another process{named} is changing this corpus", path=corpus, cure="Try again when it has ended")

    with held(corpus, busy):
        yield


def given_corpus(sentences: tuple[str, ...]) -> Path | None:
    """The corpus directory that ``pretrain.sentences`` names; None where it names documents or nothing."""
    return Path(sentences[0]) if len(sentences) == 1 and (Path(sentences[0]) / CURRENT_FILE).exists() else None
