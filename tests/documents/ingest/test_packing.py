"""Packing: where blocks end, and what is cut. That they hold every character once and in order is in test_properties.py."""

import re

import pytest

from realm.documents.ingest.packing import FREE, HEADING, TIED, PackingCounts, borders_of, fill_blocks, hash64, make_pieces
from realm.documents.ingest.spool import Document
from realm.documents.spans.dates import DateNumberTagger
from realm.documents.spans.spans import CombinedTagger
from realm.documents.spans.truecase import TruecaseTagger
from realm.text.sentences import split_sentences
from realm.text.tokenizer import train_wordpiece

TAGGER = CombinedTagger([DateNumberTagger(), TruecaseTagger({})])
TOKENIZER = train_wordpiece(["The quick brown fox met Ada Lovelace in London on 12 March 1969. Überraschung! 東京タワー"] * 3, 300)


def packed(text, room):
    ranges = split_sentences(text)
    sentences, counts = [text[start:end] for start, end in ranges], PackingCounts()
    tagged = [TAGGER.tag(sentence) for sentence in sentences]
    pieces = make_pieces(text, ranges, TOKENIZER.tokenize(sentences), 0, tagged, room, counts)
    return pieces, fill_blocks(pieces.lengths, [room] * len(pieces), [FREE] * len(pieces)), counts


def test_an_over_long_sentence_is_cut_between_words_and_not_lost():
    text = "The fox met Ada Lovelace in London and " + "the brown fox met the quick fox and " * 20 + "so on."
    pieces, blocks, counts = packed(text, 25)
    assert counts.sentences_cut == 1
    assert len(blocks) > 3
    texts = [text[start:end] for start, end in zip(pieces.starts, pieces.ends, strict=True)]
    assert " ".join(texts) == text
    assert pieces.lengths == [len(ids) for ids in TOKENIZER.encode(texts)]


def test_a_span_inside_a_cut_is_dropped_and_counted():
    text = "fox " * 9 + "Ada Lovelace met the fox."
    pieces, _, counts = packed(text, len(TOKENIZER.encode(["fox " * 9 + "Ada"])[0]))
    assert counts.spans_cut == 1
    assert not [span for span in pieces.spans if span.token_start < 1]


def test_sentence_hash_ignores_case_and_spacing():
    assert hash64("The  Pound\nis") == hash64("the pound is") != hash64("the pounds is")
    assert 0 <= hash64("pound") < 2**64
    for text in (" the pound is", "the pound is ", "the\u00a0pound is", "the\tpound is", "THE POUND  IS"):
        assert hash64(text) == hash64("the pound is")


def test_no_token_no_block():
    assert fill_blocks([], [], []) == fill_blocks([0, 0], [5] * 2, [FREE] * 2) == []
    assert fill_blocks([0, 5, 0, 1, 4, 0], [5] * 6, [FREE] * 6) == [(0, 3), (3, 6)]


@pytest.mark.parametrize(("lengths", "rooms", "borders", "blocks"), [
    ([3, 1, 3, 3], [8] * 4, [FREE, FREE, TIED, FREE], [(0, 3), (3, 4)]),
    ([3, 3, 1, 3], [8] * 4, [FREE, FREE, FREE, TIED], [(0, 2), (2, 4)]),  # what is tied goes over together
    ([4, 4, 4], [8] * 3, [FREE, TIED, TIED], [(0, 2), (2, 3)]),  # cut all the same, where nothing else can be
    ([0, 4, 4], [6] * 3, [FREE, FREE, TIED], [(0, 2), (2, 3)]), ([6, 1, 1], [8] * 3, [FREE, HEADING, TIED], [(0, 1), (1, 3)]),
    ([2, 1, 1], [8] * 3, [FREE, HEADING, TIED], [(0, 3)]),  # hardly anything before the heading
    ([3, 3, 3], [8, 5, 8], [FREE, FREE, FREE], [(0, 2), (2, 3)]), ([5, 3, 3], [8, 5, 5], [FREE, FREE, TIED], [(0, 1), (1, 2), (2, 3)]),
])  # fmt: skip
def test_blocks_end_before_headings_and_not_within_what_is_tied(lengths, rooms, borders, blocks):
    assert fill_blocks(lengths, rooms, borders) == blocks


@pytest.mark.parametrize(("text", "borders"), [
    ("You need:\n\n- a pen\n\n- ink", [FREE, TIED, FREE]), ("-u, --update\n    Replace the file.\nThe end.", [FREE, TIED, FREE]),
    ("Name | Born\n\nAnn | 1950\n\nBob | 1901", [FREE, TIED, FREE]), ("It was built of\nstone in 1931.\nIt burnt.", [FREE, TIED, FREE]),
    ("One.\n\nHeading\n\nTwo.", [FREE, HEADING, TIED]),
])  # fmt: skip
def test_what_is_tied(text, borders):
    ranges = [(match.start(), match.end()) for match in re.finditer(r"\S.*", text)]
    at = text.find("Heading")
    document = Document("d", "T", text, "in", 0, ranges, places=((at, ("Heading",)),) * (at >= 0))
    assert borders_of(document, *zip(*ranges, strict=True)) == borders
