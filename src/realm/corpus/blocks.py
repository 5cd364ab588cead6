"""BlockStore: read-only, memory-mapped access to one version of a corpus, by row number or block id.

``block_id`` is the public name of a block, never reused. A row number is a position in this store and dies with it.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from realm.corpus import manifest as manifests
from realm.corpus.manifest import CorpusManifest
from realm.corpus.segments import BatchView, Segment
from realm.errors import CorpusError
from realm.text.tokenizer import TextTokenizer

# The block id of the null document: the empty block at candidate 0.
NULL_BLOCK = -1


@dataclass(frozen=True)
class Block:
    """A block as people read it. ``char_start``: where ``text`` begins in the document's canonical text, in code points."""

    block_id: int
    doc_id: str
    title: str
    text: str
    char_start: int


@dataclass(frozen=True)
class SentenceTable:
    """The sentences of one block.

    Attributes:
        chars: int32 [s, 2], (start, end) in the block's text.
        tokens: int32 [s, 2], (start, end) in the block's ``token_ids``.
        hashes: uint64 [s], of the lower-cased text with white space collapsed.
    """

    chars: np.ndarray
    tokens: np.ndarray
    hashes: np.ndarray


@dataclass(frozen=True)
class SpanTable:
    """The salient spans of one block.

    Attributes:
        chars: int32 [m, 2], (start, end) in the block's text.
        tokens: int32 [m, 2], (start, end) in ``token_ids``: exactly the wordpieces of the span.
        sentence: int32 [m], the sentence that holds it.
    """

    chars: np.ndarray
    tokens: np.ndarray
    sentence: np.ndarray


