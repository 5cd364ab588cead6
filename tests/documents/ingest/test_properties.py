"""Read back with another reader: what the files hold, by pyarrow alone, against the canonical text of random documents."""

import itertools
import json
import tempfile
from pathlib import Path

from hypothesis import example, given, settings, strategies as st
from small import arrow_rows

from realm.documents.ingest.builder import build_corpus
from realm.documents.ingest.packing import hash64
from realm.errors import CorpusError
from realm.text.lines import canonical_line, canonical_text
from realm.text.sentences import split_sentences
from realm.text.tokenizer import train_wordpiece
from realm.text.words import DETECTION_CHARS, language_of

SPECIAL_TOKENS = 3
TOKENIZER = train_wordpiece(["The quick brown fox met Ada Lovelace in London on 12 March 1969. Überraschung! 東京タワー"] * 3, 300)
PIECES = [
    "The fox", "London", "Ada Lovelace", "12 March 1969", ". ", "! ", "?\n\n", "\n", " ", "\u200b", "\u200d", "\ufeff", "\u202e",
    "東京。", "ü", "u\u0308",
    "x" * 400, "x" * 90, "🏦", "\U0001f468\u200d\U0001f469", "1,200", "مرحبا", "\x00", "\ud800", "\r\n", "a.b.c", "of the", "...",
]  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from(PIECES), max_size=150).map(" ".join),
    st.lists(st.sampled_from(PIECES), max_size=150).map("".join),
)
DOCUMENTS = st.lists(st.tuples(st.one_of(st.text(max_size=20), st.just("London " * 99)), TEXTS), min_size=1, max_size=4)


@settings(max_examples=60)
@example([("A", "The fox."), ("without a wordpiece", "\ufffd")], 40)
@given(DOCUMENTS, st.sampled_from([16, 17, 40, 288]))
def test_read_back(documents, block_length):
    sources = {f"{number}": (title, text) for number, (title, text) in enumerate(documents)}
    with tempfile.TemporaryDirectory() as scratch:
        file, corpus = Path(scratch, "in.jsonl"), Path(scratch, "corpus")
        lines = [json.dumps({"id": doc_id, "title": title, "text": text}) + "\n" for doc_id, (title, text) in sources.items()]
        file.write_text("".join(lines), "ascii")
        try:
            manifest = build_corpus([file], corpus, tokenizer=TOKENIZER, block_length=block_length)
        except CorpusError as error:
            assert "no usable document" in str(error) or "empty" in str(error)
            return
        rows = arrow_rows(corpus)
    assert [row["block_id"] for row in rows] == list(range(manifest.blocks))
    for doc_id, of_document in itertools.groupby(rows, key=lambda row: row["doc_id"]):
        title, text = sources.pop(doc_id)  # a document's blocks stand together: it comes once
        blocks = list(of_document)
        for row in blocks:
            check_block(row, canonical_line(title), canonical_text(text), block_length)
            assert (row["source"], row["line"]) == (str(file), int(doc_id) + 1)
        check_cover(blocks, canonical_text(text))


def check_block(row, title, text, block_length):
    start, block = row["char_start"], row["text"]
    assert block and block == text[start : start + len(block)]
    assert row["title"] == title
    assert SPECIAL_TOKENS + len(row["title_ids"]) + len(row["token_ids"]) <= block_length
    assert row["title_ids"] == TOKENIZER.encode([title])[0][: block_length // 4]
    position = token = 0
    for (first, last), (token_first, token_last) in zip(row["sentence_chars"], row["sentence_tokens"], strict=True):
        assert position <= first <= last <= len(block) and not block[position:first].strip()
        assert token_first == token <= token_last
        position, token = last, token_last
    assert not block[position:].strip() and token == len(row["token_ids"])
    for hashes, chars in (("sentence_hashes", "sentence_chars"), ("span_hashes", "span_chars")):
        assert row[hashes] == [hash64(block[first:last]) for first, last in row[chars]]
    assert row["lang"] == language_of(f"{title}\n{text[:DETECTION_CHARS]}")
    check_spans(row)


def check_spans(row):
    """Spans lie in their sentence, and their wordpieces are those that stand at their characters."""
    for (first, last), (token_first, token_last), sentence in zip(row["span_chars"], row["span_tokens"], row["span_sentence"], strict=True):
        (low, high), (token_low, token_high) = row["sentence_chars"][sentence], row["sentence_tokens"][sentence]
        assert low <= first < last <= high and token_low <= token_first < token_last <= token_high
        ids, offsets = TOKENIZER.encode_offsets(row["text"][low:high])
        if ids == row["token_ids"][token_low:token_high]:  # not a piece of a cut sentence, whose edges may read otherwise
            start, end = low + offsets[token_first - token_low][0], low + offsets[token_last - token_low - 1][1]
            assert row["text"][start:end].strip() == row["text"][first:last]


def check_cover(blocks, text):
    """Sentences of the document, found anew: their characters and wordpieces are in the blocks once and in order."""
    placed = [(row["char_start"] + first, row["char_start"] + last) for row in blocks for first, last in row["sentence_chars"]]
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(placed))
    covered = [False] * len(text)
    for first, last in placed:
        covered[first:last] = [True] * (last - first)
    for first, last in split_sentences(text):
        missing = "".join(character for at, character in enumerate(text[first:last], first) if not covered[at] and not character.isspace())
        assert not missing or not TOKENIZER.encode([missing])[0], missing  # nothing but what has no wordpiece
    whole = [ids for first, last in split_sentences(text) for ids in TOKENIZER.encode([text[first:last]])[0]]
    assert [token for row in blocks for token in row["token_ids"]] == whole
