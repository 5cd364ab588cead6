"""Encoding by words gives what the tokenizer gives, and is used only where that is so."""

import itertools

import pytest
from hypothesis import given, strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from realm.documents.ingest.packing import FREE, PackingCounts, fill_blocks, make_pieces
from realm.documents.spans.spans import TaggedSpan
from realm.text import wordcache
from realm.text.tokenizer import TextTokenizer, train_wordpiece
from realm.text.wordcache import WordCache, splits_at_spaces

TEXTS = ["The quick brown fox met Ada Lovelace in London on 12 March 1969. Überraschung! 東京タワー 한국어 naïve café's 3,5"] * 3
LOWER, CASED = train_wordpiece(TEXTS, 300), train_wordpiece(TEXTS, 300, lowercase=False)
PIECES = st.sampled_from( [
    "The", "fox", "Überraschung", "u\u0308", "\u0301", "東京", "한국어", " ", "  ", "\u00a0", "\t", ".", "'", "[MASK]", "[",
    "MASK]", "x" * 50, "🏦", "\u200d", "quick", "Quick,", "ée", "#x",
])  # fmt: skip
PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)


def check(mine, theirs):
    assert mine.ids.tolist() == [token for encoding in theirs for token in encoding.ids]
    assert mine.starts.tolist() == [0, *itertools.accumulate(map(len, theirs))]
    for number, encoding in enumerate(theirs):
        assert mine.offsets(number) == encoding.offsets
        assert mine.words(number) == encoding.word_ids


def by_the_library(tokenizer, texts):
    return Tokenizer.from_str(tokenizer._json).encode_batch(texts, add_special_tokens=False)


def with_words_of_its_own():
    """A tokenizer with added tokens: a plain word, one that is looked for after normalisation, one with an accent."""
    backend = Tokenizer.from_str(LOWER._json)
    backend.add_tokens(["quick", AddedToken("Ée", normalized=True), AddedToken("#x", single_word=True)])
    return TextTokenizer(backend)


OWN = with_words_of_its_own()


@pytest.mark.parametrize("tokenizer", [LOWER, CASED, OWN])
@given(st.lists(st.one_of(st.text(max_size=30), st.text(PRINTABLE, max_size=30), st.lists(PIECES).map("".join)), max_size=5))
def test_the_same_as_the_library(tokenizer, texts):
    check(WordCache(Tokenizer.from_str(tokenizer._json)).tokenize(texts), by_the_library(tokenizer, texts))


def test_a_full_cache_starts_anew(monkeypatch):
    monkeypatch.setattr(wordcache, "MAX_CHARS", 8)
    cache = WordCache(Tokenizer.from_str(LOWER._json))
    texts = [["the quick brown fox"], ["met ada the fox", "x" * 41 + " fox"], [], [""], ["The fox"]]
    for some, tokenized in [(some, cache.tokenize(some)) for some in texts]:
        check(tokenized, by_the_library(LOWER, some))


def byte_level():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=400, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    )
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return TextTokenizer(backend)


def sentence_piece():
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=names, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    return TextTokenizer(backend)


def test_used_only_where_words_are_encoded_one_by_one():
    assert splits_at_spaces(Tokenizer.from_str(LOWER._json))
    for tokenizer in (byte_level(), sentence_piece()):
        assert not splits_at_spaces(Tokenizer.from_str(tokenizer._json))
        check(tokenizer.tokenize(["The fox", "", "met Ada"]), by_the_library(tokenizer, ["The fox", "", "met Ada"]))
    backend = Tokenizer.from_str(LOWER._json)
    backend.add_special_tokens([AddedToken("[OUR MASK]")])
    assert not splits_at_spaces(backend)


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
def test_other_kinds_of_tokenizers_pack_right(make):
    """Every character in exactly one piece, none over the limit, spans on exactly the tokens of their text."""
    tokenizer, text = make(), "The 🏦 fox met Ada Lovelace in 東京. " + "한국어 " * 30 + "London."
    ranges = [(0, text.index("한")), (text.index("한"), len(text))]
    ranges = [(start, start + len(text[start:end].rstrip())) for start, end in ranges]
    spans = [[TaggedSpan(text.index(word), text.index(word) + len(word), "name") for word in ("🏦", "Ada Lovelace", "東京")], []]
    counts, tokens = PackingCounts(), tokenizer.tokenize([text[start:end] for start, end in ranges])
    room = int(tokens.starts[1])
    pieces = make_pieces(text, ranges, tokens, 0, spans, room, counts)
    assert counts.sentences_cut == 1
    blocks = fill_blocks(pieces.lengths, [room] * len(pieces), [FREE] * len(pieces))
    assert all(sum(pieces.lengths[first:last]) <= room for first, last in blocks)
    assert "".join("".join(text[start:end] for start, end in zip(pieces.starts, pieces.ends, strict=True)).split()) == "".join(text.split())
    assert [text[span.char_start : span.char_end] for span in pieces.spans] == ["🏦", "Ada Lovelace", "東京"]
    for span in pieces.spans:
        covered = tokenizer.decode(tokens.ids[span.token_start : span.token_end].tolist())
        assert covered.strip() == text[span.char_start : span.char_end] or "<unk>" in covered
