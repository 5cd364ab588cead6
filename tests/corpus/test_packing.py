"""Packing: blocks cover every character of every sentence exactly once, in order, within the limit."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from realm.corpus.canonical import canonical_text
from realm.corpus.packing import PackedBlock, PackingCounts, hash64, make_sentences, pack
from realm.corpus.tagging.combined import CombinedTagger
from realm.corpus.tagging.dates import DateNumberTagger
from realm.corpus.tagging.truecase import TruecaseTagger
from realm.text.sentences import split_sentences
from realm.text.tokenizer import TextTokenizer, train_wordpiece

TAGGER = CombinedTagger([DateNumberTagger(), TruecaseTagger({})])
TOKENIZER = train_wordpiece(["The quick brown fox met Ada Lovelace in London on 12 March 1969. Überraschung! 東京タワー"] * 3, 300)


def blocks_of(text: str, room: int, tokenizer: TextTokenizer = TOKENIZER) -> tuple[list[PackedBlock], PackingCounts]:
    ranges = split_sentences(text)
    pieces = [text[start:end] for start, end in ranges]
    counts = PackingCounts()
    made = make_sentences(text, ranges, tokenizer.encodings(pieces), [TAGGER.tag(piece) for piece in pieces], room, counts)
    return list(pack(made, room)), counts


WORDS = st.sampled_from(
    [
        "The fox",
        "London",
        "Ada Lovelace",
        "12 March 1969",
        ". ",
        "! ",
        "\n",
        " ",
        "東京",
        "ü",
        "x" * 120,
        "🏦",
        "u\u0308",
        "\u200d",
        "1,200",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.lists(WORDS, max_size=80).map(" ".join), st.lists(WORDS, max_size=80).map("".join)), st.integers(1, 40))
def test_every_character_once_in_order_within_the_limit(raw: str, room: int) -> None:
    text = canonical_text(raw)
    blocks, _ = blocks_of(text, room)
    sentences = [sentence for block in blocks for sentence in block.sentences]
    assert all(earlier.end <= later.start for earlier, later in itertools.pairwise(sentences))
    assert "".join("".join(text[s.start : s.end] for s in sentences).split()) == "".join(text.split())
    for block in blocks:
        assert block.token_count == sum(len(sentence.ids) for sentence in block.sentences) <= room
    whole = [ids for start, end in split_sentences(text) for ids in TOKENIZER.encode([text[start:end]])[0]]
    assert [i for sentence in sentences for i in sentence.ids] == whole
    for sentence in sentences:
        for span in sentence.spans:
            assert sentence.start <= span.char_start < span.char_end <= sentence.end
            assert 0 <= span.token_start < span.token_end <= len(sentence.ids)
            covered = TOKENIZER.encode([text[span.char_start : span.char_end]])[0]
            assert sentence.ids[span.token_start : span.token_end] == covered


def test_an_over_long_sentence_is_cut_between_words_and_not_lost() -> None:
    text = "The fox met Ada Lovelace in London and " + "the brown fox met the quick fox and " * 20 + "so on."
    blocks, counts = blocks_of(text, 25)
    assert counts.sentences_cut == 1
    assert len(blocks) > 3
    pieces = [text[block.start : block.end] for block in blocks]
    assert " ".join(pieces) == text
    for block, piece in zip(blocks, pieces, strict=True):
        assert block.sentences[0].ids == TOKENIZER.encode([piece])[0]


def test_a_span_inside_a_cut_is_dropped_and_counted() -> None:
    text = "fox " * 9 + "Ada Lovelace met the fox."
    blocks, counts = blocks_of(text, len(TOKENIZER.encode(["fox " * 9 + "Ada"])[0]))
    assert counts.spans_cut == 1
    assert not [span for block in blocks for sentence in block.sentences for span in sentence.spans if span.token_start < 1]


def test_sentence_hash_ignores_case_and_spacing() -> None:
    assert hash64("The  Pound\nis") == hash64("the pound is") != hash64("the pounds is")
    assert 0 <= hash64("pound") < 2**64
