"""From one document's sentences to blocks: exact token ranges, greedy packing, over-long sentences cut, spans aligned.

Units: chars are code points, tokens are wordpieces.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tokenizers import Encoding

from realm.corpus.tagging.spans import TaggedSpan
from realm.text.wordcache import WordEncoding

# [CLS] title [SEP] body [SEP]
SPECIAL_TOKENS_PER_BLOCK = 3


@dataclass(frozen=True)
class Span:
    """A salient span: chars in the document, tokens relative to its sentence's first."""

    char_start: int
    char_end: int
    token_start: int
    token_end: int


@dataclass(frozen=True)
class Sentence:
    """A sentence, or a piece of one that was too long: chars in the document, its token ids, the spans in it."""

    start: int
    end: int
    ids: list[int]
    spans: list[Span]


@dataclass
class PackedBlock:
    """Consecutive sentences of one document that fit the limit together."""

    sentences: list[Sentence] = field(default_factory=list)
    token_count: int = 0

    @property
    def start(self) -> int:
        return self.sentences[0].start

    @property
    def end(self) -> int:
        return self.sentences[-1].end


@dataclass
class PackingCounts:
    """What packing did to spans and sentences."""

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
    normalised = " ".join(text.lower().split())
    return int.from_bytes(hashlib.blake2b(normalised.encode("utf-8"), digest_size=8).digest(), "little")


def pack(sentences: Iterator[Sentence], room: int) -> Iterator[PackedBlock]:
    """Fill blocks greedily with sentences of at most ``room`` tokens in all. No sentence may be longer than ``room``."""
    block = PackedBlock()
    for sentence in sentences:
        if block.sentences and block.token_count + len(sentence.ids) > room:
            yield block
            block = PackedBlock()
        block.sentences.append(sentence)
        block.token_count += len(sentence.ids)
    if block.sentences:
        yield block


def make_sentences(
    text: str,
    ranges: Sequence[tuple[int, int]],
    encodings: Sequence[Encoding | WordEncoding],
    tagged: Sequence[Sequence[TaggedSpan]],
    room: int,
    counts: PackingCounts,
) -> Iterator[Sentence]:
    """Sentences of one document with aligned spans; those over ``room`` tokens come in pieces.

    Args:
        text: the document's canonical text.
        ranges: chars of each sentence in ``text``.
        encodings: of each sentence's text.
        tagged: spans of each sentence, chars relative to the sentence.
        room: most tokens of a sentence, at least 1.
        counts: grows by what is dropped or cut.
    """
    for (start, end), encoding, spans in zip(ranges, encodings, tagged, strict=True):
        sentence_text = text[start:end]
        aligned = _align(sentence_text, start, encoding, spans, counts)
        ids = encoding.ids
        if len(ids) <= room:
            yield Sentence(start, end, ids, aligned)
        else:
            counts.sentences_cut += 1
            yield from _cut(sentence_text, Sentence(start, end, ids, aligned), encoding, room, counts)


def _align(text: str, offset: int, encoding: Encoding | WordEncoding, spans: Sequence[TaggedSpan], counts: PackingCounts) -> list[Span]:
    """Spans that whole wordpieces cover exactly, white space inside a wordpiece's offsets aside; others are dropped and counted."""
    if not spans:
        return []
    aligned = []
    offsets = encoding.offsets
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
        aligned.append(Span(offset + span.start, offset + span.end, first, last + 1))
    return aligned


def _cut(text: str, sentence: Sentence, encoding: Encoding | WordEncoding, room: int, counts: PackingCounts) -> Iterator[Sentence]:
    """Cut at wordpiece borders, between words where possible. Every char of the sentence lands in exactly one piece."""
    words, offsets, total = encoding.word_ids, encoding.offsets, len(sentence.ids)
    placed = 0
    token, char = 0, 0
    while token < total:
        stop = _cut_position(words, offsets, token, room, total)
        char_stop = len(text) if stop == total else offsets[stop][0]
        piece_text = text[char:char_stop]
        start = sentence.start + char + len(piece_text) - len(piece_text.lstrip())
        end = sentence.start + char + len(piece_text.rstrip())
        spans = [
            Span(span.char_start, span.char_end, span.token_start - token, span.token_end - token)
            for span in sentence.spans
            if token <= span.token_start and span.token_end <= stop
        ]
        placed += len(spans)
        yield Sentence(start, end, sentence.ids[token:stop], spans)
        token, char = stop, char_stop
    counts.spans_cut += len(sentence.spans) - placed


def _cut_position(words: Sequence[int | None], offsets: Sequence[tuple[int, int]], token: int, room: int, total: int) -> int:
    """Where the piece that starts at ``token`` stops: at most ``room`` further, before a word if one starts there.

    Tokens of one character (bytes of a rare symbol) share their offsets and are kept together if the room allows it.
    """
    if token + room >= total:
        return total
    for stop in range(token + room, token, -1):
        if words[stop] != words[stop - 1] and offsets[stop][0] > offsets[token][0]:
            return stop
    for stop in range(token + room, token, -1):
        if offsets[stop][0] > offsets[stop - 1][0]:
            return stop
    return token + room
