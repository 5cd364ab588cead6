"""Sparse search: the scores of bm25s over the whole corpus, whatever parts it is kept in; published, shared, added to, verified."""

import errno
import os
import shutil
from unittest.mock import Mock

import bm25s
import numpy as np
import pytest
from small import flip, jsonl

from realm.documents.change.updates import add_documents, remove_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.store.blocks import BlockStore
from realm.errors import SnapshotError
from realm.search import sparse
from realm.search.sparse import open_sparse, verify_sparse
from realm.text.words import words

WORDS = [
    "river", "town", "bridge", "crown", "coin", "winter", "harbour", "tower", "wheat", "sail", "garden", "stone", "king", "queen", "market",
]  # fmt: skip
QUERIES = ["the river and the bridge", "coin coin market", "queen of the winter harbour", "nothing known zzz"]


def write(path, first, count):
    rng, rows = np.random.default_rng(first), []
    for number in range(first, first + count):
        text = " ".join(rng.choice(WORDS, 5 + number % 17, p=np.arange(1, 16) / 120)) + f" it is number{number}."
        rows.append({"id": f"d{number}", "title": WORDS[number % 15].title(), "text": text})
    return jsonl(path, rows)


@pytest.fixture
def corpus(tmp_path):
    build_corpus([write(tmp_path / "docs.jsonl", 0, 60)], tmp_path / "corpus", vocab_size=300)
    return tmp_path / "corpus"


def opened(corpus, generation=1):
    """The sparse index of all live blocks; the generation's directory is there, as it is when one is published."""
    store, directory = BlockStore.open(corpus), corpus.parent / "index"
    (directory / f"{generation:06d}").mkdir(parents=True, exist_ok=True)
    return open_sparse(directory, generation, np.asarray(store.block_ids)[store.live], store)


def slowly(corpus, queries):
    """BM25 of every block for each query by bm25s over the same words, built in memory over the live blocks."""
    store = BlockStore.open(corpus)
    rows = np.flatnonzero(store.live).tolist()
    texts = [f"{store.block(row).title} {store.block(row).text}" for row in rows]
    index = bm25s.BM25(k1=0.9, b=0.4)
    index.index([words(text) for text in texts], show_progress=False)
    ids = store.block_ids[rows].tolist()
    return [dict(zip(ids, index.get_scores(words(query)).tolist(), strict=True)) for query in queries]


def check(found, corpus, k=1000):
    ids, scores = found.search(QUERIES, k)
    for i, every in enumerate(slowly(corpus, QUERIES)):
        expected = {name: score for name, score in every.items() if score > 0}
        kept = ids[i] >= 0
        assert dict(zip(ids[i, kept].tolist(), scores[i, kept].tolist(), strict=True)) == pytest.approx(expected, rel=1e-5)
        assert (np.diff(scores[i]) <= 0).all() and (scores[i, ~kept] == 0).all()
        ties = [(-score, name) for name, score in zip(ids[i, kept].tolist(), scores[i, kept].tolist(), strict=True)]
        assert ties == sorted(ties), "of equal ones the older first"


def test_words_of_two_letters_are_those_of_bm25s():
    text = "The Queen's 3rd voyage: it IS a 1st-class trip, not U.K. re-entry; cafe_2 x y zz."
    assert [word for word in words(text) if len(word) > 1] == bm25s.tokenize(text, stopwords="en", return_ids=False, show_progress=False)[0]


def test_scores_are_those_of_bm25s_but_for_excluded_blocks(corpus):
    found = opened(corpus)
    assert len(found) == 60 and len(found.parts) == 1
    check(found, corpus)
    for part, whole in zip(found.search(QUERIES, 7), found.search(QUERIES, 1000), strict=True):
        assert np.array_equal(part, whole[:, :7])
    ids, scores = found.search(QUERIES, 60)
    without, less = found.search(QUERIES, 58, [row[:2] for row in ids])
    assert np.array_equal(without, ids[:, 2:]) and np.array_equal(less, scores[:, 2:])


