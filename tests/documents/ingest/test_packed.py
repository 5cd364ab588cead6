"""Rows of a segment: the same as an obvious loop over the blocks makes, whatever the documents are."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from realm.documents.ingest.packed import BlockRows, Head, bounded_head
from realm.documents.ingest.packing import FREE, PackingCounts, fill_blocks, hash64, make_pieces
from realm.documents.ingest.spool import Document
from realm.documents.store.segments import language_of_document
from realm.text.sentences import split_sentences
from realm.text.tokenizer import train_wordpiece

TOKENIZER = train_wordpiece(["The quick brown fox met Ada Lovelace in London on 12 March 1969. Überraschung! 東京タワー"] * 3, 300)
TEXTS = [
    "The fox met Ada on 12 March 1969. It was in London, in 1970.\nThe 2 foxes met. "
    + "The brown fox met the quick fox and " * 9
    + "1971.",
    "\ufffd",  # not a token in it
    "Überraschung! 東京タワー 1969.",
    "\ufffd. The fox.",
]


def numbers(sentence):
    return [SimpleNamespace(start=match.start(), end=match.end()) for match in re.finditer("[0-9]+", sentence)]


@pytest.mark.parametrize("texts", [TEXTS, TEXTS[1:2], TEXTS[:1], []])
@pytest.mark.parametrize("room", [7, 30])
def test_rows_are_what_a_loop_over_the_blocks_makes(texts, room):
    documents = [
        Document(
            f"d{number}",
            f"T{number}",
            text,
            "in",
            number,
            split_sentences(text),
            links=((text[:2], 7), ("not in it", 8)) * (number % 2),
            media=f"{number}.png" * (number % 2),
            media_sum="ab" * (number % 2),
        )
        for number, text in enumerate(texts)
    ]
    sentences = [document.text[start:end] for document in documents for start, end in document.sentences]
    tokens, rows, expected, position = TOKENIZER.tokenize(sentences), BlockRows(), [], 0
    for number, document in enumerate(documents):
        tagged = [numbers(document.text[start:end]) for start, end in document.sentences]
        first, position = position, position + len(document.sentences)
        pieces = make_pieces(document.text, document.sentences, tokens, first, tagged, room, PackingCounts())
        blocks = fill_blocks(pieces.lengths, [room] * len(pieces), [FREE] * len(pieces))
        rows.add(document, [Head(f"H{begin}", [number] * number) for begin, _ in blocks], pieces, blocks)
        token = int(tokens.starts[first])
        for begin, end in blocks:
            start, text = pieces.starts[begin], document.text[pieces.starts[begin] : pieces.ends[end - 1]]
            row = {
                "block_id": 0, "doc_id": f"d{number}", "title": f"T{number}", "text": text, "source": "in", "line": number,
                "char_start": start, "title_ids": [number] * number, "sentence_chars": [], "sentence_tokens": [], "sentence_hashes": [],
                "heading": f"H{begin}", "span_chars": [], "span_tokens": [], "span_sentence": [], "span_hashes": [],
            }  # fmt: skip
            filled = 0
            for piece in range(begin, end):
                low, high, length = pieces.starts[piece], pieces.ends[piece], pieces.lengths[piece]
                row["sentence_chars"].append([low - start, high - start])
                row["sentence_tokens"].append([filled, filled + length])
                row["sentence_hashes"].append(hash64(document.text[low:high]))
                for span in (span for span in pieces.spans if span.piece == piece):
                    row["span_chars"].append([span.char_start - start, span.char_end - start])
                    row["span_tokens"].append([filled + span.token_start, filled + span.token_end])
                    row["span_sentence"].append(piece - begin)
                    row["span_hashes"].append(hash64(document.text[span.char_start : span.char_end]))
                filled += length
            row["lang"] = language_of_document(document.title, document.text)
            row["links"] = [7] if document.links and begin == 0 else []
            row |= {"media": f"{number}.png" * (number % 2), "media_sum": "ab" * (number % 2)}
            row["token_ids"] = tokens.ids[token : token + filled].tolist()
            token += filled
            expected.append(row)
    made = rows.to_arrow(tokens.ids, np.dtype(np.uint16))
    made.validate(full=True)
    assert made.to_pylist() == expected
    assert [f"d{number}" for number in rows.documents] == [row["doc_id"] for row in expected]
    assert len(texts) < 2 or any(row["span_hashes"] for row in expected)


@pytest.mark.parametrize(("title", "parts", "most", "ids"), [
    ([1, 2], [[3], [4, 5]], 5, [1, 2, 3, 4, 5]),
    ([1, 2], [[3], [4, 5]], 4, [1, 2, 4, 5]),  # the outer heading goes first
    ([1, 2, 3], [[4, 5, 6]], 4, [1, 2, 4, 5]), ([1], [[4, 5, 6]], 3, [1, 4, 5]), ([1, 2, 3], [[4]], 2, [1, 4]),
])  # fmt: skip
def test_a_long_head_keeps_title_and_innermost_heading(title, parts, most, ids):
    assert bounded_head(title, parts, most) == ids
