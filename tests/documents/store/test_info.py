"""The living corpus on the command line: marked sentences, ids from files, one line for every mistake."""

import os
from pathlib import Path

import pytest

from realm.documents.ingest.builder import build_corpus
from realm.documents.sources.reading import source_name
from realm.documents.store.blocks import BlockStore


@pytest.fixture
def corpus(write_jsonl, city_rows, tmp_path):
    build_corpus([write_jsonl("docs.jsonl", city_rows(6))], tmp_path / "corpus", vocab_size=300, block_length=64)
    return tmp_path / "corpus"


def test_show_marks_spans(say, corpus):
    shown = say("corpus", "show", corpus, "doc-2")
    assert "On [[3 March 1969]] the pound sterling was used in [[Rome]]." in shown and "docs.jsonl:3\n" in shown
    found = say("corpus", "show", corpus, "doc-2", "--json")
    assert set(found) == {"id", "blocks"}
    for block in found["blocks"]:
        spans = [sentence["text"][start:end] for sentence in block["sentences"] for start, end in sentence["spans"]]
        assert spans == block["spans"]
        assert all(sentence["text"] in block["text"] for sentence in block["sentences"])


def test_every_kind_of_source_is_named(tmp_path, write_jsonl):
    folder = tmp_path / "folder" / "deep"
    folder.mkdir(parents=True)
    (folder / "one.md").write_text("# Title\n\nThis is about London.")
    odd = os.fsencode(folder) + b"/caf\xe9.txt"
    Path(os.fsdecode(odd)).write_text("Coffee is drunk in Paris.")
    (tmp_path / "two.txt").write_text("This is about Rome.")
    jsonl = write_jsonl("three.jsonl", ["", "{", {"id": "x", "text": "This is about Oslo."}])
    build_corpus([folder.parent, tmp_path / "two.txt", jsonl], tmp_path / "corpus", vocab_size=200)
    store = BlockStore.open(tmp_path / "corpus")
    blocks = [store.block(row) for row in range(len(store))]
    assert [(Path(block.source).name, block.line) for block in blocks] == [
        ("caf\\xe9.txt", 0), ("one.md", 0), ("two.txt", 0), ("three.jsonl", 3),
    ]  # fmt: skip
    assert source_name("a/b\udce9") == "a/b\\xe9" and source_name("café") == "café"


def test_remove_by_file(say, refused, corpus, tmp_path):
    ids = tmp_path / "ids.txt"
    ids.write_text("\ufeffdoc-1\n\n  doc-3  \r\n")
    found = say("corpus", "remove", corpus, "doc-0", "--ids", ids, "--json")
    assert (found["documents"], found["version"]) == (3, 2) and found["removed"] > 0
    assert "no document 'doc-1', 'doc-3'; nothing is removed" in refused("corpus", "remove", corpus, "--ids", ids, "doc-2")
    ids.write_text("\n \n")
    assert "no id is given" in refused("corpus", "remove", corpus, "--ids", ids)
    ids.write_bytes(b"doc-2\n\xff\xfe\n")
    assert "ids.txt: not UTF-8" in refused("corpus", "remove", corpus, "--ids", ids)
    assert "no such file" in refused("corpus", "remove", corpus, "--ids", tmp_path / "nothing")
    assert say("corpus", "compact", corpus, "--purge", "--json")["removed"] == 0
    assert BlockStore.open(corpus).documents() == ["doc-2", "doc-4", "doc-5"]


def test_update_verb(say, refused, corpus, write_jsonl, city_rows, tmp_path):
    rows = city_rows(8)
    rows[1]["text"] = "Nothing is left."
    assert say("corpus", "update", corpus, write_jsonl("new.jsonl", rows), "--json")["rejected"] == {"unknown id": 2}
    assert "Nothing is left." in say("corpus", "show", corpus, "doc-1")
    assert "new.jsonl:7: unknown id. Repair the record" in refused("corpus", "update", corpus, tmp_path / "new.jsonl", "--strict")
    assert "no usable document" in refused("corpus", "update", corpus, write_jsonl("bad.jsonl", ["{"]))
    assert "no such file" in refused("corpus", "update", corpus, tmp_path / "nothing.jsonl")
    assert BlockStore.open(corpus).version == 2


def test_a_corpus_of_an_earlier_version(refused, corpus):
    manifest = corpus / "manifest-000001.json"
    manifest.write_text(manifest.read_text().replace("realm-corpus/5", "realm-corpus/4"))
    for verb in (["remove", corpus, "doc-1"], ["compact", corpus], ["info", corpus]):
        assert refused("corpus", *verb) == f"error: {manifest}: made by an earlier version of realm. Build it again."