class BlockStore:
    """One version of a corpus. Make it with ``open``.

    Attributes:
        path: the corpus directory.
        manifest: what this version holds.
        version: its number.
        tokenizer: the corpus's tokenizer.
    """

    def __init__(self, path: Path, manifest: CorpusManifest, tokenizer: TextTokenizer, segments: list[Segment], removed: np.ndarray):
        self.path = path
        self.manifest = manifest
        self.version = manifest.version
        self.tokenizer = tokenizer
        self._segments = segments
        self._removed = removed
        self._starts = [0]
        for segment in segments:
            self._starts.append(self._starts[-1] + segment.rows)

    @classmethod
    def open(cls, path: Path) -> "BlockStore":
        """Open the version in force.

        Raises:
            CorpusError: missing, damaged, empty, or written by another version of this package.
        """
        path = Path(path)
        manifest = manifests.read_manifest(path)
        if not manifest.segments or not manifest.blocks:
            raise CorpusError("the corpus is empty", path=path, cure="Add documents with: realm corpus add")
        tokenizer = TextTokenizer.load(path / manifests.TOKENIZER_DIRECTORY)
        if tokenizer.sha256 != manifest.tokenizer_sha256:
            raise CorpusError("the tokenizer is not the one the corpus was built with", path=path, cure="Build the corpus again")
        return cls(path, manifest, tokenizer, _open_segments(path, manifest), _read_tombstones(path, manifest))

    def __len__(self) -> int:
        """Rows, those with a tombstone included."""
        return self._starts[-1]

    @cached_property
    def block_ids(self) -> np.ndarray:
        """int64 [n], ascending: row i is block ``block_ids[i]``."""
        return _concatenate([view.block_ids for view in self._batches()], np.int64)

    @cached_property
    def live(self) -> np.ndarray:
        """bool [n]: False where the block has a tombstone."""
        return ~np.isin(self.block_ids, self._removed, assume_unique=True)

    @cached_property
    def lengths(self) -> np.ndarray:
        """int32 [n]: wordpieces of title and body, special tokens not counted."""
        parts = [np.diff(view.lists("title_ids").offsets) + np.diff(view.lists("token_ids").offsets) for view in self._batches()]
        return _concatenate(parts, np.int32)

    def rows_of(self, block_ids: np.ndarray) -> np.ndarray:
        """int64, same shape as ``block_ids``: their rows.

        Raises:
            KeyError: an id that is not in this version.
        """
        wanted = np.asarray(block_ids, dtype=np.int64)
        rows = np.searchsorted(self.block_ids, wanted)
        found = rows < len(self)
        found &= self.block_ids[np.minimum(rows, len(self) - 1)] == wanted
        if not found.all():
            raise KeyError(f"no block {int(wanted[~found].flat[0])} in version {self.version} of {self.path}")
        return rows

    def title_ids(self, row: int) -> np.ndarray:
        """Wordpieces of the title, at most a quarter of the block length; a read-only view, uint16 or uint32."""
        view, index = self._locate(row)
        return view.lists("title_ids").row(index)

    def token_ids(self, row: int) -> np.ndarray:
        """Wordpieces of the body; a read-only view, uint16 or uint32."""
        view, index = self._locate(row)
        return view.lists("token_ids").row(index)

    def block(self, row: int) -> Block:
        """The block at ``row``."""
        view, index = self._locate(row)
        return Block(
            block_id=int(view.block_ids[index]),
            doc_id=view.scalar("doc_id", index),
            title=view.scalar("title", index),
            text=view.scalar("text", index),
            char_start=view.scalar("char_start", index),
        )

    def sentences(self, row: int) -> SentenceTable:
        """The sentences of the block at ``row``; views."""
        view, index = self._locate(row)
        return SentenceTable(*(view.lists(name).row(index) for name in ("sentence_chars", "sentence_tokens", "sentence_hashes")))

    def spans(self, row: int) -> SpanTable:
        """The salient spans of the block at ``row``; views."""
        view, index = self._locate(row)
        return SpanTable(*(view.lists(name).row(index) for name in ("span_chars", "span_tokens", "span_sentence")))

    def rows_with_sentence(self, sentence_hash: int) -> np.ndarray:
        """int64 [r], ascending: rows whose block holds that sentence verbatim (``SentenceTable.hashes``)."""
        hashes, rows = self._sentence_index
        wanted = np.uint64(sentence_hash)
        start, stop = np.searchsorted(hashes, wanted, "left"), np.searchsorted(hashes, wanted, "right")
        return np.unique(rows[start:stop])

    def rows_of_document(self, doc_id: str) -> np.ndarray:
        """int64 [r], ascending: rows of one document; empty if it has none."""
        first, order, names = self._documents
        position = names.get(doc_id)
        return np.empty(0, np.int64) if position is None else order[first[position] : first[position + 1]]

    def documents(self) -> list[str]:
        """Ids of the documents that have a row, in order of first appearance."""
        return list(self._documents[2])

    def live_span_hashes(self) -> tuple[np.ndarray, np.ndarray]:
        """(uint64 [t], int64 [t]): hash of the normalised text and block id of every span occurrence in live blocks."""
        hashes, rows = self._flat("span_hashes", np.uint64)
        keep = self.live[rows]
        return hashes[keep], self.block_ids[rows[keep]]

    def changed(self) -> bool:
        """Whether another version was published since this one was opened. Reads one small file."""
        return manifests.current_version(self.path) != self.version

    def _batches(self) -> list[BatchView]:
        return [view for segment in self._segments for view in segment.batches()]

    def _locate(self, row: int) -> tuple[BatchView, int]:
        row = int(row)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} is not in 0..{len(self) - 1}")
        number = bisect_right(self._starts, row) - 1
        return self._segments[number].locate(row - self._starts[number])

    def _flat(self, name: str, dtype: type) -> tuple[np.ndarray, np.ndarray]:
        """All values of a list column and the row of each."""
        views = [view.lists(name) for view in self._batches()]
        counts = _concatenate([np.diff(view.offsets) for view in views], np.int64)
        return _concatenate([view.values for view in views], dtype), np.repeat(np.arange(len(self)), counts)

    @cached_property
    def _sentence_index(self) -> tuple[np.ndarray, np.ndarray]:
        """Sentence hashes in ascending order, and the row of each: 16 bytes a sentence."""
        hashes, rows = self._flat("sentence_hashes", np.uint64)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], rows[order]

    @cached_property
    def _documents(self) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        """Rows grouped by document: group starts [d + 1], rows [n], document id -> group."""
        names: dict[str, int] = {}
        groups = np.fromiter(
            (names.setdefault(name, len(names)) for view in self._batches() for name in view.strings("doc_id")), np.int64, len(self)
        )
        first = np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=len(names)))])
        return first, np.argsort(groups, kind="stable"), names


def _concatenate(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype)


def _open_segments(path: Path, manifest: CorpusManifest) -> list[Segment]:
    segments = []
    for info in manifest.segments:
        file = path / manifests.SEGMENTS_DIRECTORY / info.name
        # Size is checked, not the hash: opening must not read the corpus.
        if not file.is_file() or file.stat().st_size != info.bytes:
            raise CorpusError("missing or truncated segment", path=file, cure="Build the corpus again")
        segments.append(Segment(file, info.rows))
    return segments


def _read_tombstones(path: Path, manifest: CorpusManifest) -> np.ndarray:
    """int64, ascending: ids of removed blocks."""
    if manifest.tombstones is None:
        return np.empty(0, np.int64)
    try:
        return np.load(path / manifest.tombstones, allow_pickle=False).astype(np.int64, copy=False)
    except (OSError, ValueError) as error:
        raise CorpusError(f"damaged tombstones: {error}", path=path / manifest.tombstones, cure="Build the corpus again") from error
