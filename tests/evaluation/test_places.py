"""Answers in a corpus against plain search in every block."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from realm.documents.ingest.builder import build_corpus
from realm.documents.store.blocks import BlockStore
from realm.errors import DataError
from realm.evaluation.measures import Relevance
from realm.evaluation.places import NO_SPAN, answer_wordpieces, characters_of_wordpieces, locate_answers, require_readable, touched
from realm.models.types import Question
from realm.text.matching.answers import normalised_ranges, normalize_answer
from realm.text.matching.patterns import PatternSearch

QUESTIONS = [
    Question("money", "?", ("the Pound-Sterling", "Pound sterling!", "pound sterling")),
    Question("part", "?", ("ames",)),  # characters of Thames, no word
    Question("case", "?", ("PARIS", "paris")), Question("accent", "?", ("Besanc\u0327on", "Besançon")),
    Question("nothing", "?", ("the", "?")), Question("nowhere", "?", ("Atlantis",)),
    Question("both", "?", ("London", "France")), Question("pattern", "?", ("1[0-9]{3}",), answer_type="regex"),
]  # fmt: skip


def doc_ids(store, rows):
    return {store.doc_id(row) for row in rows}


def test_rows_and_spans_are_those_of_a_search_in_every_block(store):
    texts = {row: store.block(row).text for row in range(len(store))}
    for question, found in zip(QUESTIONS, locate_answers(store, QUESTIONS), strict=True):
        if question.answer_type == "regex":
            assert set(found) == {row for row, text in texts.items() if PatternSearch().found(text, question.answers)}
        else:
            assert set(found) == {row for row, text in texts.items() if normalised_ranges(text, question.answers)}
            needles = [f" {normalize_answer(answer)} " for answer in question.answers]
            padded = {row: f" {normalize_answer(text)} " for row, text in texts.items()}
            assert set(found) == {row for row, text in padded.items() if any(needle.strip() and needle in text for needle in needles)}
    for found in locate_answers(store, QUESTIONS[:1] + QUESTIONS[6:7]):
        assert found and all(found.values()), "whole words stand in wordpieces"
        for row, spans in found.items():
            words = {store.tokenizer.decode(store.token_ids(row)[start:end].tolist()).lower() for start, end in spans}
            assert words <= {"pound sterling", "london", "france"}


def test_words_are_compared_without_case_accents_composed_and_no_part_of_one(store):
    rows = dict(zip((q.id for q in QUESTIONS), locate_answers(store, QUESTIONS), strict=True))
    assert not rows["part"] and not rows["nothing"] and not rows["nowhere"]
    assert doc_ids(store, rows["case"]) == {"france", "london"} and doc_ids(store, rows["accent"]) == {"france"}
    assert doc_ids(store, rows["money"]) == {"uk", "pound"} and doc_ids(store, rows["pattern"]) == {"pound", "france", "london"}


WRITTEN = [
    "The art of the party: art, (Art). The artist's art-nouveau is no art's.",
    "Rock-n-roll, 1,000 of the “Beatles” and the Lord of the Rings! Lord of Rings; café, cafe, CAFÉ.",
    "In New York-based New York, N.Y., a/an U.S. firm paid $5 (5.0 ~ 5) to J. R. R. Tolkien\u00a0today.",
    "東京 is Tokyo. Ωmega ᚠᚢ art ᚠ. '' -- art",
    "Tesla’s Wardenclyffe–Shoreham line, pre-1990-based, 10-15 d'or; Côte-d'Or's é-é--é'x.",
]
ASKED = [
    "art", "arts", "Art!", "rocknroll", "1000", "Beatles", "lord of rings", "café", "cafe", "New York", "ny", "US", "5", "j r r tolkien",
]  # fmt: skip
ASKED += ["j r r tolkien", "Tolkien today", "Tokyo", "東京", "--", "nowhere at all", "ᚠ", "“Beatles” and lord"]
ASKED += ["Tesla", "Wardenclyffe", "Shoreham line", "1990", "10", "or", "é", "x", "Côte d'Or"]


@pytest.fixture(scope="module", params=["spaces", "bytes", "tiny"])
def written(request, tmp_path_factory):
    """Corpora of texts that are hard to take apart: by BERT's tokenizer, by one whose tokens cross words, with hardly a wordpiece known."""
    root = tmp_path_factory.mktemp(request.param)
    rows = [{"id": str(n), "title": f"Title {n}", "text": text} for n, text in enumerate(WRITTEN * 2)]
    (root / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    tokenizer = None
    if request.param != "spaces":
        backend = Tokenizer(models.BPE(unk_token="<unk>") if request.param == "bytes" else models.WordPiece(unk_token="<unk>"))
        special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
        if request.param == "bytes":
            backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
            trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
        else:
            backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
            trainer = trainers.WordPieceTrainer(vocab_size=60, limit_alphabet=20, special_tokens=special, show_progress=False)
        backend.train_from_iterator(WRITTEN, trainer)
        backend.save(str(root / "tokenizer.json"))
        tokenizer = str(root / "tokenizer.json")
    build_corpus([root / "docs.jsonl"], root / "corpus", tokenizer=tokenizer, vocab_size=400)
    return BlockStore.open(root / "corpus")


@pytest.mark.parametrize("portion", [3, 256])
def test_words_are_marked_where_they_stand_and_nowhere_else(written, portion, monkeypatch):
    """Against a search by characters, row by row: "art" stands in a row that has "party", too, and is marked once."""
    monkeypatch.setattr("realm.evaluation.places.BATCH", portion)
    told = []
    questions = [Question(answer, "?", (answer,)) for answer in ASKED] + [Question("several", "?", tuple(ASKED))]
    located = locate_answers(written, questions, counting=lambda done, total: told.append(done))
    texts = {row: written.block(row).text for row in range(len(written))}
    wordpieces = characters_of_wordpieces(written, texts)
    assert told == list(range(portion, len(written), portion))
    for question, found in zip(questions, located, strict=True):
        expected = set()
        for row, text in texts.items():
            for begin, end in normalised_ranges(text, question.answers):
                first, last = (int(at[0]) for at in touched(wordpieces[row], np.array([begin]), np.array([end])))
                expected.add((row, first, last) if first < last else (row, *NO_SPAN))
        assert set(map(tuple, found.table.tolist())) == expected, question.id


def test_recall_finds_what_training_finds(written):
    relevance, rows = Relevance(written), np.append(np.arange(len(written)), -1)
    questions = [Question(answer, "?", (answer,)) for answer in ASKED] + [Question("several", "?", tuple(ASKED))]
    for question, found in zip(questions, locate_answers(written, questions), strict=True):
        assert rows[relevance.by_answer(question, rows)].tolist() == found.rows.tolist(), question.id


def test_answers_in_a_real_corpus(store):
    question = Question("q", "What is the money of the United Kingdom?", ("Pound Sterling", "the pound sterling"))
    (spans,) = locate_answers(store, [question])
    assert {store.block(row).doc_id for row in spans} == {"uk", "pound"}
    for row, found in spans.items():
        assert len(found) == len(set(found)), "two spellings of one answer mark a span once"
        for start, end in found:
            assert store.tokenizer.decode(store.token_ids(row)[start:end].tolist()).lower() == "pound sterling"
    assert answer_wordpieces(store, Question("q", "?", ("1[0-9]+",), answer_type="regex")) == []


def test_answers_longer_than_a_block_are_named_by_line(store, tmp_path):
    short, long = {"question": "?", "answers": ["Paris"]}, {"question": "?", "answers": ["pound " * 400]}
    (tmp_path / "qa.jsonl").write_text(json.dumps(short) + "\n\n" + json.dumps(long) + "\n", "utf-8")
    with pytest.raises(DataError, match=r"qa.jsonl:3: the answer of '3' has .* wordpieces, a block holds 285"):
        require_readable(tmp_path / "qa.jsonl", store)
    (tmp_path / "qa.csv").write_text('question,answers\n"a\nb",Paris\nc,' + "pound " * 400 + "\n", "utf-8")
    with pytest.raises(DataError, match=r"qa.csv:4: "):
        require_readable(tmp_path / "qa.csv", store)