def test_added_blocks_are_scored_with_all_others_and_removed_ones_vanish(corpus, tmp_path):
    before = opened(corpus)
    add_documents(corpus, [write(tmp_path / "more.jsonl", 60, 5)])
    assert len(before.search(["number61"], 3)[0][0]) == 3 and before.search(["number61"], 3)[0][0, 0] == -1, "not in this index yet"
    added = opened(corpus)
    assert [len(part.block_ids) for part in added.parts] == [60, 5] and np.array_equal(added.parts[0].rows, before.parts[0].rows)
    check(added, corpus)
    first = int(added.search(["number61"], 1)[0][0, 0])
    remove_documents(corpus, ["d61"])
    ids, _ = added.search(["number61", "number62"], 4)
    assert ids[0, 0] == -1 and ids[1, 0] >= 0 and first not in added.search(QUERIES, 100)[0], "at once, though it has long been open"


def test_scores_do_not_depend_on_how_the_parts_came_about(corpus, tmp_path):
    """After additions and removals they are those of an index that is built anew: a repair changes no answer."""
    before = opened(corpus)
    add_documents(corpus, [write(tmp_path / "more.jsonl", 60, 9)])
    opened(corpus)
    remove_documents(corpus, ["d3", "d17", "d61"])
    check(changed := opened(corpus), corpus)
    shutil.rmtree(tmp_path / "index" / "000001" / "sparse")
    for old, new in zip(changed.search(QUERIES, 1000), opened(corpus).search(QUERIES, 1000), strict=True):
        assert np.array_equal(old, new)
    before.search(QUERIES, 5)
    assert before._blocks == 58, "one that has long been open weighs by what is left, too"


@pytest.mark.parametrize(("name", "at"), [*(("sparse.json", at) for at in (3, 40, -3)), ("rows.npy", -3)])
def test_a_flipped_bit_is_found_and_what_it_is_in_is_made_again(corpus, tmp_path, name, at):
    found = opened(corpus).search(QUERIES, 9)
    (file,) = tmp_path.glob(f"index/000001/sparse/**/{name}")
    flip(file, at)
    with pytest.raises(SnapshotError, match=name):
        verify_sparse(tmp_path / "index", 1)
    check(again := opened(corpus), corpus)
    for old, new in zip(found, again.search(QUERIES, 9), strict=True):
        assert np.array_equal(old, new)
    verify_sparse(tmp_path / "index", 1)


def test_small_parts_are_merged(corpus, tmp_path):
    opened(corpus)
    for number in range(40):
        add_documents(corpus, [write(tmp_path / "more.jsonl", 100 + number, 1)])
        found = opened(corpus)
    assert len(found.parts) < 34
    check(found, corpus)
    root = tmp_path / "index" / "000001" / "sparse"
    assert sum(path.name.isdigit() for path in root.iterdir()) == len(found.parts), "and their files are gone"


def test_many_blocks_are_several_parts_with_the_same_scores(corpus, monkeypatch):
    monkeypatch.setattr(sparse, "PART_BLOCKS", 25)
    found = opened(corpus)
    assert [len(part.block_ids) for part in found.parts] == [25, 25, 10]
    check(found, corpus)


def test_generations_share_their_words(corpus, tmp_path, monkeypatch):
    opened(corpus)
    monkeypatch.setattr(sparse, "count_words", Mock(side_effect=AssertionError("the words are counted already")))
    found = opened(corpus, 2)
    one, two = (tmp_path / "index" / f"00000{n}" / "sparse" / "00000" / "counts.npy" for n in (1, 2))
    assert one.stat().st_ino == two.stat().st_ino
    check(found, corpus)
    check(opened(corpus, 2), corpus)


def test_where_they_cannot_be_linked_words_are_counted_again(corpus, tmp_path, monkeypatch):
    opened(corpus)
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EXDEV, "Invalid cross-device link")))
    check(opened(corpus, 2), corpus)
    assert not list(tmp_path.rglob("*.staging"))


def test_words_of_many_removed_documents_are_counted_again(corpus):
    opened(corpus)
    remove_documents(corpus, [f"d{number}" for number in range(20)])
    found = opened(corpus, 2)
    assert [len(part.block_ids) for part in found.parts] == [40]
    check(found, corpus)


def test_where_nothing_can_be_written_it_is_made_in_memory(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(sparse, "publish_directory", Mock(side_effect=OSError(30, "Read-only file system")))
    check(opened(corpus), corpus)
    assert not (tmp_path / "index" / "000001" / "sparse" / "sparse.json").exists()
