"""Removed documents are never returned once the command has ended, however long a run, an answerer or an index has been open."""

import shutil

import numpy as np
import pytest
import torch

from realm import Realm
from realm.answering.opening import open_run
from realm.cli import main
from realm.documents.change.compaction import compact_corpus
from realm.documents.change.updates import add_documents, remove_documents, update_documents
from realm.documents.store.blocks import BlockStore
from realm.search.index.choice import LiveIndex
from realm.search.index.exact import ExactIndex
from realm.search.retriever import Retriever
from realm.training.baselines.retrievers import Bm25Candidates

QUESTION = "What is the currency of Arvad?"


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


def without_arvad(corpus):
    assert main(["corpus", "remove", str(corpus), "Arvad/0", "Arvad/1"]) == 0


def purged(corpus):
    without_arvad(corpus)
    compact_corpus(corpus, purge=True)


@pytest.mark.parametrize("remove", [without_arvad, purged])
def test_open_objects_notice(run, remove):
    realm, opened = Realm.open(run), open_run(run)
    answerer, explained = opened.answerer, Retriever(opened.generation.embedder.embed_questions, opened.generation.index)
    assert explained.retrieve(opened.inputs.blocks([0]), 13, null=True).valid.sum() == 13
    assert {e.doc_id for e in answerer.answer([QUESTION], k=12)[0].evidence} >= {"Arvad/0", "Arvad/1"}
    remove(run / "corpus")
    for evidence in (answerer.answer([QUESTION], k=12)[0].evidence, realm.ask(QUESTION, k=10).evidence):
        assert len(evidence) == 10 and not {e.doc_id for e in evidence} & {"Arvad/0", "Arvad/1"}
    assert not {hit.doc_id for hit in (*opened.search(QUESTION, 12), *realm.search(QUESTION, 10))} & {"Arvad/0", "Arvad/1"}
    assert explained.retrieve(opened.inputs.blocks([0]), 13, null=True).valid.sum() == 11
    assert Realm.open(run).unsearchable == 0


def test_an_updated_document_is_not_found_in_its_old_form(run, tmp_path):
    opened = open_run(run)
    (tmp_path / "new.jsonl").write_text('{"id": "Arvad/0", "title": "Arvad", "text": "The currency of Arvad is the Osten now."}\n')
    update_documents(run / "corpus", [tmp_path / "new.jsonl"])
    assert "Arvad/0" not in {hit.doc_id for hit in opened.search(QUESTION, 12)}
    assert Realm.open(run).unsearchable == 1
    again, count = opened.with_added()
    assert count == 1
    assert "Osten now" in next(hit.text for hit in again.search(QUESTION, 12) if hit.doc_id == "Arvad/0")


def test_bm25_notices(run):
    pytest.importorskip("bm25s")
    inputs = open_run(run).inputs
    bm25 = Bm25Candidates(inputs, np.arange(len(inputs.store)))
    ids = inputs.store.tokenizer.encode([QUESTION])
    before = bm25([QUESTION], ids, 12)
    remove_documents(run / "corpus", ["Arvad/1"])
    after, gone = bm25([QUESTION], ids, 12), inputs.store.rows_of_document("Arvad/1")
    assert np.isin(before.rows, gone).any() and not np.isin(after.rows, gone).any()
    assert (after.scores[torch.from_numpy(after.rows < 0)] == 0).all()


def test_live_index_against_a_new_one(run):
    """After every kind of change it returns what an index made anew of the live blocks returns."""
    corpus = run / "corpus"
    store = BlockStore.open(corpus)
    vectors = np.random.default_rng(0).normal(size=(len(store), 8)).astype(np.float32)
    index, queries = LiveIndex(vectors, store.block_ids, store), torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    changes = [
        lambda: remove_documents(corpus, ["Arvad/0", "Belmor/1"]),
        lambda: add_documents(corpus, [run.parent / "more.jsonl"]),
        lambda: compact_corpus(corpus, purge=True),
        lambda: remove_documents(corpus, ["Novaria/0", "Carsin/0"]),
        lambda: remove_documents(corpus, [doc_id for doc_id in BlockStore.open(corpus).documents() if doc_id != "Dulwen/0"]),
        lambda: remove_documents(corpus, ["Dulwen/0"]),
    ]
    (run.parent / "more.jsonl").write_text('{"id": "Novaria/0", "title": "Novaria", "text": "The currency of Novaria is the crown."}\n')
    for change in changes:
        change()
        live = BlockStore.open_even_empty(corpus).is_live(store.block_ids)
        found, expected = index.search(queries, 12), ExactIndex(vectors, store.block_ids, live).search(queries, 12)
        assert (found.ids == expected.ids).all() and (found.valid == expected.valid).all()
        assert found.valid.sum() == 5 * live.sum()
    assert len(index) == len(store) and index.dim == 8
