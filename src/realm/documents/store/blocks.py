"""BlockStore: read-only, memory-mapped access to one version of a corpus, by row number or block id.

``block_id`` is the public name of a block, never reused. A row number is a position in this store and dies with it."""

from bisect import bisect_right
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa

from realm.documents.outline import BETWEEN, path_within
from realm.documents.store import manifest as manifests
from realm.documents.store.manifest import CorpusManifest
from realm.documents.store.segments import HEADING, LANGUAGE, LINKS, MEDIA
from realm.documents.store.views import BatchView, Segment
from realm.errors import CorpusError
from realm.storage.generations import steadily
from realm.text.tokenizer import TextTokenizer

# The block id of the null document: the empty block at candidate 0.
NULL_BLOCK = -1


@dataclass(frozen=True)
class Block:
    """A block as people read it: ``char_start`` counts code points of the document's canonical text, ``source`` and ``line`` name the
    record that it was read from (line 0: the whole file), ``media`` and ``media_sum`` the picture that it is, and its checksum;
    ``headings`` are the paths of headings that it begins under and that begin within it (``outline.paths_within``)."""

    block_id: int
    doc_id: str
    title: str
    text: str
    char_start: int
    source: str
    line: int
    media: str = ""
    media_sum: str = ""
    headings: str = ""

    @property
    def full_title(self) -> str:
        """The title of its document, and the headings that it begins under."""
        return BETWEEN.join(filter(None, (self.title, self.heading())))

    def heading(self, position: int = 0) -> str:
        """The path of headings above a place in the text."""
        return path_within(self.headings, position)


_BLOCK_COLUMNS = tuple(HEADING if field.name == "headings" else field.name for field in fields(Block))


@dataclass(frozen=True)
class SentenceTable:
    """Sentences of one block: int32 [s, 2] (start, end) in text and ``token_ids``; uint64 [s] their hashes in lower case, spaces as one."""

    chars: np.ndarray
    tokens: np.ndarray
    hashes: np.ndarray


@dataclass(frozen=True)
class SpanTable:
    """Salient spans of one block: int32 [m, 2] (start, end) in its text and ``token_ids``; int32 [m] the sentence that holds each."""

    chars: np.ndarray
    tokens: np.ndarray
    sentence: np.ndarray


