"""From one document's sentences to blocks: over-long sentences cut, spans aligned, greedy packing. Only positions: no text is copied.

Units: chars are code points, tokens are wordpieces."""

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from realm.documents.ingest.spool import Document
from realm.documents.spans.spans import TaggedSpan
from realm.text.tokenizer import Offsets, Tokenized

# [CLS] title [SEP] body [SEP]
SPECIAL_TOKENS_PER_BLOCK = 3


class Span(NamedTuple):
    """A salient span: the piece it is in, chars in the document, tokens from the piece's first."""

    piece: int
    char_start: int
    char_end: int
    token_start: int
    token_end: int


@dataclass
class Pieces:
    """Sentences of one document in order, too long ones cut: chars in the document, consecutive tokens, and spans; a list a column."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, start: int, end: int, length: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.lengths.append(length)

    def extend(self, more: "Pieces") -> None:
        self.spans += [span._replace(piece=span.piece + len(self)) for span in more.spans] if len(self) else more.spans
        self.starts += more.starts
        self.ends += more.ends
        self.lengths += more.lengths


@dataclass
class PackingCounts:
    """Salient spans that no wordpieces spell, spans and sentences that a block's length cut."""

    spans_unaligned: int = 0
    spans_cut: int = 0
    sentences_cut: int = 0

    def __iadd__(self, other: "PackingCounts") -> "PackingCounts":
        self.spans_unaligned += other.spans_unaligned
        self.spans_cut += other.spans_cut
        self.sentences_cut += other.sentences_cut
        return self


def hash64(text: str) -> int:
    """64-bit hash of ``text``, lower-cased and with white space collapsed; the same on every machine."""
    normalised = text.lower()
    # Of printable characters only the space is white space: most sentences are in their normal form already.
    if not normalised.isprintable() or "  " in normalised or normalised[:1] == " " or normalised[-1:] == " ":
        normalised = " ".join(normalised.split())
    return int.from_bytes(hashlib.blake2b(normalised.encode("utf-8"), digest_size=8).digest(), "little")


FREE, TIED, HEADING = range(3)
"""Kinds of the border before a piece: it may be cut, it is cut only where nothing else can be, it had better be cut."""
FULL_ENOUGH = 0.67
"""Share of its room that a block has filled when it ends before a heading."""


def fill_blocks(lengths: Sequence[int], rooms: Sequence[int], borders: Sequence[int]) -> list[tuple[int, int]]:
    """Greedy packing of pieces: (first piece, piece after the last) of each block. Pieces that have no token at all make no block.
    ``rooms``: tokens that a block has room for which begins with that piece, at least its own ``lengths``."""
    begins, filled = [0], 0
    for piece, length in enumerate(lengths):
        if borders[piece] == HEADING and filled >= FULL_ENOUGH * rooms[begins[-1]]:
            begins.append(piece)
            filled = 0
        while filled + length > rooms[begins[-1]] and piece > begins[-1]:
            cuts = (at for at in range(piece, begins[-1], -1) if borders[at] != TIED and any(lengths[begins[-1] : at]))
            cut = next(cuts, piece)
            begins.append(cut)
            filled = sum(lengths[cut:piece])
        filled += length
    return list(pairwise([*begins, len(lengths)])) if any(lengths) else []


_MOST_TERM = 64
"""Characters of a term that is described on the lines below it."""
_ENDS = (".", "!", "?", ";", "…", "。", "！", "？")
_ROW = " | "


