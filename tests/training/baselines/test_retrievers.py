"""Retrievers to compare with, each against the obvious slow way, and what they refuse."""

import itertools
import json
import math
import zlib
from collections import Counter

import bm25s
import numpy as np
import pytest
import torch

from realm.answering.opening import open_run
from realm.errors import DataError, MissingExtra
from realm.training.baselines import retrievers as rivals
from realm.training.baselines.retrievers import (
    Bm25Candidates,
    FusedCandidates,
    SentenceEmbedder,
    TfIdfCandidates,
    fused_scores,
    sentence_candidates,
)

TEXTS = ["What is the currency of Arvad?", "In which country do people pay with the Osten?", "zzz"]


@pytest.fixture(scope="module")
def inputs(tiny_run):
    return open_run(tiny_run).inputs


@pytest.fixture(scope="module")
def rows(inputs):
    return np.flatnonzero(inputs.store.live)


@pytest.fixture(scope="module")
def sentence_model(tmp_path_factory):
    """A sentence-transformers directory in small, with a vocabulary of its own."""
    from transformers import BertConfig, BertModel

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
    directory = tmp_path_factory.mktemp("sentences") / "mini"
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(directory)
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}))
    kinds = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    (directory / "modules.json").write_text(json.dumps([{"path": path, "type": f"sentence_transformers.models.{k}"} for k, path in kinds]))
    (directory / "vocab.txt").write_text("\n".join(words) + "\n")
    return directory


def check(source, slow, rows, inputs):
    """Scores, order and padding against the score of every block by itself."""
    found = source(TEXTS, inputs.store.tokenizer.encode(TEXTS), 5)
    for i, text in enumerate(TEXTS):
        expected = {int(row): slow(text, int(row)) for row in rows}
        order = [row for row in sorted(expected, key=lambda row: (-expected[row], row)) if expected[row] > 0][:5]
        scores = [float(score) / float(source.scale) for score in found.scores[i, : len(order)]]
        assert scores == pytest.approx([expected[row] for row in order], rel=1e-4)
        assert [expected[int(row)] for row in found.rows[i, : len(order)]] == pytest.approx([expected[row] for row in order], rel=1e-4)
        assert (found.rows[i, len(order) :] == -1).all() and (found.scores[i, len(order) :] == 0).all()
    found.scores.sum().backward()
    assert source.scale.grad is not None and float(source.scale.grad) > 0


def test_tfidf(inputs, rows):
    def terms(text):
        words = bm25s.tokenize([text], stopwords="en", return_ids=False, show_progress=False)[0]
        pairs = [f"{a} {b}" for a, b in itertools.pairwise(words)]
        return Counter(zlib.crc32(term.encode()) % (1 << 24) for term in [*words, *pairs])

    blocks = {int(row): inputs.store.block(int(row)) for row in rows}
    counts = {row: terms(f"{block.title} {block.text}") for row, block in blocks.items()}

    def slow(text, row):
        total = 0.0
        for term, often in terms(text).items():
            df = sum(term in held for held in counts.values())
            idf = max(0.0, math.log((len(rows) - df + 0.5) / (df + 0.5))) if df else 0.0
            total += math.log1p(often) * idf * math.log1p(counts[row][term]) * idf
        return total

    source = TfIdfCandidates(inputs, rows)
    check(source, slow, rows, inputs)
    assert source.index_bytes() > 0


def test_fused_ranks(inputs, rows, tiny_run):
    assert fused_scores([np.array([4, 7, -1]), np.array([7, 9, -1])]) == pytest.approx({4: 60 / 61, 7: 60 / 62 + 60 / 61, 9: 60 / 62})
    dense, lexical = open_run(tiny_run).source, Bm25Candidates(inputs, rows)
    tokens = inputs.store.tokenizer.encode(TEXTS)
    lists = [source(TEXTS, tokens, 5).rows.tolist() for source in (dense, lexical)]

    def slow(text, row):
        i = TEXTS.index(text)
        return sum(60 / (61 + ranking[i].index(row)) for ranking in lists if row in ranking[i])

    source = FusedCandidates(dense, lexical)
    source.train()
    check(source, slow, rows, inputs)
    assert [p for p in source.parameters() if p.requires_grad] == [source.scale], "only the scale learns"


def test_a_sentence_embedder_retrieves(inputs, rows, sentence_model, tmp_path):
    source = sentence_candidates(inputs, sentence_model, tmp_path / "vectors.npy")
    embedder = SentenceEmbedder(sentence_model)
    questions = embedder.embed(TEXTS)
    vectors = {}
    for row in rows.tolist():
        block = inputs.store.block(row)
        vectors[row] = embedder.embed([f"{block.title}. {block.text}"])[0]
    check(source, lambda text, row: float(questions[TEXTS.index(text)] @ vectors[row]), rows, inputs)
    before = (tmp_path / "vectors.npy").stat().st_mtime_ns
    again = sentence_candidates(inputs, sentence_model, tmp_path / "vectors.npy")
    assert (tmp_path / "vectors.npy").stat().st_mtime_ns == before and again.index_bytes() == source.index_bytes()
    (tmp_path / "vectors.npy").write_bytes(b"half of a fi")
    sentence_candidates(inputs, sentence_model, tmp_path / "vectors.npy")
    assert np.load(tmp_path / "vectors.npy").shape == (len(rows), 32)


def test_what_is_refused(inputs, rows, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no such directory"):
        SentenceEmbedder(tmp_path / "none")
    monkeypatch.setitem(__import__("sys").modules, "bm25s", None)
    with pytest.raises(MissingExtra, match="the TF-IDF baseline needs the extra 'bm25'"):
        TfIdfCandidates(inputs, rows)
    assert rivals.RRF_CONSTANT == 60