class BlockStore:
    """One version of a corpus, which ``open`` makes: its manifest, and segments in order of their block ids; rows count through them."""

    def __init__(self, path: Path, manifest: CorpusManifest, tokenizer: TextTokenizer, segments: list[Segment], removed: np.ndarray):
        self.path = path
        self.manifest = manifest
        self.version, self.corpus_id = manifest.version, manifest.corpus_id
        self.tokenizer = tokenizer
        self.segments = segments
        self._removed = removed
        self._starts = list(accumulate((segment.rows for segment in segments), initial=0))
        self._first_ids = np.array([segment.first_id for segment in segments], np.int64)
        self._places = [(segment, number) for segment in segments for number in range(len(segment.info.batch_rows))]
        self._batch_starts = list(accumulate((count for segment in segments for count in segment.info.batch_rows), initial=0))

    @classmethod
    def open(cls, path: Path) -> "BlockStore":
        """Open the version in force. What is mapped then stays readable whatever other processes do to the corpus. Raises CorpusError:
        missing, damaged, empty, or written by an earlier version of this package."""
        store = cls.open_even_empty(path)
        if not store.manifest.blocks:
            raise CorpusError("the corpus is empty", path=path, cure="Add documents with: realm corpus add")
        return store

    @classmethod
    def open_even_empty(cls, path: Path) -> "BlockStore":
        """``open`` for those who write: every document may have been removed."""
        path = Path(path)
        return _open_steadily(path)

    def newest(self) -> "BlockStore":
        """The version in force: this store if nothing was published since. Reads one small file and what was added, and no text.

        What both versions hold is opened once, so that a service with many changes behind it does not hold every file once a version."""
        return _open_steadily(self.path, self) if self.changed() else self

    def __len__(self) -> int:
        """Rows, those with a tombstone included."""
        return self._starts[-1]

    @cached_property
    def block_ids(self) -> np.ndarray:
        """int64 [n], ascending: row i is block ``block_ids[i]``."""
        return _concatenate([segment.block_ids for segment in self.segments], np.int64)

    @cached_property
    def live(self) -> np.ndarray:
        """bool [n]: False where the block has a tombstone."""
        live = np.ones(len(self), np.bool_)
        live[self._find(self._removed)] = False
        return live

    def is_live(self, block_ids: np.ndarray) -> np.ndarray:
        """bool, same shape as ``block_ids``: whether this version holds the block, and without a tombstone."""
        rows = self._find(np.asarray(block_ids, np.int64))
        known = rows >= 0
        known[known] = self.live[rows[known]]
        return known

    @cached_property
    def lengths(self) -> np.ndarray:
        """int32 [n]: wordpieces of title and body, special tokens not counted."""
        parts = [np.diff(view.lists("title_ids").offsets) + np.diff(view.lists("token_ids").offsets) for view in self._batches]
        return _concatenate(parts, np.int32)

    def rows_of(self, block_ids: np.ndarray) -> np.ndarray:
        """int64, same shape as ``block_ids``: their rows. Raises KeyError: an id that is not in this version."""
        wanted = np.asarray(block_ids, dtype=np.int64)
        rows = self._find(wanted)
        if (rows < 0).any():
            raise KeyError(f"no block {int(wanted[rows < 0].flat[0])} in version {self.version} of {self.path}")
        return rows

    def title_ids(self, row: int) -> np.ndarray:
        """Wordpieces of the title and the headings, at most a quarter of the block length; a read-only view, uint16 or uint32."""
        view, index = self._locate(row)
        return view.lists("title_ids").row(index)

    def token_ids(self, row: int) -> np.ndarray:
        """Wordpieces of the body; a read-only view, uint16 or uint32."""
        view, index = self._locate(row)
        return view.lists("token_ids").row(index)

    def doc_id(self, row: int) -> str:
        view, index = self._locate(row)
        return str(view.scalar("doc_id", index))

    def language(self, row: int) -> str:
        """The language of the document that the block at ``row`` is part of, as ``text.words`` says it."""
        view, index = self._locate(row)
        return str(view.scalar(LANGUAGE, index))

    def links(self, row: int) -> np.ndarray:
        """uint64 [l]: keys of what the block at ``row`` links to, in its order; a view."""
        view, index = self._locate(row)
        return view.lists(LINKS).row(index)

    def block(self, row: int) -> Block:
        view, index = self._locate(row)
        return Block(*(view.scalar(column, index) for column in _BLOCK_COLUMNS))

    def sentences(self, row: int) -> SentenceTable:
        """The sentences of the block at ``row``; views."""
        view, index = self._locate(row)
        return SentenceTable(*(view.lists(name).row(index) for name in ("sentence_chars", "sentence_tokens", "sentence_hashes")))

    def spans(self, row: int) -> SpanTable:
        view, index = self._locate(row)
        return SpanTable(*(view.lists(name).row(index) for name in ("span_chars", "span_tokens", "span_sentence")))

    def rows_with_sentence(self, sentence_hash: int) -> np.ndarray:
        """int64 [r], ascending: rows whose block holds that sentence verbatim (``SentenceTable.hashes``)."""
        hashes, rows = self._sentence_index
        wanted = np.uint64(sentence_hash)
        start, stop = np.searchsorted(hashes, wanted, "left"), np.searchsorted(hashes, wanted, "right")
        return np.unique(rows[start:stop])

    def rows_of_document(self, doc_id: str) -> np.ndarray:
        """int64 [r], ascending: rows of one document, those with a tombstone included; empty if it has none."""
        found = zip(self._starts, self.segments, strict=False)
        return np.array([start + row for start, segment in found for row in segment.rows_of_document(doc_id)], np.int64)

    def live_rows_of_document(self, doc_id: str) -> np.ndarray:
        """int64 [r], ascending: the live rows of one document; empty if it is not, or no longer, in the corpus."""
        rows = self.rows_of_document(doc_id)
        return rows[self.live[rows]]

    def documents(self) -> list[str]:
        """Ids of the documents that have a live row, in order of their rows. Reads the whole column."""
        ids: list[str] = []
        start = 0
        for view in self._batches:
            live = self.live[start : start + view.rows]
            ids += (name for name, is_live in zip(view.strings("doc_id"), live, strict=True) if is_live and ids[-1:] != [name])
            start += view.rows
        return ids

    def sources(self) -> set[str]:
        """Files and names that live blocks were read from, and the pictures that they are of. Reads two whole columns."""
        found: set[str] = set()
        start = 0
        for view in self._batches:
            live = pa.array(self.live[start : start + view.rows])
            for name in ("source", MEDIA):
                found.update(view.column(name).filter(live).unique().to_pylist())
            start += view.rows
        return found - {""}

    def span_hashes(self, row: int) -> np.ndarray:
        """uint64 [m]: hashes of the normalised texts of the spans at ``row``; a view."""
        view, index = self._locate(row)
        return view.lists("span_hashes").row(index)

    def span_occurrences(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(uint64 [t], int64 [t]): hash and row of every span, in rows with a tombstone too, whose hash is in ``wanted`` (ascending)."""
        hashes, rows, start = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], 0
        for view in self._batches:
            spans = view.lists("span_hashes")
            at = np.minimum(np.searchsorted(wanted, spans.values), len(wanted) - 1)
            found = np.flatnonzero(wanted[at] == spans.values)
            hashes.append(spans.values[found])
            rows.append(start + np.searchsorted(spans.offsets, found, side="right") - 1)
            start += view.rows
        return np.concatenate(hashes), np.concatenate(rows)

    def changed(self) -> bool:
        """True once another version was published since this one was opened. Reads one small file."""
        return manifests.current_version(self.path) != self.version

    def _find(self, wanted: np.ndarray) -> np.ndarray:
        """int64, same shape as ``wanted``: the row of each block id, -1 where there is none. Segments are in order of their ids."""
        rows = np.full(wanted.shape, -1, np.int64)
        numbers = np.searchsorted(self._first_ids, wanted, side="right") - 1
        for number in np.flatnonzero(np.bincount(numbers[numbers >= 0].ravel())).tolist():
            here = numbers == number
            found = self.segments[number].rows_of(wanted[here])
            rows[here] = np.where(found < 0, -1, found + self._starts[number])
        return rows

    def _locate(self, row: int) -> tuple[BatchView, int]:
        row = int(row)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} is not in 0..{len(self) - 1}")
        number = bisect_right(self._batch_starts, row) - 1
        segment, position = self._places[number]
        return segment.view(position), row - self._batch_starts[number]

    @property
    def _batches(self) -> list[BatchView]:
        return [segment.view(number) for segment, number in self._places]

    @cached_property
    def _sentence_index(self) -> tuple[np.ndarray, np.ndarray]:
        """Sentence hashes in ascending order, and the row of each: 16 bytes a sentence."""
        parts = [segment.flat("sentence_hashes", start) for start, segment in zip(self._starts, self.segments, strict=False)]
        hashes, rows = _concatenate([part[0] for part in parts], np.uint64), _concatenate([part[1] for part in parts], np.int64)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], rows[order]


def _concatenate(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype)


def _open_steadily(path: Path, before: BlockStore | None = None) -> BlockStore:
    return steadily(partial(manifests.current_version, path), lambda _: _open_in_force(path, before), CorpusError)


def _open_in_force(path: Path, before: BlockStore | None) -> BlockStore:
    manifest = manifests.read_manifest(path)
    tokenizer = before.tokenizer if before else TextTokenizer.load(path / manifests.TOKENIZER_DIRECTORY)
    if tokenizer.sha256 != manifest.tokenizer_sha256:
        raise CorpusError("the tokenizer is not the one the corpus was built with", path=path, cure="Build the corpus again")
    opened = {segment.info: segment for segment in before.segments} if before else {}
    segments = [opened.get(info) or Segment(path / manifests.SEGMENTS_DIRECTORY, info) for info in manifest.segments]
    return BlockStore(path, manifest, tokenizer, segments, manifests.read_tombstones(path, manifest))