def borders_of(document: Document, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Kinds of the borders before the pieces of a document, by their chars: a heading stays with what follows, and so do the line before a
    list, the term above its description, the head of a table, and a sentence that a line end has parted."""
    text, headings = document.text, {start for start, _ in document.places}
    words = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    borders = [FREE] * len(starts)
    for at in range(1, len(starts)):
        if starts[at] in headings:
            borders[at] = FREE if starts[at - 1] in headings else HEADING
        elif (
            starts[at - 1] in headings or _goes_on(words[at - 1], text[ends[at - 1] : starts[at]], words[at]) or _begins_a_table(words, at)
        ):
            borders[at] = TIED
    return borders


def _begins_a_table(words: Sequence[str], at: int) -> bool:
    return _ROW in words[at] and _ROW in words[at - 1] and (at == 1 or _ROW not in words[at - 2])


def _goes_on(before: str, between: str, words: str) -> bool:
    """Return whether a piece leads in the next one, is one sentence with it, or the term that it describes."""
    if between.count("\n") != 1 or before.endswith(_ENDS):
        return before.endswith(":")
    return before.endswith(":") or words[0].islower() or (len(before) <= _MOST_TERM and between.endswith((" ", "\t")))


def make_pieces(
    text: str,
    ranges: Sequence[tuple[int, int]],
    tokens: Tokenized,
    first: int,
    tagged: Sequence[Sequence[TaggedSpan]],
    room: int,
    counts: PackingCounts,
) -> Pieces:
    """Sentences of one document with aligned spans; those over ``room`` tokens in several pieces. ``tokens`` are of its sentences from
    number ``first`` on, ``tagged`` spans in chars of their sentence; ``counts`` grows by what is dropped or cut."""
    pieces = Pieces()
    borders = tokens.starts[first : first + len(ranges) + 1].tolist()
    for number, (start, end) in enumerate(ranges):
        length = borders[number + 1] - borders[number]
        aligned: list[Span] = []
        if tagged[number]:
            aligned = _align(text[start:end], start, tokens.offsets(first + number), tagged[number], len(pieces), counts)
        if length <= room:
            pieces.add(start, end, length)
            pieces.spans += aligned
        else:
            counts.sentences_cut += 1
            _cut(text[start:end], start, tokens.words(first + number), tokens.offsets(first + number), aligned, room, pieces, counts)
    return pieces


def _align(text: str, offset: int, offsets: Offsets, spans: Sequence[TaggedSpan], piece: int, counts: PackingCounts) -> list[Span]:
    """Spans that whole wordpieces cover exactly, white space inside a wordpiece's offsets aside; others are dropped and counted."""
    aligned = []
    starts = [start for start, _ in offsets]
    for span in spans:
        last = bisect_right(starts, span.end - 1) - 1
        first = bisect_right(starts, span.start) - 1
        # Where a character is several tokens (bytes, Hangul), they share its offsets, and the first may begin with the space before it.
        while first > 0 and offsets[first - 1][1] > span.start:
            first -= 1
        if first < 0 or text[offsets[first][0] : offsets[last][1]].strip() != text[span.start : span.end]:
            counts.spans_unaligned += 1
            continue
        aligned.append(Span(piece, offset + span.start, offset + span.end, first, last + 1))
    return aligned


def _cut(
    text: str,
    offset: int,
    words: Sequence[int | None],
    offsets: Offsets,
    spans: Sequence[Span],
    room: int,
    pieces: Pieces,
    counts: PackingCounts,
) -> None:
    """Append a sentence in pieces: cut at wordpiece borders, between words where possible. Every char lands in exactly one piece."""
    placed, total = 0, len(offsets)
    token, char = 0, 0
    while token < total:
        stop = _cut_position(words, offsets, token, room, total)
        char_stop = len(text) if stop == total else offsets[stop][0]
        piece_text = text[char:char_stop]
        for span in spans:
            if token <= span.token_start and span.token_end <= stop:
                start, end = span.token_start - token, span.token_end - token
                pieces.spans.append(Span(len(pieces), span.char_start, span.char_end, start, end))
                placed += 1
        start = offset + char + len(piece_text) - len(piece_text.lstrip())
        pieces.add(start, offset + char + len(piece_text.rstrip()), stop - token)
        token, char = stop, char_stop
    counts.spans_cut += len(spans) - placed


def _cut_position(words: Sequence[int | None], offsets: Offsets, token: int, room: int, total: int) -> int:
    """The end of the piece that starts at ``token``: at most ``room`` further, before a word if one starts there.

    Tokens of one character (bytes of a rare symbol) share their offsets and are kept together if the room allows it."""
    if token + room >= total:
        return total
    for stop in range(token + room, token, -1):
        if words[stop] != words[stop - 1] and offsets[stop][0] > offsets[token][0]:
            return stop
    for stop in range(token + room, token, -1):
        if offsets[stop][0] > offsets[stop - 1][0]:
            return stop
    return token + room
