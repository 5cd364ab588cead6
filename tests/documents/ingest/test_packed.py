"""Packing: where blocks end, and what is cut. That they hold every character once and in order is in test_properties.py."""

import re
from types import SimpleNamespace

import pytest

from realm.answering.answerer import cited
from realm.documents.change.updates import sync_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.ingest.packed import bounded_head, links_of_blocks
from realm.documents.ingest.packing import FREE, HEADING, TIED, PackingCounts, borders_of, fill_blocks, hash64, make_pieces
from realm.documents.ingest.spool import Document
from realm.documents.spans.dates import DateNumberTagger
from realm.documents.spans.spans import CombinedTagger
from realm.documents.spans.truecase import TruecaseTagger
from realm.documents.store.blocks import BlockStore
from realm.text.sentences import split_sentences
from realm.text.tokenizer import train_wordpiece


@pytest.mark.parametrize(("title", "parts", "most", "ids"), [
    ([1, 2], [[3], [4, 5]], 5, [1, 2, 3, 4, 5]),
    ([1, 2], [[3], [4, 5]], 4, [1, 2, 4, 5]),  # the outer heading goes first
    ([1, 2, 3], [[4, 5, 6]], 4, [1, 2, 4, 5]), ([1], [[4, 5, 6]], 3, [1, 4, 5]), ([1, 2, 3], [[4]], 2, [1, 4]),
])  # fmt: skip
def test_a_long_head_keeps_title_and_innermost_heading(title, parts, most, ids):
    assert bounded_head(title, parts, most) == ids


def test_a_link_is_the_block_s_in_which_its_words_begin():
    document = SimpleNamespace(text="Ann met Bob. Bob saw Ann.", links=(("Bob", 1), ("Ann", 2), ("met", 3), ("nobody", 4)))
    assert links_of_blocks(document, [(0, 12), (13, 25)]) == [[1, 3], [2]]


PARTS = [(1, "Staff manual", "This is for all."), (2, "2 Pay", "It comes on Fridays."), (2, "3 Ill", "Call."), (3, "3.1 Notes", "A week.")]
ABOVE = {"all": "", "Fridays": "2 Pay", "3": "3 Ill", "Call": "3 Ill", "week": "3 Ill: 3.1 Notes"}
FORMS = {
    "staff.md": lambda level, words: f"{'#' * level} {words}", "staff.html": lambda level, words: f"<h{level}>{words}</h{level}>",
    "Staff manual": lambda _, words: words, "Staff manual.rst": lambda level, words: f"{words}\n{'=-~'[level - 1] * 12}",
}  # fmt: skip


@pytest.mark.parametrize("name", [*FORMS, "staff.docx"])
def test_an_answer_has_the_headings_above_it_wherever_its_block_begins(tmp_path, name):
    path, corpus = tmp_path / name, tmp_path / "corpus"
    if name in FORMS:
        path.write_text("\n\n".join(f"{FORMS[name](level, words)}\n\n{text}" for level, words, text in PARTS))
    else:
        document = pytest.importorskip("docx").Document()
        for level, words, text in PARTS:
            document.add_heading(words, level)
            document.add_paragraph(text)
        document.core_properties.title = "Staff manual"
        document.save(path)
    build_corpus([path], corpus, vocab_size=300, block_length=256)
    (block,) = map((store := BlockStore.open(corpus)).block, range(len(store)))
    found = [cited(block, 1.0, 1.0, at := block.text.index(words), at + len(words)) for words in ABOVE]
    assert {one.answer: one.heading for one in found} == ABOVE and {one.text_heading for one in found} == {""}
    assert sync_documents(corpus, [path]).version == 1
    if name == "staff.md":
        path.write_text(path.read_text().replace("###", "##"))
        assert sync_documents(corpus, [path]).version == 2 and BlockStore.open(corpus).block(1).heading(at) == "3.1 Notes"


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
