"""Building and adding: what lands on disk, read by another reader; determinism; crashes; bad input."""

import pytest
from small import arrow_rows, tree

from realm.documents.change.updates import add_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.store.blocks import BlockStore
from realm.documents.store.info import corpus_info
from realm.errors import ConfigError, CorpusError
from realm.text.tokenizer import train_wordpiece

SMALL = {"vocab_size": 400, "block_length": 64}


def test_salient_spans_of_real_sentences(write_jsonl, city_rows, tmp_path):
    gazetteer = tmp_path / "phrases.txt"
    gazetteer.write_text("pound sterling\n")
    out = tmp_path / "corpus"
    build_corpus([write_jsonl("in.jsonl", city_rows())], out, gazetteer=gazetteer, vocab_size=400)
    row = arrow_rows(out)[0]
    spans = [row["text"][start:end] for start, end in row["span_chars"]]
    assert {"London", "1 March 1969", "pound sterling", "Vincent van Gogh", "100", "Paris"} <= set(spans)
    assert not {"The", "On", "People"} & set(spans)


def test_nothing_usable(write_jsonl, city_rows, tmp_path):
    for sources, said in (([write_jsonl("in.jsonl", ["{x", "}"])], "2 bad json"), ([], "nothing found")):
        with pytest.raises(CorpusError, match=f"no usable document .*{said}"):
            build_corpus(sources, tmp_path / "c", **SMALL)
    with pytest.raises(ConfigError, match="block_length"):
        build_corpus([write_jsonl("in.jsonl", city_rows())], tmp_path / "c", block_length=5)
    assert not (tmp_path / "c").exists()


def test_an_existing_target_is_left_alone(write_jsonl, city_rows, tmp_path):
    source, out = write_jsonl("in.jsonl", city_rows(2)), tmp_path / "corpus"
    build_corpus([source], out, **SMALL)
    before = tree(out)
    with pytest.raises(CorpusError, match="corpus add"):
        build_corpus([source], out, **SMALL)
    assert tree(out) == before


def test_a_given_tokenizer_is_kept(write_jsonl, city_rows, tmp_path):
    tokenizer = train_wordpiece([row["text"] for row in city_rows()], 500, lowercase=False)
    tokenizer.save(tmp_path / "tok")
    source = write_jsonl("in.jsonl", city_rows(2))
    for number, form in enumerate([tokenizer, tmp_path / "tok" / "tokenizer.json", str(tmp_path / "tok")]):
        build_corpus([source], tmp_path / f"c{number}", tokenizer=form)
    stores = [BlockStore.open(tmp_path / f"c{number}") for number in range(3)]
    assert {tuple(store.token_ids(0).tolist()) for store in stores} == {tuple(stores[0].token_ids(0).tolist())}
    build_corpus([source], tmp_path / "c3", tokenizer=tmp_path / "c0")
    assert BlockStore.open(tmp_path / "c3").tokenizer.sha256 == tokenizer.sha256


def test_add_documents(write_jsonl, city_rows, tmp_path):
    out, rows = tmp_path / "corpus", city_rows()
    first = build_corpus([write_jsonl("a.jsonl", rows[:10])], out, **SMALL)
    old, second = BlockStore.open(out), add_documents(out, [write_jsonl("b.jsonl", rows[8:])])
    assert (second.version, second.corpus_id, second.documents) == (2, first.corpus_id, 24)
    assert second.rejected == {"duplicate id": 2}
    assert second.next_block_id == second.blocks > first.blocks
    assert old.changed()
    assert len(old) == first.blocks
    store = BlockStore.open(out)
    assert store.block_ids.tolist() == list(range(second.blocks))
    assert store.documents() == [row["id"] for row in rows]
    whole = build_corpus([write_jsonl("c.jsonl", rows)], tmp_path / "whole", tokenizer=store.tokenizer, block_length=64)
    assert whole.blocks == second.blocks
    assert len((out / "rejected.jsonl").read_text().splitlines()) == 2
    before = tree(out)
    with pytest.raises(CorpusError, match="24 duplicate id"):
        add_documents(out, [tmp_path / "c.jsonl"])
    assert tree(out) == before


def test_info_says_whether_the_spans_teach(write_jsonl, city_rows, tmp_path):
    build_corpus([write_jsonl("a.jsonl", city_rows())], tmp_path / "good", **SMALL)
    info = corpus_info(tmp_path / "good")
    assert info["documents"] == 24
    assert info["teaches"] is True
    assert info["advice"] is None
    rows, blocks_of = arrow_rows(tmp_path / "good"), {}
    occurrences = [(row["text"][a:b].lower(), row["block_id"]) for row in rows for a, b in row["span_chars"]]
    for text, block in occurrences:
        blocks_of.setdefault(text, set()).add(block)
    assert info["single_block_span_share"] == pytest.approx(sum(len(blocks_of[text]) == 1 for text, _ in occurrences) / len(occurrences))
    assert info["tokens"] == sum(len(row["token_ids"]) for row in rows)
    plain = [{"id": str(i), "text": f"nothing to see here {'at all ' * i}"} for i in range(5)]
    build_corpus([write_jsonl("p.jsonl", plain)], tmp_path / "plain", **SMALL)
    assert corpus_info(tmp_path / "plain")["advice"].startswith("Few salient spans")


def test_progress_is_told(write_jsonl, city_rows, tmp_path):
    seen = {}
    manifest = build_corpus(
        [write_jsonl("a.jsonl", city_rows())], tmp_path / "c", progress=lambda what, done, total: seen.__setitem__(what, done), **SMALL
    )
    assert seen["documents"] == 24
    assert seen["packed documents"] == manifest.documents == 24
