"""Packed blocks as rows of a segment: positions are gathered document by document and turned into columns all at once."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from realm.corpus.build.packing import Pieces, hash64
from realm.corpus.build.spool import Document
from realm.corpus.links import title_key
from realm.corpus.store.lookup import block_key
from realm.corpus.store.segments import LANGUAGE, LINK_NAMES, LINKS, MEDIA, MEDIA_SUM, language_of_document, segment_schema


class BlockRows:
    """The blocks of a batch of documents.

    Attributes:
        keys: ``block_key`` of every block.
        documents: of every block, the number of its document in the batch.
    """

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.documents: list[int] = []
        self._documents: list[Document] = []
        self._title_ids: list[Sequence[int]] = []
        self._texts: list[str] = []
        self._sizes: list[int] = []
        self._pieces = Pieces()
        self._hashes: list[int] = []
        self._span_hashes: list[int] = []
        self._links: list[list[tuple[int, int]]] = []

    def add(self, document: Document, title_ids: Sequence[int], pieces: Pieces, blocks: Sequence[tuple[int, int]]) -> None:
        """Append the blocks of the batch's next document.

        Args:
            document: with its text.
            title_ids: wordpieces of its title.
            pieces: of its sentences.
            blocks: (first piece, piece after the last) of each block: all pieces in order, or none if they have no token.
        """
        number, text, mine = len(self._documents), document.text, self._pieces
        self._documents.append(document)
        self._title_ids.append(title_ids)
        for first, last in blocks:
            block_text = text[pieces.starts[first] : pieces.ends[last - 1]]
            self._texts.append(block_text)
            self._sizes.append(last - first)
            self.documents.append(number)
            self.keys.append(block_key(document.title, block_text))
        self._links += links_of_blocks(document, [(pieces.starts[first], pieces.ends[last - 1]) for first, last in blocks])
        if blocks:
            self._hashes += [hash64(text[start:end]) for start, end in zip(pieces.starts, pieces.ends, strict=True)]
            self._span_hashes += [hash64(text[span.char_start : span.char_end]) for span in pieces.spans]
            mine.spans += [span._replace(piece=span.piece + len(mine)) for span in pieces.spans]
            mine.starts += pieces.starts
            mine.ends += pieces.ends
            mine.lengths += pieces.lengths

    def to_arrow(self, ids: np.ndarray, dtype: np.dtype[np.unsignedinteger]) -> pa.RecordBatch:
        """All rows; their block ids are 0, which means nothing yet.

        Args:
            ids: wordpieces of all pieces, one after the other.
            dtype: of the token ids in the segment.
        """
        piece = np.cumsum([0, *self._sizes], dtype=np.int32)  # first piece of each block
        token = np.cumsum([0, *self._pieces.lengths], dtype=np.int32)  # first token of each piece
        chars = np.array([self._pieces.starts, self._pieces.ends], np.int64).T
        starts = chars[piece[:-1], 0]  # of each block, in its document
        sentence_chars = chars - np.repeat(starts, np.diff(piece))[:, None]
        sentence_tokens = np.stack([token[:-1], token[1:]], axis=1) - np.repeat(token[piece[:-1]], np.diff(piece))[:, None]
        columns = self._document_columns(dtype) | {
            "block_id": pa.array(np.zeros(len(starts), np.int64)),
            "text": pa.array(self._texts, pa.string()),
            "char_start": pa.array(starts),
            "token_ids": _lists(token[piece], ids.astype(dtype)),
            "sentence_chars": _lists(piece, sentence_chars),
            "sentence_tokens": _lists(piece, sentence_tokens),
            "sentence_hashes": _lists(piece, np.array(self._hashes, np.uint64)),
            **self._span_columns(piece, token, starts),
            LINKS: pa.array([[key for key, _ in links] for links in self._links], pa.list_(pa.uint64())),
            LINK_NAMES: pa.array([[name for _, name in links] for links in self._links], pa.list_(pa.uint64())),
        }
        schema = segment_schema(dtype)
        return pa.RecordBatch.from_arrays([columns[entry.name].cast(entry.type) for entry in schema], schema=schema)

    def _document_columns(self, dtype: np.dtype[np.unsignedinteger]) -> dict[str, pa.Array]:
        """What all blocks of a document have in common."""
        rows = pa.array(self.documents, pa.int32())
        flat = np.fromiter(chain.from_iterable(self._title_ids), dtype)
        strings = ("doc_id", "title", "source", MEDIA, MEDIA_SUM)
        columns = {name: pa.array([getattr(one, name) for one in self._documents], pa.string()) for name in strings}
        columns["line"] = pa.array([document.line for document in self._documents], pa.int64())
        columns[LANGUAGE] = pa.array([language_of_document(one.title, one.text) for one in self._documents], pa.string())
        columns["title_ids"] = _lists(np.cumsum([0, *map(len, self._title_ids)], dtype=np.int32), flat)
        return {name: column.take(rows) for name, column in columns.items()}

    def _span_columns(self, piece: np.ndarray, token: np.ndarray, starts: np.ndarray) -> dict[str, pa.Array]:
        spans = np.fromiter(chain.from_iterable(self._pieces.spans), np.int64, count=5 * len(self._pieces.spans)).reshape(-1, 5)
        offsets = np.searchsorted(spans[:, 0], piece).astype(np.int32)
        block = np.repeat(np.arange(len(starts)), np.diff(offsets))
        sentence = spans[:, 0] - piece[block]
        first_token = token[spans[:, 0]] - token[piece[block]]
        return {
            "span_chars": _lists(offsets, spans[:, 1:3] - starts[block][:, None]),
            "span_tokens": _lists(offsets, spans[:, 3:5] + first_token[:, None]),
            "span_sentence": _lists(offsets, sentence.astype(np.int32)),
            "span_hashes": _lists(offsets, np.array(self._span_hashes, np.uint64)),
        }


def links_of_blocks(document: Document, ranges: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The links of each block, keys of target and words. A link is the block's in which its words begin, looked for behind the one before.

    Args:
        document: its links in their order; those whose words do not occur in its text are left out.
        ranges: chars of each block, ascending.
    """
    found: list[list[tuple[int, int]]] = [[] for _ in ranges]
    starts, behind = [start for start, _ in ranges], 0
    for words, key in document.links if ranges else ():
        at = document.text.find(words, behind)
        if at < 0:
            at = document.text.find(words, 0, behind + len(words))
        if at < 0:
            continue
        behind = max(behind, at)
        found[max(bisect_right(starts, at) - 1, 0)].append((key, title_key(words)))
    return found


def _lists(offsets: np.ndarray, values: np.ndarray) -> pa.Array:
    """A list column: row i holds ``values[offsets[i]:offsets[i + 1]]``; values [n, 2] are pairs of int32."""
    if values.ndim == 2:
        flat = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values, np.int32).reshape(-1)), 2)
    else:
        flat = pa.array(values)
    return pa.ListArray.from_arrays(pa.array(offsets), flat)
